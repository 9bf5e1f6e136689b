import type { IncomingMessage } from 'node:http';
import type { Route } from '../config/configuration.ts';
import { isJsonObject, type Json, type JsonObject } from '../json/value.ts';
import type { AnswerHead, KeptHttpResult, KeptResult } from '../effects/model/answer.ts';
import type { RunOutcome, RunResult } from '../effects/model/outcome.ts';
import type { Principal } from '../effects/model/principal.ts';
import { outcomeHeaders, renderOutcome } from '../effects/run/render.ts';
import type { Listen, Problem } from '../effects/model/run-request.ts';
import {
  type ErrorStyle,
  errorMembers,
  ownHeaders,
  PLAIN_STYLE,
  type ShownError,
  shownStatus,
  successMembers,
  withRetryHints,
} from './error-shape.ts';
import type { Arrived } from './arrival.ts';
import { type LinkContext, originOfRequest, ownField, readHeaders, returnedHeaders } from './headers.ts';
import type { ProxyPorts, ProxySettings } from './ports.ts';
import { isJson, LinksUnreadable, rewriteLinks } from './json-links.ts';
import { shortened as cutText } from '../effects/model/shortened.ts';

export interface ProxyAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[]>>;
  readonly body: Buffer | string;
  /** The body is the upstream's, or that of an earlier answer of it. */
  readonly isUpstreams?: true;
}

export interface AnsweredRequest {
  readonly id: string;
  readonly method: string;
  /** The request has an idempotency key, so an earlier one with it may have run. */
  readonly keyed: boolean;
}

export interface AnswerContext {
  readonly request: AnsweredRequest;
  readonly principal: Principal;
  readonly prefix: string;
  /** Origin under which the caller knows the gateway. */
  readonly origin: () => string;
  readonly foreignLinks: Route['foreignLinks'];
  readonly links: Route['links'];
  readonly upstream: string;
  readonly setCookie: boolean;
  readonly onDuplicate: 'conflict' | 'replay';
  readonly pendingStatus: number;
  readonly style: ErrorStyle;
}

export function contextOf(
  ports: Pick<ProxyPorts, 'settings'>,
  raw: IncomingMessage,
  requestId: string,
  { principal, match }: Arrived,
): AnswerContext {
  const route = match.kind === 'none' ? null : match.route;
  return {
    request: answered(raw, requestId),
    principal,
    prefix: route?.prefix ?? '',
    origin: () => originOfRequest(raw, ports.settings().publicUrl),
    foreignLinks: route?.foreignLinks ?? 'hide',
    links: route?.links ?? [],
    upstream: route?.upstream ?? '',
    setCookie: route?.setCookie === true,
    onDuplicate: match.kind === 'rule' ? match.rule.onDuplicate : 'conflict',
    pendingStatus: route?.pendingStatus ?? 202,
    style: route ?? PLAIN_STYLE,
  };
}

/** An answer whose caller has waited for it (RFC 7240), if it has. */
export function afterWait(answer: ProxyAnswer, applied: string | null): ProxyAnswer {
  return applied === null ? answer : { ...answer, headers: { ...answer.headers, 'preference-applied': applied } };
}

export function answered({ method = '', headers }: IncomingMessage, id: string): AnsweredRequest {
  return { id, method, keyed: headers['idempotency-key'] !== undefined };
}

type Ports = Pick<ProxyPorts, 'catalog' | 'receiptView' | 'renderProblem' | 'settings' | 'upstream'>;

export function problemAnswer(
  ports: Pick<ProxyPorts, 'renderProblem'> & { readonly settings: () => Pick<ProxySettings, 'publicUrl'> },
  problem: Problem,
  request: AnsweredRequest,
  style: ErrorStyle = PLAIN_STYLE,
): ProxyAnswer {
  const { status, headers, body } = ports.renderProblem(problem, request);
  const [first] = problem.errors;
  const members = errorMembers(
    {
      decision: 'problem',
      status,
      code: problem.code,
      message: first === undefined ? problem.detail : `${problem.detail} ${first.path} ${first.message}`.slice(0, 1000),
      docs: `${ports.settings().publicUrl}/docs/errors/${problem.code}`,
    },
    style.errorFormat,
  );
  return {
    status: shownStatus(status, headers['x-should-retry'] === 'true', style),
    headers: ownHeaders(headers, style.errorFormat, request.id),
    body: JSON.stringify({ ...body, ...members }),
  };
}

/**
 * The outcome of a governed call as an answer. If the upstream committed or refused, it is the upstream's answer with
 * the gateway's headers added. If the call did not run or nobody knows the outcome, it is the answer of the decision.
 * @param mayReplay whether an answer that was kept may take the place of one that is not here
 */
