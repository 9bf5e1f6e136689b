import type { Call, Proposal } from './call.ts';
import { fingerprint, type FingerprintedAction, hasAny, keyFor } from './fingerprint.ts';
import { INSTALLATION } from '../model/ledger.ts';
import { canonicalJson } from '../../json/text.ts';
import { isJsonArray, isJsonObject, type Json } from '../../json/value.ts';
import type { EffectActor, Stage } from '../model/effect.ts';
import type { Authorized, EffectPorts, SealedParams } from '../ports.ts';
import { keyFactsOf, type Principal } from '../model/principal.ts';
import { type Problem, problem, type RequestFault, type RunRequest } from '../model/run-request.ts';
import { readsState, type Tool } from '../model/tool.ts';
import type { Deny } from '../model/verdict.ts';

/** A request after the checks that come before policy. */
export type Checked =
  | { readonly kind: 'call'; readonly call: Call }
  | { readonly kind: 'problem'; readonly problem: Problem }
  /** Refused by permission, identity, or because the tool is not declared; still recorded. */
  | { readonly kind: 'denied'; readonly denied: DeniedCall };

/** A refusal before policy, with what is known about the call. */
export interface DeniedCall {
  readonly deny: Deny;
  /** The workspace whose ledger records it: that of the key. */
  readonly workspace: string;
  readonly agentId: string;
  readonly target: string;
  readonly idempotencyKey: string;
  readonly fingerprint: string;
  /** The stages before the refusal, and the refusal itself. */
  readonly stages: readonly Stage[];
}

const COMMON_ACTION_TYPES = ['mcp.tool_call', 'http.request'];

/**
 * Checks a request: who may act, whether the tool is declared, whether params and target are valid. It neither fills in
 * nor coerces values: what is evaluated is what is sent.
 */
export function checkCall(
  ports: EffectPorts,
  request: RunRequest,
  endpoint: 'effects.run' | 'effects.preview',
): Checked {
  const { principal, workspace } = request;
  const startedAt = ports.store.now();
  const begun = ports.elapsed();
  const authorized = ports.authorize(principal, { endpoint, workspace, tool: request.tool, agentId: request.agentId });
  if (authorized.kind === 'invalid')
    return problem('invalid_request', 'The request does not say which agent acts.', null, [authorized.fault]);
  const stages = authorizationStages(authorized, principal, startedAt, ports.elapsed() - begun);
  const policyVersion = ports.policyVersion();
  if (authorized.kind === 'denied') {
    const trace = { policyVersion, matched: [], shadow: [], observed: null };
    const { decision, reason } = authorized;
    return denied(ports, request, null, { kind: 'deny', decision, reason, trace }, stages);
  }
  const catalog = ports.catalog();
  const tool = catalog.tool(request.tool);
  if (tool === null) {
    const reason = {
      code: 'tool_not_declared',
      message: `The tool ${request.tool} is not declared in the gateway’s configuration.`,
    } as const;
    const trace = { policyVersion, matched: [], shadow: [], observed: null };
    const refused: Stage = { stage: 'validate', status: 'refused', startedAt, durationMs: null, detail: reason.code };
    const deny: Deny = { kind: 'deny', decision: 'denied_policy', reason, trace };
    return denied(ports, request, authorized.agent.id, deny, [...stages, refused]);
  }
  const misfits = catalog.check(tool, request.params);
  // A request that is built from params needs valid params. A proxied request in observe mode is sent on unchanged, so
  // faults are only reported.
  const isReported = request.proxied !== null && ports.policyMode() === 'observe';
  const faults = [...(isReported ? [] : misfits), ...otherFaults(tool, request)];
  if (faults.length > 0)
    return problem('invalid_request', `The call does not fit the tool ${tool.name}.`, null, faults);
  const target = (misfits.length > 0 ? null : catalog.target(tool, request.params)) ?? request.target ?? tool.name;
  if (request.target !== null && request.target !== target && request.target !== tool.name) {
    const fault = {
      path: '/target',
      message: `The params name the target ${target}. Leave target out, or send this one.`,
    };
    return problem('target_mismatch', 'The target is not the one the params name.', null, [fault]);
  }
  const action: FingerprintedAction = {
    workspace,
    agentId: authorized.agent.id,
    // The action type of the tool, so that the same key at another door means the same action.
    actionType: tool.actionType,
    tool: tool.name,
    target,
    params: request.params,
    headers: request.headers.bound,
  };
  const key = ports.secrets.fingerprintKey(workspace);
  const paramsText = canonicalJson(request.params);
  const printed = fingerprint(key, action, paramsText);
  const { idempotencyKey } = request;
  const checkedMs = ports.elapsed() - begun;
  const call: Call = {
    workspace,
    agent: authorized.agent,
    tool,
    target,
    params: request.params,
    paramsText,
    headers: request.headers,
    idempotencyKey: keyFor(idempotencyKey, printed, startedAt),
    generationMs:
      typeof idempotencyKey === 'object' && 'generationMs' in idempotencyKey ? idempotencyKey.generationMs : null,
    fingerprint: printed,
    stateCheck: request.stateCheck,
    claimId: request.claimId,
    reservationId: request.reservationId,
    metadata: request.metadata,
    actor: actorOf(principal, authorized.agent.id, authorized.agent.owner, request.via),
    key: keyFactsOf(principal),
    proposal: new NewProposal(ports, workspace, printed, request),
    proxied: request.proxied,
    files: request.files,
    listen: request.listen ?? null,
    requestIp: request.requestIp,
    faults: misfits,
    stages: [...request.stages, ...stages, validated(misfits, startedAt, Math.round(checkedMs))],
    checkedMs,
  };
  return { kind: 'call', call };
}

