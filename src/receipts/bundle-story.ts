import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../json/value.ts';
import { memberAt } from './commitments.ts';

const VERDICTS: ReadonlyMap<Json | undefined, string> = new Map([
  ['approval.granted', 'approved'],
  ['approval.rejected', 'rejected'],
]);

/** Gathers, line by line, who decided what, with which key, and whose policies were in force since when. */
export function createBundleStory() {
  const votes: Readonly<Record<string, string>>[] = [];
  const effects = new Map<string, Readonly<Record<string, string>>>();
  const policies: Readonly<Record<string, string>>[] = [];

  function takeVote({ at, kind, effect_id: effect, data, words }: JsonObject): void {
    const verdict = VERDICTS.get(kind);
    if (verdict === undefined || !isJsonObject(data) || typeof effect !== 'string') return;
    const { user, key_id: key = '', passkey_id: passkey = '', changed, comment } = data;
    const said = isJsonObject(words) ? words['comment'] : comment && '(not in the bundle)';
    const by = { at, who: user, verdict, with: [key, passkey] };
    votes.push(texts({ ...by, effect, call: '', became: '', changed, words: said }));
    effects.set(effect, {});
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
      if (type === 'event') takeVote(line);
      else if (type === 'policy') takePolicy(line);
      else if (type === 'effect' && typeof effect === 'string' && effects.has(effect))
        effects.set(effect, texts({ call: [tool, target], became: state }));
    },
    end: () => ({
      votes: votes.map((vote) => ({ ...vote, ...effects.get(vote['effect'] ?? '') })),
      policies: policies.toSorted(({ since: one = '' }, { since: other = '' }) => (one < other ? -1 : 1)),
    }),
  };
}

function texts(of: Readonly<Record<string, Json | undefined>>): Readonly<Record<string, string>> {
  const text = (value: Json | undefined): string =>
    isJsonArray(value) ? value.map(text).join(' ').trim() : typeof value === 'string' ? value : '';
  return Object.fromEntries(Object.entries(of).map(([name, value]) => [name, text(value)]));
}
