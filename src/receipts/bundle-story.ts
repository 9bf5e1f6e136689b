import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../json/value.ts';
import { memberAt } from './commitments.ts';

const VERDICTS: ReadonlyMap<Json | undefined, string> = new Map([
  ['approval.granted', 'approved'],
  ['approval.rejected', 'rejected'],
]);

/** Gathers, line by line, who decided what, with which key, what they allowed ahead, and whose policies were in force since when. */
export function createBundleStory() {
  const votes: Record<string, string>[] = [];
  const allowances: Record<string, string>[] = [];
  const effects = new Map<string, Record<string, string>>();
  /** The votes on each effect that something may still come of. */
  const open = new Map<string, Record<string, string>[]>();
  const policies: Record<string, string>[] = [];

  function takeVote({ at, kind, effect_id: effect, data, words }: JsonObject): void {
    const verdict = VERDICTS.get(kind);
    if (verdict === undefined || !isJsonObject(data) || typeof effect !== 'string') return;
    const { approval_id: request, user, key_id: key = '', passkey_id: passkey = '', changed, comment } = data;
    const said = isJsonObject(words) ? words['comment'] : comment && '(not in the bundle)';
    const by = { at, who: user, verdict, with: [key, passkey] };
    const became = data['void'] === true ? 'not used' : '';
    const vote = texts({ ...by, request, effect, call: '', became, changed, words: said });
    votes.push(vote);
    open.set(effect, [...(open.get(effect) ?? []), vote]);
    effects.set(effect, {});
  }

  /** Approvals whose request ended before anything was sent by them: people were asked anew, or nobody was any more. */
  function takeEnd({ kind, effect_id: effect, data }: JsonObject): void {
    if ((kind !== 'approval.renewed' && kind !== 'approval.expired') || !isJsonObject(data)) return;
    const why = kind === 'approval.expired' ? textOf(data['code']) : `asked anew as ${textOf(data['approval_id'])}`;
    for (const vote of open.get(textOf(effect)) ?? []) vote['became'] = `not used, ${why}`;
    open.delete(textOf(effect));
  }

  function takeAllowance({ at, kind, effect_id: effect, actor, data }: JsonObject): void {
    if (typeof kind !== 'string' || !kind.startsWith('allowance.') || !isJsonObject(data)) return;
    if (typeof effect === 'string' && !effects.has(effect)) effects.set(effect, {});
    const { allowance_id: allowance, given_by, times, used, expires_at: until } = data;
    const by = isJsonObject(actor) ? actor['id'] : '';
    const calls = times === undefined ? `${Number(used)} used` : `the next ${Number(times)}`;
    allowances.push(texts({ at, what: kind.slice(10), by, allowance, given_by, calls, until, effect, call: '' }));
  }

  function takePolicy({ version, in_force: times, part = 1 }: JsonObject): void {
    for (const time of part === 1 && isJsonArray(times) ? times.filter(isJsonObject) : []) {
      const { at: since, how, why, files, confirmed_by } = time;
      const by = [memberAt(time, ['by', 'type']) ?? '', memberAt(time, ['by', 'id']) ?? ''];
      policies.push(texts({ since, version, how, by, confirmed_by, why: why ?? files }));
    }
  }

  return {
    /** @param line any line of a bundle before its seal */
    take(line: JsonObject): void {
      const { type, effect_id: effect, tool = '', target = '', state } = line;
      if (type === 'event') for (const takeEvent of [takeVote, takeEnd, takeAllowance]) takeEvent(line);
      else if (type === 'policy') takePolicy(line);
      else if (type === 'effect' && typeof effect === 'string' && effects.has(effect))
        effects.set(effect, texts({ call: [tool, target], became: state }));
    },
    end: () => ({
      votes: votes.map((vote): Record<string, string> => {
        const { call = '', became = '' } = effects.get(vote['effect'] ?? '') ?? {};
        return { ...vote, call, became: vote['became'] || became };
      }),
      allowances: allowances.map((row) => ({ ...row, call: effects.get(row['effect'] ?? '')?.['call'] ?? '' })),
      policies: policies.toSorted(({ since: one = '' }, { since: other = '' }) => (one < other ? -1 : 1)),
    }),
  };
}

function texts(of: Readonly<Record<string, Json | undefined>>): Record<string, string> {
  return Object.fromEntries(Object.entries(of).map(([name, value]) => [name, textOf(value)]));
}

function textOf(value: Json | undefined): string {
  return isJsonArray(value) ? value.map(textOf).join(' ').trim() : typeof value === 'string' ? value : '';
}