function validated([fault]: readonly RequestFault[], startedAt: number, durationMs: number): Stage {
  return {
    stage: 'validate',
    status: fault === undefined ? 'passed' : 'failed',
    startedAt,
    durationMs,
    detail: fault === undefined ? null : `${fault.path} ${fault.message}`.slice(0, 200),
  };
}

/** Faults other than those in the shape of the params. */
function otherFaults(tool: Tool, request: RunRequest): readonly RequestFault[] {
  const faults: RequestFault[] = [];
  const mark = markOf(request.principal.keyId);
  if (mark !== null) {
    const { params, idempotencyKey, target, metadata, headers } = request;
    if (holds(params, mark))
      faults.push({ path: '/params', message: 'hold the key that this call is made with, which must not go on' });
    if (typeof idempotencyKey === 'string' && idempotencyKey.includes(mark) && textHolds(idempotencyKey, mark))
      faults.push(keptKey('/idempotency_key'));
    if (target !== null && holds(target, mark)) faults.push(keptKey('/target'));
    if (metadata !== null && holds(metadata, mark)) faults.push(keptKey('/metadata'));
    if (holds(headers.sent, mark)) faults.push(keptKey('/headers'));
  }
  if (
    request.actionType !== null &&
    request.actionType !== tool.actionType &&
    !COMMON_ACTION_TYPES.includes(request.actionType)
  ) {
    faults.push({
      path: '/action_type',
      message: `Use ${[...new Set([...COMMON_ACTION_TYPES, tool.actionType])].join(', ')}, or leave it out.`,
    });
  }
  if (request.stateCheck !== null && !readsState(tool)) {
    faults.push({
      path: '/state_check',
      message: `The tool ${tool.name} declares no request that reads its live state.`,
    });
  }
  return faults;
}

function keptKey(path: string): RequestFault {
  return { path, message: 'holds the key that this call is made with, which would be kept and shown' };
}

/** Permission and identity are checked together. The first of the two stages carries the time of both. */
function authorizationStages(
  authorized: Exclude<Authorized, { kind: 'invalid' }>,
  { keyId }: Principal,
  startedAt: number,
  tookMs: number,
): readonly Stage[] {
  const durationMs = Math.round(tookMs * 1000) / 1000;
  const refusal = authorized.kind === 'denied' ? authorized : null;
  if (refusal?.decision === 'denied_permission')
    return [{ stage: 'permission', status: 'refused', startedAt, durationMs, detail: refusal.reason.code }];
  return [
    { stage: 'permission', status: 'passed', startedAt, durationMs, detail: keyId },
    authorized.kind === 'agent'
      ? { stage: 'identity', status: 'passed', startedAt, durationMs: null, detail: authorized.agent.id }
      : { stage: 'identity', status: 'refused', startedAt, durationMs: null, detail: authorized.reason.code },
  ];
}

/** @param authorized the agent that the key may act for; `null` where it may act for none */
function denied(
  ports: EffectPorts,
  request: RunRequest,
  authorized: string | null,
  deny: Deny,
  stages: readonly Stage[],
): Checked {
  const workspace = workspaceOf(request.principal) ?? INSTALLATION;
  // The request can name any agent. A key that is bound to an agent is refused as that agent, whatever the request
  // names. Another key counts for the named agent only where it may act for it; otherwise the key itself was refused.
  const agentId = agentOf(request.principal) ?? authorized ?? '';
  const target = request.target ?? request.tool;
  const key = ports.secrets.fingerprintKey(workspace);
  const action: FingerprintedAction = {
    workspace,
    agentId,
    actionType: request.actionType ?? 'mcp.tool_call',
    tool: request.tool,
    target,
    params: request.params,
    headers: request.headers.bound,
  };
  const { idempotencyKey } = request;
  const printed = fingerprint(key, action);
  return {
    kind: 'denied',
    denied: {
      deny,
      workspace,
      agentId,
      target,
      stages,
      fingerprint: printed,
      idempotencyKey: keyFor(idempotencyKey, printed, ports.store.now()),
    },
  };
}