export function outcomeAnswer(ports: Ports, result: RunResult, context: AnswerContext, mayReplay = true): ProxyAnswer {
  if (result.kind === 'problem') return problemAnswer(ports, inHeaders(result.problem), context.request, context.style);
  const { outcome } = result;
  const own = outcomeHeaders(outcome);
  addProxyHeaders(own, ports, outcome);
  if ((outcome.decision === 'committed' || outcome.decision === 'failed') && outcome.answer?.kind === 'http') {
    const { answer } = outcome;
    // Some headers belong to the status of the decision, but the status here is the upstream's.
    if (answer.status < 300) delete own['x-should-retry'];
    else own['x-should-retry'] ??= 'false';
    // The upstream's own says it in the way that its libraries read.
    if (answer.headers['retry-after'] !== undefined) delete own['retry-after'];
    const headers = upstreamHeaders(ports, answer, context);
    return {
      status: answer.status,
      headers: Object.assign(headers, withRetryHints(own)),
      body: answer.body,
      isUpstreams: true,
    };
  }
  // What people approved while the caller waited was sent by another request: its answer was kept.
  const isReplay = outcome.decision === 'duplicate_blocked' && context.onDuplicate === 'replay';
  if (mayReplay && (isReplay || outcome.decision === 'committed') && outcome.result !== null) {
    const replayed = replay(outcome.result, (headers) =>
      returnedHeaders(headers, { ...context, upstreamUrl: ports.upstream(context.upstream)?.url ?? '' }),
    );
    if (replayed !== null) {
      const { 'x-should-retry': _, ...kept } = own;
      const shown = isReplay ? { ...kept, 'idempotency-replayed': 'true' } : kept;
      return { ...replayed, headers: { ...replayed.headers, ...shown }, isUpstreams: true };
    }
  }
  const rendered = renderOutcome(outcome, {
    publicUrl: ports.settings().publicUrl,
    receiptView: ports.receiptView,
    forAgent: context.principal.kind === 'agent' || context.principal.kind === 'profile',
    hasProbe: (tool) => ports.catalog().tool(tool)?.probe !== undefined,
  });
  const headers: Record<string, string> = { 'content-type': 'application/json; charset=utf-8', ...own };
  // Committed, but there is no answer to pass on: none was kept, or it is not HTTP.
  if (outcome.decision === 'committed')
    return {
      status: rendered.status,
      headers,
      body: JSON.stringify({ ...rendered.body, ...successMembers(context.style.errorFormat) }),
    };
  const decided = outcome.decision === 'pending_approval' ? context.pendingStatus : rendered.status;
  if (decided >= 300) headers['x-should-retry'] ??= 'false';
  const { code } = outcome.reason;
  const message = messageOf(outcome);
  const docs = `${ports.settings().publicUrl}/docs/errors/${code}`;
  const shown = { decision: outcome.decision, status: decided, code, message, docs };
  const members = errorMembers(shown, context.style.errorFormat);
  const status = shownStatus(decided, headers['x-should-retry'] === 'true', context.style);
  const sent = ownHeaders(headers, context.style.errorFormat, context.request.id);
  const body = { ...rendered.body, ...members };
  const text = JSON.stringify(body);
  if (Buffer.byteLength(text) <= MOST_BYTES || 'receipt' in body || 'result' in body)
    return { status, headers: sent, body: text };
  return { status, headers: sent, body: shortened(rendered.body, shown, context.style) };
}

/** The most bytes of an answer that has neither a receipt nor a result: agents read it, and it costs tokens. */
const MOST_BYTES = 1_500;

/** An answer whose texts are cut until it is short, with as many entries of its lists as have room. */
function shortened(body: JsonObject, shown: ShownError, { errorFormat }: ErrorStyle): string {
  const { budgets, mismatches, reason, target, idempotency_key: key, ...rest } = body;
  let text = '';
  for (const most of [300, 150, 80, 20]) {
    const cut = (long: Json | undefined): string => cutText(typeof long === 'string' ? long : '', most);
    const some = (name: string, list: Json | undefined): JsonObject =>
      Array.isArray(list) ? { [name]: list.slice(0, Math.floor(most / 100)) } : {};
    text = JSON.stringify({
      ...rest,
      target: cut(target),
      idempotency_key: cut(key),
      ...(isJsonObject(reason) ? { reason: { ...reason, message: cut(reason['message']) } } : {}),
      ...some('budgets', budgets),
      ...some('mismatches', mismatches),
      truncated: true,
      ...errorMembers({ ...shown, message: cut(shown.message) }, errorFormat),
    });
    if (Buffer.byteLength(text) <= MOST_BYTES) break;
  }
  return text;
}

/** The reason of a call that waits is the summary for its approvers: as an error it would not say what is wrong. */
function messageOf(outcome: RunOutcome): string {
  const { message } = outcome.reason;
  return outcome.decision === 'pending_approval' ? `Waits for approval ${outcome.approval.id}: ${message}` : message;
}

/** The core calls it `agent_id`, a member of the body. At this door it is a header. */
function inHeaders(problem: Problem): Problem {
  if (!problem.errors.some(({ path }) => path === '/agent_id')) return problem;
  const message = 'is required: this key belongs to no agent, so name the one that acts';
  const errors = problem.errors.map((fault) =>
    fault.path === '/agent_id' ? { path: '/headers/svc-agent-id', message } : fault,
  );
  return { ...problem, errors };
}

