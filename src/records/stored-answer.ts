import type { Answered, KeptHttpResult, KeptMessage, KeptResult } from '../effects/model/answer.ts';
import { quote } from '../json/canonical.ts';
import type { Evidence } from '../effects/model/effect.ts';

/*
 * Evidence and kept results in the form that stores and journals have them. Until there were other kinds of upstream,
 * all answers were from HTTP and nothing said so: what does not name its kind is from HTTP, and is still written so.
 */

/** A number is a status of HTTP. */
export type StoredAnswered = number | null | Exclude<Answered, { readonly kind: 'http' }>;

export type StoredResult = Omit<KeptHttpResult, 'kind'> | KeptMessage;

export interface StoredEvidence extends Omit<Evidence, 'answered'> {
  readonly status: StoredAnswered;
}

/** The texts of {@link storedAnswered} and {@link storedResult}. Of a sealed answer from HTTP nothing else is left. */
export function answerTexts(answered: Answered | null, result: KeptResult | null): readonly [string, string] {
  const status = answered?.kind === 'http' ? String(answered.status) : JSON.stringify(storedAnswered(answered));
  if (result?.kind !== 'http' || result.body.kind !== 'sealed' || Object.keys(result.headers).length > 0)
    return [status, JSON.stringify(storedResult(result))];
  const body = `{"kind":"sealed","value":${quote(result.body.value)}}`;
  return [status, `{"status":${result.status},"headers":{},"body":${body},"truncated":${result.truncated}}`];
}

export function storedAnswered(answered: Answered | null): StoredAnswered {
  return answered?.kind === 'http' ? answered.status : answered;
}

export function answeredOf(stored: StoredAnswered): Answered | null {
  return typeof stored === 'number' ? { kind: 'http', status: stored } : stored;
}

export function storedResult(result: KeptResult | null): StoredResult | null {
  if (result === null) return null;
  switch (result.kind) {
    case 'http': {
      const { status, headers, body, truncated } = result;
      return { status, headers, body, truncated };
    }
    case 'message':
      return result;
  }
}

export function resultOf(stored: StoredResult | null): KeptResult | null {
  return stored === null || 'kind' in stored ? stored : { kind: 'http', ...stored };
}

/** Members are in the order in which evidence was always written. */
export function storedEvidence({ sent, code, message, answered, startedAt, endedAt }: Evidence): StoredEvidence {
  const seen = { code, message, status: storedAnswered(answered), startedAt, endedAt };
  return sent === undefined ? seen : { sent, ...seen };
}

export function evidenceOf({ sent, code, message, status, startedAt, endedAt }: StoredEvidence): Evidence {
  const seen = { code, message, answered: answeredOf(status), startedAt, endedAt };
  return sent === undefined ? seen : { sent, ...seen };
}
