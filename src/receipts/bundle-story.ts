import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../json/value.ts';
import { memberAt } from './commitments.ts';

/** Votes that are told of one bundle. */
const MOST_VOTES = 10_000;

const VERDICTS: ReadonlyMap<Json | undefined, string> = new Map([
  ['approval.granted', 'approved'],
  ['approval.rejected', 'rejected'],
]);

/**
 * Gathers, line by line, what people ask of a bundle first: who decided what, with which key, and whose policies were in force
 * since when.
 */
export function createBundleStory() {
  const votes: { readonly effect: string; readonly [name: string]: string }[] = [];
  const effects = new Map<string, { readonly call: string; readonly became: string }>();
  const policies: { readonly since: string; readonly [name: string]: string }[] = [];
  let more = 0;

  function takeVote({ at, kind, effect_id: effect, data, words }: JsonObject): void {
    const verdict = VERDICTS.get(kind);
    if (verdict === undefined || !isJsonObject(data) || typeof effect !== 'string') return;
    if (votes.length === MOST_VOTES) return void (more += 1);
    const { user, key_id: key, passkey_id: passkey, changed, comment } = data;
    const said = comment === undefined ? '' : '(not in the bundle)';
    const by = {
      at: text(at),
      who: text(user),
      verdict,
      with: text(passkey === undefined ? key : [key ?? null, passkey]),
    };
    const what = { changed: text(changed), words: isJsonObject(words) ? text(words['comment']) : said };
    votes.push({ ...by, effect, call: '', became: '', ...what });
    effects.set(effect, { call: '', became: '' });
  }

  function takePolicy({ version, in_force: times, part = 1 }: JsonObject): void {
    if (part !== 1 || !isJsonArray(times)) return;
    for (const time of times.filter(isJsonObject)) {
      const { at, how, why, files, confirmed_by: confirmed } = time;
      const by = text([memberAt(time, ['by', 'type']) ?? '', memberAt(time, ['by', 'id']) ?? '']);
      const who = { how: text(how), by, confirmed_by: text(confirmed) };
      policies.push({ since: text(at), version: text(version), ...who, why: text(why ?? files) });
    }
  }

  return {
    /** @param line any line of a bundle before its seal */
    take(line: JsonObject): void {
      const { type, effect_id: effect, tool, target, state } = line;
      if (type === 'event') takeVote(line);
      else if (type === 'policy') takePolicy(line);
      else if (type === 'effect' && typeof effect === 'string' && effects.has(effect))
        effects.set(effect, { call: text([tool ?? '', target ?? '']), became: text(state) });
    },
    /** `more`: votes that are not told. */
    end: () => ({
      votes: votes.map((vote) => ({ ...vote, ...effects.get(vote.effect) })),
      more,
      policies: policies.toSorted((one, other) => (one.since < other.since ? -1 : 1)),
    }),
  };
}

function text(value: Json | undefined): string {
  if (isJsonArray(value)) return value.map(text).join(' ');
  return typeof value === 'string' ? value : '';
}