/**
 * The headers of an answer that is passed on: what is known of the effect before it is over. The address of the receipt
 * answers once there is one.
 */
export function passedOnHeaders(
  ports: Ports,
  head: AnswerHead,
  effect: Parameters<Listen>[0],
  context: AnswerContext,
): ProxyAnswer['headers'] {
  return {
    ...upstreamHeaders(ports, head, context),
    'svc-effect-id': effect.id,
    'svc-receipt': receiptAddress(ports, effect.workspace, effect.id),
  };
}

function receiptAddress(ports: Ports, workspace: string, effectId: string): string {
  return `${ports.settings().publicUrl}/v1/workspaces/${workspace}/effects/${effectId}/receipt`;
}

/** Says in headers what the body of a decision would say. */
function addProxyHeaders(headers: Record<string, string>, ports: Ports, outcome: RunOutcome): void {
  if (outcome.decision === 'committed' || outcome.decision === 'duplicate_blocked') {
    headers['svc-receipt'] = receiptAddress(ports, outcome.workspace, outcome.effectId);
  }
  if (outcome.observed !== null) headers['svc-observed'] = outcome.observed.would;
  if ('settlement' in outcome && outcome.settlement === 'pending') headers['svc-settlement'] = 'pending';
  if (outcome.decision === 'committed' && outcome.responseTruncated) headers['svc-response-truncated'] = 'true';
}

function upstreamHeaders(ports: Ports, answer: AnswerHead, context: AnswerContext): Record<string, string | string[]> {
  const { prefix, origin, foreignLinks } = context;
  const upstreamUrl = ports.upstream(context.upstream)?.url ?? '';
  return readHeaders(answer.headers, { prefix, origin, foreignLinks, upstreamUrl });
}

/** A stored answer, as it was given; `null` where only a part of it is kept, or it was no HTTP answer. */
function replay(
  result: KeptResult,
  returned: (headers: KeptHttpResult['headers']) => ProxyAnswer['headers'],
): ProxyAnswer | null {
  if (result.kind !== 'http' || result.truncated) return null;
  const headers = returned(result.headers);
  const { body } = result;
  switch (body.kind) {
    case 'json':
      return { status: result.status, headers, body: JSON.stringify(body.value) };
    case 'text':
      return { status: result.status, headers, body: body.value };
    case 'base64':
      return { status: result.status, headers, body: Buffer.from(body.value, 'base64') };
    case 'passed_on':
    case 'sealed':
      return null;
  }
}

/** Headers about the exact bytes of a body: they do not hold of one that was rewritten. */
export const OF_THE_BYTES: readonly string[] = [
  'accept-ranges',
  'content-digest',
  'content-length',
  'content-md5',
  'digest',
  'repr-digest',
];

/** Makes addresses in fields of an answer the gateway's own. */
export function ownFields(context: LinkContext): (address: string) => string {
  return (address) => ownField(address, context);
}

/**
 * The answer to a governed call, with the links in its JSON leading to the gateway. Where they cannot be read, the
 * caller gets the decision instead: the action may have happened, and nobody knows where the links lead.
 */
export function linkedAnswer(
  ports: Parameters<typeof outcomeAnswer>[0],
  result: RunResult,
  context: AnswerContext,
): ProxyAnswer | Promise<ProxyAnswer> {
  const answer = outcomeAnswer(ports, result, context);
  return context.links.length === 0 || answer.isUpstreams === undefined || !isJson(answer.headers['content-type'])
    ? answer
    : withOwnLinks(ports, result, context, answer);
}

async function withOwnLinks(
  ports: Parameters<typeof outcomeAnswer>[0],
  result: RunResult,
  context: AnswerContext,
  answer: ProxyAnswer,
): Promise<ProxyAnswer> {
  const { headers, body } = answer;
  try {
    const coding = String(headers['content-encoding'] ?? 'identity').toLowerCase();
    if (coding !== 'identity') throw new LinksUnreadable('it is compressed');
    const upstreamUrl = ports.upstream(context.upstream)?.url ?? '';
    const bytes = typeof body === 'string' ? Buffer.from(body, 'utf8') : body;
    const rewritten = await rewriteLinks(bytes, context.links, ownFields({ ...context, upstreamUrl }));
    const kept = Object.entries(headers).filter(([name]) => !OF_THE_BYTES.includes(name));
    return { ...answer, headers: Object.fromEntries(kept), body: rewritten };
  } catch (error) {
    if (!(error instanceof LinksUnreadable)) throw error;
    return outcomeAnswer(ports, withoutAnswer(result), context, false);
  }
}

function withoutAnswer(result: RunResult): RunResult {
  if (result.kind !== 'outcome') return result;
  const { outcome } = result;
  return outcome.decision === 'committed' || outcome.decision === 'failed'
    ? { kind: 'outcome', outcome: { ...outcome, answer: null } }
    : result;
}
