import { type Static, Type } from 'typebox';
import { ledgerActor } from '../effects/model/principal.ts';
import type { ClaimRecord } from '../effects/model/claim.ts';
import { splitTemplate } from '../effects/model/param-template.ts';
import { type Caller as PolicyCaller, couldClaim, couldPermitCaller } from '../policy/could-permit.ts';
import { type ApiApp, type Caller, guarded } from './app.ts';
import { actingAgent, callerOf, mayBeSeen } from './caller.ts';
import type { Lists } from './lists.ts';
import type { ApiPorts } from './ports.ts';
import { refuse, refuseFaults } from './problem.ts';
import { timeToWire } from '../effects/wire/time.ts';
import { AgentId, answers, closed, InWorkspace, List, Nullable, record, Time, WithId } from './schema.ts';

const CLAIMS = '/v1/workspaces/:ws/claims';
/** The longest time for which a claim or a reservation may be taken, s. */
export const MAX_TTL_S = 3600;
const RENEWAL_S = 300;

/** How long a claim or reservation lasts. */
export const Ttl = Type.Integer({ minimum: 1, maximum: MAX_TTL_S, description: 'Seconds from now.' });

const Claim = record('Claim', 'An exclusive right of an agent to act on a target, for a limited time.', {
  id: Type.String(),
  workspace: Type.String(),
  target: Type.String(),
  agent_id: AgentId,
  created_at: Time,
  expires_at: Time,
  running_effects: List(Type.String(), 'Effects that run under it, and extend it while they do.'),
  extended_until: Nullable(Time),
});
const Claims = Type.Object({ claims: List(Claim) });

/** `…/claims`: take, list, renew, release. */
export function addClaimRoutes(app: ApiApp, ports: ApiPorts, lists: Lists): void {
  addTakeRoute(app, ports);
  addListRoute(app, ports, lists);
  addRenewRoute(app, ports);
  addReleaseRoute(app, ports);
}

function addTakeRoute(app: ApiApp, ports: ApiPorts): void {
  const { store } = ports;
  const takeClaim = guarded('claims.write', {
    operationId: 'takeClaim',
    summary: 'Take an exclusive right on a target, for a time',
    description:
      'Only on targets that a tool which the agent may call can name by its template, or a rule for it by a claim. A target that another agent holds is a 409 `claim_held`, one claim more than an agent or a key may hold a 409 `too_many_claims`.',
    params: InWorkspace,
    body: closed({
      target: Type.String({ minLength: 1, maxLength: 1024, examples: ['payment:pay_1'] }),
      agent_id: Type.Optional(AgentId),
      ttl_s: Ttl,
    }),
    response: answers({ 201: Claim }),
  });
  app.post(CLAIMS, takeClaim, async (request, reply) => {
    const { ws } = request.params;
    const { target, agent_id, ttl_s } = request.body;
    const caller = callerOf(request);
    const agentId = actingAgent(caller, agent_id, ws, ports.directory);
    if (!isTargetOfCallable(target, whoCalls(caller, agentId, ws, target, ports), caller, ports))
      throw refuseFaults([{ path: '/target', message: 'is the target of no tool that the agent may call' }]);
    const result = await store.takeClaim({
      id: ports.newId('clm'),
      workspace: ws,
      target,
      agentId,
      keyId: caller.principal.keyId,
      ttlMs: ttl_s * 1000,
      actor: ledgerActor(caller.principal),
    });
    switch (result.kind) {
      case 'made':
        return reply.code(201).send(claimToWire(result.claim));
      case 'held':
        throw refuse('claim_held', `Another agent holds a claim on ${target}.`, {
          retryAfterMs: Math.max(1000, result.claim.expiresAt - store.now()),
          // Agents are not told which other agent has it.
          members: { target, ...(caller.view.kind === 'own' ? {} : { claim: claimToWire(result.claim) }) },
        });
      case 'too_many':
        throw refuse(
          'too_many_claims',
          `One ${result.of} holds at most ${result.limit} claims at a time. Release one, or wait until one is over.`,
          { members: { of: result.of, limit: result.limit } },
        );
    }
  });
}

function addListRoute(app: ApiApp, { store }: ApiPorts, lists: Lists): void {
  const listClaims = guarded('claims.read', {
    operationId: 'listClaims',
    summary: 'List claims in force',
    params: InWorkspace,
    response: answers({ 200: Claims }),
  });
  app.get(CLAIMS, listClaims, async (request, reply) => {
    const caller = callerOf(request);
    return lists.make(caller, async () => {
      const claims = await store.claims(request.params.ws);
      const seen = claims.filter(({ agentId }) => mayBeSeen(caller, agentId));
      return lists.send(reply, Claims, 'claims', seen, claimToWire, {});
    });
  });
}

