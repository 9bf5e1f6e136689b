import { MOST_FAULTS } from '../diagnostics/stop-at.ts';
import { CODES, type Code } from '../effects/model/codes.ts';
import type { NextStep } from '../effects/model/decision.ts';
import type { Json, JsonObject } from '../json/value.ts';
import type { Problem, RequestFault } from '../effects/model/run-request.ts';
import { shortened } from '../effects/model/shortened.ts';
import type { RenderedOutcome } from '../effects/run/render.ts';

/** At most this many faults are listed in one answer. */
const MAX_LISTED = MOST_FAULTS;
/** The most characters that are shown of a fault's path, and of its message: they may be as long as the request. */
const MAX_FAULT_TEXT = 400;

/** Thrown by a handler to answer with a problem document; the error handler of the server renders it. */
export class Refused extends Error {
  override readonly name = 'Refused';
  readonly problem: Problem;
  /** Further members of the document, such as what is in the way. */
  readonly members: JsonObject;
  constructor(problem: Problem, members: JsonObject) {
    super(problem.detail);
    this.problem = problem;
    this.members = members;
  }
}

/** A problem without faults and without a waiting time. */
export function plainProblem(code: Code, detail: string): Problem {
  return { code, detail, errors: [], retryAfterMs: null };
}

/** Makes a {@link Refused} to throw. */
export function refuse(
  code: Code,
  detail: string,
  more: {
    readonly errors?: readonly RequestFault[];
    readonly retryAfterMs?: number;
    readonly members?: JsonObject;
  } = {},
): Refused {
  const { errors = [], retryAfterMs = null, members = {} } = more;
  return new Refused({ code, detail, errors, retryAfterMs }, members);
}

/** The refusal of a request with faults, with all of them listed. */
export function refuseFaults(errors: readonly RequestFault[]): Refused {
  return refuse('invalid_request', faultSummary(errors), { errors });
}

export function faultSummary(errors: readonly RequestFault[]): string {
  const [first] = errors;
  if (first === undefined) return 'The request does not have the expected shape.';
  const place = first.path === '' ? 'the body' : shortened(first.path, MAX_FAULT_TEXT);
  const summary = `${place}: ${shortened(first.message, MAX_FAULT_TEXT)}.`;
  if (errors.length === 1) return summary;
  return errors.length < MAX_LISTED
    ? `${errors.length} faults; the first: ${summary}`
    : `${MAX_LISTED} faults or more; the first: ${summary}`;
}

/** What a problem document needs to know about the request. */
interface ProblemContext {
  /** Origin of links, no trailing slash. */
  readonly publicUrl: string;
  readonly requestId: string;
  /** A run request: an earlier one with the same key may have run. */
  readonly run: boolean;
  /** The request could change something. */
  readonly changes: boolean;
}

export function statusOf({ code }: Pick<Problem, 'code'>): number {
  return CODES[code].status ?? 500;
}

/** When to come back, where a problem says so, as a header. */
export function retryAfter({ retryAfterMs }: Pick<Problem, 'retryAfterMs'>): Readonly<Record<string, string>> {
  return retryAfterMs === null ? {} : { 'retry-after': String(Math.max(1, Math.ceil(retryAfterMs / 1000))) };
}

/** Beside `did_it_happen: maybe`, where this request was not carried out. */
export const EARLIER = ' An earlier request for the same action may have run.';

/** A problem as an HTTP answer (RFC 9457), with what an agent needs for its next step. */
export function renderProblem(problem: Problem, members: JsonObject, context: ProblemContext): RenderedOutcome {
  const { title } = CODES[problem.code];
  const status = statusOf(problem);
  const happened = didItHappen(problem.code, status, context);
  const retry = shouldRetry(status);
  const mayHaveRun = context.run && [429, 503].includes(status) && (members['did_it_happen'] ?? happened) === 'maybe';
  const headers: Record<string, string> = {
    'content-type': 'application/problem+json; charset=utf-8',
    'x-should-retry': retry ? 'true' : 'false',
    'cache-control': 'no-store',
    ...retryAfter(problem),
  };
  if (status === 401) headers['www-authenticate'] = 'Bearer realm="svc-gateway"';
  const body: Record<string, Json> = {
    type: `${context.publicUrl}/docs/errors/${problem.code}`,
    title,
    status,
    // The detail is about this request, `did_it_happen` about the action.
    detail: mayHaveRun ? `${problem.detail}${EARLIER}` : problem.detail,
    code: problem.code,
    request_id: context.requestId,
    did_it_happen: happened,
    // The idempotency key makes a run safe to repeat. Any other request is safe to repeat if it did not happen.
    safe_to_retry: context.run || !context.changes || happened === 'no',
    next: nextStep(problem.code, status),
  };
  if (problem.errors.length > 0) {
    body['errors'] = problem.errors.slice(0, MAX_LISTED).map(({ path, message }) => ({
      path: shortened(path, MAX_FAULT_TEXT),
      message: shortened(message, MAX_FAULT_TEXT),
    }));
    if (problem.errors.length > MAX_LISTED) body['errors_left_out'] = problem.errors.length - MAX_LISTED;
  }
  if (problem.retryAfterMs !== null) body['retry_after_ms'] = problem.retryAfterMs;
  return { status, headers, body: { ...body, ...members } };
}

/**
 * The hint that generated SDKs obey. Only overload and an unreachable store go away without help.
 * @param status of an answer that is not 2xx
 */
export function shouldRetry(status: number): boolean {
  return status === 429 || status === 503;
}

function didItHappen(code: Code, status: number, context: ProblemContext): 'no' | 'maybe' {
  if (ABOUT_AN_EFFECT.includes(code)) return 'maybe';
  if (code === 'not_ready' && !context.run) return 'no';
  if (context.run) return status === 401 || status === 429 || status >= 500 ? 'maybe' : 'no';
  return status >= 500 && context.changes ? 'maybe' : 'no';
}

function nextStep(code: Code, status: number): NextStep {
  return NEXT[code] ?? (REPLAN.includes(status) ? 'replan' : 'block');
}

/** Next steps that the status does not tell. */
const NEXT: Readonly<Partial<Record<Code, NextStep>>> = {
  claim_held: 'wait',
  pool_full: 'wait',
  too_many_claims: 'wait',
  too_many_reservations: 'wait',
  too_early: 'wait',
  too_many_requests: 'retry',
  busy: 'retry',
  store_unavailable: 'retry',
  not_ready: 'retry',
  no_probe: 'resolve',
  not_unknown: 'proceed',
};

/** About an effect that is unknown, or of which its record says whether it happened. */
const ABOUT_AN_EFFECT: readonly Code[] = ['too_early', 'no_probe', 'not_unknown', 'already_resolved'];

/** Statuses after which a corrected request may succeed. */
const REPLAN: readonly number[] = [400, 404, 405, 409, 413, 415];