function workspaceOf(principal: Principal): string | null {
  return principal.kind === 'administrative' ? null : principal.workspace;
}

function agentOf(principal: Principal): string | null {
  return principal.kind === 'agent' || principal.kind === 'profile' ? principal.agentId : null;
}

/**
 * Whether a text in a value contains the key that the call was made with. The key must not be sent to an upstream, and
 * must not be kept.
 * @param keyId `key_` and the key's handle, which the key itself contains before its secret
 */
export function holdsOwnKey(value: Json, keyId: string): boolean {
  const mark = markOf(keyId);
  return mark !== null && holds(value, mark);
}

/** What stands in a key before its secret; `null` for an id without a handle. */
function markOf(keyId: string): string | null {
  return keyId.length > 'key_'.length ? `_${keyId.slice('key_'.length)}` : null;
}

function holds(value: Json, mark: string): boolean {
  if (typeof value === 'string') return value.includes(mark) && textHolds(value, mark);
  if (isJsonArray(value)) {
    for (const element of value) if (holds(element, mark)) return true;
    return false;
  }
  if (!isJsonObject(value)) return false;
  for (const name of Object.keys(value)) {
    const member = value[name];
    if (name.includes(mark) && textHolds(name, mark)) return true;
    // No call for each of the texts and numbers that most members are.
    if (typeof member === 'string' && !member.includes(mark)) continue;
    if (member !== undefined && typeof member !== 'number' && holds(member, mark)) return true;
  }
  return false;
}

function textHolds(text: string, mark: string): boolean {
  for (let at = text.indexOf(mark); at !== -1; at = text.indexOf(mark, at + 1)) {
    // The id alone (`key_…`) is not secret. In a key, the secret follows it.
    if (/svc_[a-z]+$/.test(text.slice(Math.max(0, at - 12), at)) && /^[0-9A-Za-z]/.test(text.slice(at + mark.length)))
      return true;
  }
  return false;
}

type Proposed = Pick<RunRequest, 'params' | 'headers' | 'stateCheck' | 'claimId' | 'reservationId' | 'requestIp'>;

type Ports = Pick<EffectPorts, 'newId' | 'newNonce'> & {
  readonly secrets: Pick<EffectPorts['secrets'], 'newSalts' | 'seal'>;
};

/** Ids, nonce and sealed params for the effect that this request may become. */
export class NewProposal implements Proposal {
  readonly effectId: string;
  readonly nonce: string;
  readonly dispatches = null;
  readonly changed = null;
  private apr: string | null = null;
  private plain: SealedParams | null = null;
  private seal: string | null = null;
  private files: NonNullable<SealedParams['files']> | null = null;
  private sealOfAll: string | null = null;
  private readonly ports: Ports;
  private readonly workspace: string;
  private readonly fingerprint: string;
  private readonly call: Proposed;

  constructor(ports: Ports, workspace: string, fingerprint: string, call: Proposed) {
    this.effectId = ports.newId('eff');
    this.nonce = ports.newNonce();
    this.ports = ports;
    this.workspace = workspace;
    this.fingerprint = fingerprint;
    this.call = call;
  }

  approvalId(): string {
    this.apr ??= this.ports.newId('apr');
    return this.apr;
  }

  sealedParams(): SealedParams {
    if (this.plain !== null) return this.plain;
    const { params, headers, stateCheck, claimId, reservationId, requestIp } = this.call;
    const salts = this.ports.secrets.newSalts();
    this.plain = hasAny(headers.sent)
      ? { params, salts, stateCheck, claimId, reservationId, requestIp, headers }
      : { params, salts, stateCheck, claimId, reservationId, requestIp };
    return this.plain;
  }

  sealed(): string {
    const { workspace, effectId, fingerprint } = this;
    this.seal ??= this.ports.secrets.seal(this.sealedParams(), { workspace, effectId, fingerprint });
    return this.seal;
  }

  sealedWithFiles(): string | null {
    const { workspace, effectId, fingerprint, files } = this;
    if (files === null) return null;
    this.sealOfAll ??= this.ports.secrets.seal({ ...this.sealedParams(), files }, { workspace, effectId, fingerprint });
    return this.sealOfAll;
  }

  keepFiles(files: NonNullable<SealedParams['files']>): void {
    this.files = files;
  }
}

/** Who makes the request, as the effect's record keeps it. */
export function actorOf(
  principal: Principal,
  agentId: string,
  agentOwner: string | null,
  via: RunRequest['via'],
): EffectActor {
  return {
    agentId,
    agentOwner,
    keyId: principal.keyId,
    keyKind: principal.kind,
    user: principal.user,
    keyMadeBy: principal.madeBy,
    via,
  };
}