function addRenewRoute(app: ApiApp, ports: ApiPorts): void {
  const { store } = ports;
  const renewClaim = guarded('claims.write', {
    operationId: 'renewClaim',
    summary: 'Renew a claim',
    params: WithId,
    body: closed({ ttl_s: Type.Optional({ ...Ttl, description: `Seconds from now; ${RENEWAL_S} if absent.` }) }),
    response: answers({ 200: Claim }),
  });
  app.post(`${CLAIMS}/:id/renew`, renewClaim, async (request) => {
    const { ws, id } = request.params;
    const caller = callerOf(request);
    await visibleClaim(ports, caller, ws, id);
    const ttlMs = (request.body.ttl_s ?? RENEWAL_S) * 1000;
    const claim = await store.renewClaim(ws, id, ttlMs, ledgerActor(caller.principal));
    if (claim === null) throw noSuchClaim();
    return claimToWire(claim);
  });
}

function addReleaseRoute(app: ApiApp, ports: ApiPorts): void {
  const { store } = ports;
  const releaseClaim = guarded('claims.write', {
    operationId: 'releaseClaim',
    summary: 'Release a claim',
    params: WithId,
    response: answers({ 200: Claim }),
  });
  app.delete(`${CLAIMS}/:id`, releaseClaim, async (request) => {
    const { ws, id } = request.params;
    const caller = callerOf(request);
    await visibleClaim(ports, caller, ws, id);
    const claim = await store.releaseClaim(ws, id, ledgerActor(caller.principal));
    if (claim === null) throw noSuchClaim();
    return claimToWire(claim);
  });
}

async function visibleClaim(ports: ApiPorts, caller: Caller, workspace: string, id: string): Promise<void> {
  const claim = await ports.store.claim(workspace, id);
  if (claim === null || !mayBeSeen(caller, claim.agentId)) throw noSuchClaim();
}

function noSuchClaim() {
  return refuse('not_found', 'There is no such claim here, or its time is over.');
}

/** What policy knows about the calls that an agent would make with this key. */
export function whoCalls(
  { principal }: Caller,
  agentId: string,
  workspace: string,
  target: string | null,
  { directory }: Pick<ApiPorts, 'directory'>,
): PolicyCaller {
  const agent = directory.agent(workspace, agentId);
  if (agent === null) throw refuseFaults([{ path: '/agent_id', message: 'names no registered agent' }]);
  const profile = principal.kind === 'profile' ? principal.profile : null;
  const key = { id: principal.keyId, kind: principal.kind, profile, user: principal.user };
  return { agent, key, workspace, target };
}

/**
 * Whether the agent may call some tool that could have this target, with this key and under this policy. A target that
 * only a request names is nobody's to claim: who could claim any would keep all others from theirs.
 */
function isTargetOfCallable(target: string, who: PolicyCaller, caller: Caller, ports: ApiPorts): boolean {
  const { allowedTools } = caller.principal;
  const { set } = ports.policies();
  return ports
    .catalog()
    .tools()
    .some(
      (tool) =>
        (allowedTools === null || allowedTools.includes(tool.name)) &&
        couldPermitCaller(set, tool, who) &&
        (target === tool.name ||
          (tool.target !== null && fitsTemplate(tool.target, target)) ||
          couldClaim(set, tool, who, target)),
    );
}

/** What a value that is not the last of a target is written with: `encodeURIComponent` leaves nothing else. */
const ENCODED = /^[A-Za-z0-9\-_.!~*'()%]+$/;

/** Whether a template can produce a text: its literal parts in order, and between them what values are written as. */
function fitsTemplate(template: string, text: string): boolean {
  const literals = splitTemplate(template).filter((_, index) => index % 2 === 0);
  const [first = '', ...rest] = literals;
  const last = rest.pop();
  if (last === undefined) return template === text;
  if (!text.startsWith(first) || !text.endsWith(last)) return false;
  let at = first.length;
  for (const literal of rest) {
    const found = text.indexOf(literal, at + 1);
    if (found === -1 || !ENCODED.test(text.slice(at, found))) return false;
    at = found + literal.length;
  }
  const value = text.slice(at, text.length - last.length);
  return value !== '' && (last === '' || ENCODED.test(value));
}

function claimToWire(claim: ClaimRecord): Static<typeof Claim> {
  return {
    id: claim.id,
    workspace: claim.workspace,
    target: claim.target,
    agent_id: claim.agentId,
    created_at: timeToWire(claim.createdAt),
    expires_at: timeToWire(claim.expiresAt),
    running_effects: claim.runningEffects,
    extended_until: claim.extendedUntil > claim.expiresAt ? timeToWire(claim.extendedUntil) : null,
  };
}
