import type { Json } from '../../json/value.ts';
import { isJsonObject } from '../../json/value.ts';
import type { OutcomeMap } from '../../effects/model/tool.ts';
import { canonicalJson } from '../../json/canonical.ts';

/** What was seen of an attempt, without any judgement. */
export type Seen =
  /** No application byte was written on a socket. */
  | { readonly kind: 'nothing_sent'; readonly code: 'connect_failed' | 'not_dispatched'; readonly message: string }
  | {
      readonly kind: 'answer';
      readonly status: number;
      /**
       * `cut`: the status line came, but not the whole body, or the body was longer than the limit. `unreadable`: the
       * body came, but is not JSON with a single meaning.
       */
      readonly body: 'whole' | 'cut' | 'unreadable';
      /** The whole body if it is JSON. */
      readonly json: Json | undefined;
    }
  /** The answer of a tool whose answers are streams began and is not whole. The work may have ended with it. */
  | { readonly kind: 'broken'; readonly status: number; readonly code: string; readonly message: string }
  /** A byte was written, and no readable answer came. */
  | { readonly kind: 'lost'; readonly code: 'timeout' | 'reset' | 'malformed'; readonly message: string };

export type Outcome = 'committed' | 'failed' | 'unknown';

export interface Classified {
  readonly outcome: Outcome;
  /** Evidence code: `http_status`, `declared`, or the code of what was seen. */
  readonly code: string;
  readonly message: string;
  /** 202: accepted, not finished. */
  readonly accepted: boolean;
  readonly responseTruncated: boolean;
  /** The upstream said that it did nothing because it is busy: the same request may be welcome later. */
  readonly busy: boolean;
}

/** The statuses that say "not now". Whether nothing was done is another question, except after 429. */
const NOT_NOW: ReadonlySet<number> = new Set([429, 503, 529]);

/** Client errors that say that the server did nothing. */
const REFUSALS: ReadonlySet<number> = new Set([
  400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 416, 417, 418, 419, 420, 421, 422, 423,
  424, 426, 428, 429, 431, 451,
]);

/**
 * What an answer means, as one table. A tool's declared outcomes come first, body before status. Then comes the status.
 */
export function classify(kind: 'read' | 'write', outcomes: OutcomeMap, seen: Seen): Classified {
  switch (seen.kind) {
    case 'nothing_sent':
      return row('failed', seen.code, seen.message);
    case 'lost':
      return row(kind === 'read' ? 'failed' : 'unknown', seen.code, seen.message);
    case 'broken':
      return row(
        kind === 'read' ? 'failed' : 'unknown',
        seen.code,
        `the upstream answered ${seen.status}, and ${seen.message}`,
      );
    case 'answer': {
      const classified = classifyAnswer(kind, outcomes, seen);
      return classified.outcome === 'failed' && NOT_NOW.has(seen.status) ? { ...classified, busy: true } : classified;
    }
  }
}

function classifyAnswer(
  kind: 'read' | 'write',
  outcomes: OutcomeMap,
  seen: Extract<Seen, { kind: 'answer' }>,
): Classified {
  const { status } = seen;
  const cut = seen.body === 'cut';
  const accepted = status === 202;
  const reason = `the upstream answered ${status}${cut ? ', and its body was cut' : ''}`;
  const declared = cut ? null : declaredByBody(outcomes, seen.json);
  if (declared !== null) {
    return { ...row(declared, 'declared', `${reason} with a body that the tool's outcomes map`), accepted };
  }
  const byStatus = declaredByStatus(outcomes, status);
  if (byStatus !== null && !(cut && kind === 'read')) {
    return {
      ...row(byStatus, 'declared', `${reason}, which the tool's outcomes map`),
      accepted,
      responseTruncated: cut && byStatus === 'committed',
    };
  }
  // If the body decides but cannot be read, the status line alone is not enough.
  const unasked = seen.body !== 'whole';
  if (status >= 200 && status < 300) {
    if (kind === 'read') return row(cut ? 'failed' : 'committed', 'http_status', reason);
    if (status === 207) return row('unknown', 'http_status', `${reason}, which says nothing of the whole`);
    if (unasked && outcomes.body.length > 0)
      return row('unknown', 'http_status', `${reason}, and its body cannot be asked`);
    return { ...row('committed', 'http_status', reason), accepted, responseTruncated: cut };
  }
  if (kind === 'read') return row('failed', 'http_status', reason);
  if (status >= 300 && status < 400) {
    // These three redirect a POST to a GET of its result, so the action may have happened.
    return row(status === 301 || status === 302 || status === 303 ? 'unknown' : 'failed', 'http_status', reason);
  }
  if (unasked && outcomes.body.some(({ outcome }) => outcome !== 'failed'))
    return row('unknown', 'http_status', reason);
  return row(REFUSALS.has(status) ? 'failed' : 'unknown', 'http_status', reason);
}

function row(outcome: Outcome, code: string, message: string): Classified {
  return { outcome, code, message, accepted: false, responseTruncated: false, busy: false };
}

function declaredByStatus(outcomes: OutcomeMap, status: number): Outcome | null {
  // If entries contradict each other, the most cautious one wins.
  if (outcomes.unknown.includes(status)) return 'unknown';
  if (outcomes.failed.includes(status)) return 'failed';
  if (outcomes.committed.includes(status)) return 'committed';
  return null;
}

function declaredByBody(outcomes: OutcomeMap, json: Json | undefined): Outcome | null {
  if (json === undefined) return null;
  for (const entry of outcomes.body) {
    const value = valueAt(json, entry.path);
    if (value !== undefined && canonicalJson(value) === canonicalJson(entry.equals)) return entry.outcome;
  }
  return null;
}

/** The value at a dotted path (`error.code`, `items.0.state`), own members only. */
export function valueAt(json: Json, path: string): Json | undefined {
  let value: Json | undefined = json;
  for (const name of path.split('.')) {
    if (isJsonObject(value)) value = Object.hasOwn(value, name) ? value[name] : undefined;
    else if (Array.isArray(value) && /^\d+$/.test(name)) value = value[Number(name)];
    else return undefined;
  }
  return value;
}
