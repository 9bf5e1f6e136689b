import { type Static, Type } from 'typebox';
import type { FastifyReply } from 'fastify';
import { DECISIONS } from '../effects/model/decision.ts';
import type { EffectRecord } from '../effects/model/effect.ts';
import { isJsonArray, isJsonObject, type JsonObject } from '../json/value.ts';
import { ledgerEventToWire } from '../effects/model/ledger.ts';
import { type RenderedOutcome, renderOutcome } from '../effects/run/render.ts';
import { previewToWire } from '../effects/wire/preview.ts';
import type { RequestFault, RunRequest } from '../effects/model/run-request.ts';
import type { EffectFilter } from '../effects/store.ts';
import { turnOfOthers } from '../effects/run/reading-turns.ts';
import { type ApiApp, type Caller, guarded } from './app.ts';
import { readCalls } from '../effects/wire/calls.ts';
import { callerOf, mayBeSeen } from './caller.ts';
import { effectToWire, probeToWire } from '../effects/wire/effect.ts';
import { effectFor, withheldBecause } from '../effects/wire/withheld.ts';
import { type Lists, PAGE_QUERY, pageOf, TIME_QUERY, timesOf, WHO_QUERY } from './lists.ts';
import { PreviewBody, RunBody, runRequest, takeKeyFromHeader } from './run-body.ts';
import { runStages } from '../effects/wire/run-stages.ts';
import type { ApiPorts } from './ports.ts';
import { refuse, Refused, refuseFaults } from './problem.ts';
import { DECIDED, Effect, Effects, EffectWithLedger, Preview, ReceiptAnswer, Run, STATES } from './effect-answers.ts';
import { AgentId, answers, AnyValue, closed, decisions, InWorkspace, record, Tool, USER_ID, WithId } from './schema.ts';
import {
  commitmentIn,
  type Disclosure,
  disclosureText,
  isOneParam,
  isOpenedByOne,
  onlyFields,
  paramsAmong,
} from '../receipts/commitments.ts';

const WS = '/v1/workspaces/:ws';

const ListQuery = closed({
  state: Type.Optional(Type.Enum([...STATES])),
  decision: Type.Optional(Type.Enum([...DECISIONS])),
  tool: Type.Optional(Tool),
  agent_id: Type.Optional(AgentId),
  target: Type.Optional(Type.String({ minLength: 1, maxLength: 1000 })),
  rule: Type.Optional(Type.String({ minLength: 1, maxLength: 200, description: 'A rule of policy that matched.' })),
  ...WHO_QUERY,
  approver: Type.Optional(
    Type.String({ pattern: USER_ID, description: 'A user who approved or rejected it.', examples: ['maria'] }),
  ),
  ...TIME_QUERY,
  params: Type.Optional(Type.Enum(['true'], { description: '`true`: with the params of each call.' })),
  ...PAGE_QUERY,
});

const ReceiptQuery = closed({
  disclosure: Type.Optional(Type.Enum(['1'], { description: 'Adds what opens the commitments.' })),
  fields: Type.Optional(
    Type.String({
      pattern: '^[^,]{1,300}(?:,[^,]{1,300}){0,49}$',
      description:
        'With `disclosure=1`: only these commitments are opened. `params.NAME` opens one param, where the receipt commits to each (`sm1:`); in a name `,` is written `%2C`, and `%` `%25`.',
      examples: ['target,approval.0.comment', 'params.amount'],
    }),
  ),
});

const ResolveBody = closed({
  outcome: Type.Enum(['happened', 'not_happened']),
  evidence: Type.Optional(AnyValue('What the outcome rests on; stands in ledger and receipt.')),
  comment: Type.Optional(Type.String({ maxLength: 1000 })),
  force: Type.Optional(Type.Boolean({ description: '`not_happened` before the quiet time is over.' })),
});

const Probed = record('Probed', null, {
  probe: Type.Object({
    said: Type.Enum(['happened', 'not_happened', 'unknown'], { description: 'What this reading shows.' }),
    settled: Type.Boolean({ description: 'Whether the effect is settled by it.' }),
    message: Type.String(),
    retry_after_ms: Type.Optional(Type.Integer({ description: 'When another reading can tell more.' })),
  }),
  effect: Effect,
});

/** `…/effects`: run, preview, list, get, receipt, run stages, resolve. */
export function addEffectRoutes(app: ApiApp, ports: ApiPorts, lists: Lists): void {
  addRunRoute(app, ports);
  addPreviewRoute(app, ports);
  addListRoute(app, ports, lists);
  addEffectRoute(app, ports, lists);
  addReceiptRoute(app, ports);
  addStagesRoute(app, ports);
  addResolveRoute(app, ports);
  addProbeRoute(app, ports);
}

function addRunRoute(app: ApiApp, ports: ApiPorts): void {
  app.addHook('preClose', async () => ports.preferredWait.end());
  const runEffect = guarded('effects.run', {
    operationId: 'runEffect',
    summary: 'Run an action',
    description: 'Runs the action at most once per idempotency key. The status follows the decision.',
    params: InWorkspace,
    body: RunBody,
    response: decisions(DECIDED),
  });
  app.post(`${WS}/effects`, { ...runEffect, preValidation: takeKeyFromHeader }, async (request, reply) => {
    const caller = callerOf(request);
    const call = runRequest(ports, request, caller, request.body, request.body.idempotency_key);
    const first = await ports.run(call);
    const held = ports.preferredWait.hold(request.raw, reply.raw, call, first);
    if (held !== null) reply.header('preference-applied', held.applied);
    const result = held === null ? first : await held.became;
    if (result.kind === 'problem') throw new Refused(result.problem, neverHappens(ports, call));
    return sendOutcome(reply, renderOutcome(result.outcome, renderContext(ports, caller)));
  });
}

function addPreviewRoute(app: ApiApp, ports: ApiPorts): void {
  const previewEffect = guarded('effects.preview', {
    operationId: 'previewEffect',
    summary: 'Say what the action would get now',
    description: 'Evaluates the action and writes nothing. Without an idempotency key it is judged as a new action.',
    params: InWorkspace,
    body: PreviewBody,
    response: answers({ 200: Preview }),
  });
  app.post(`${WS}/effects/preview`, { ...previewEffect, preValidation: takeKeyFromHeader }, async (request) => {
    const caller = callerOf(request);
    const call = runRequest(
      ports,
      request,
      caller,
      request.body,
      request.body.idempotency_key ?? `preview-${request.id}`,
    );
    const result = await ports.preview(call);
    if (result.kind === 'problem') throw new Refused(result.problem, {});
    return previewToWire(result, caller.view.kind === 'own');
  });
}

function addListRoute(app: ApiApp, ports: ApiPorts, lists: Lists): void {
  const listEffects = guarded('effects.read', {
    operationId: 'listEffects',
    summary: 'List effects, newest first',
    description: 'A page may be short though others follow: records are large.',
    params: InWorkspace,
    querystring: ListQuery,
    response: answers({ 200: Effects }),
  });
  app.get(`${WS}/effects`, listEffects, async (request, reply) => {
    const caller = callerOf(request);
    const filter = listFilter(request.query, caller);
    if (filter === null) return { effects: [], next_cursor: null };
    return lists.make(caller, async () => {
      const page = await ports.store.effects(request.params.ws, filter);
      const calls = request.query.params === 'true' ? readCalls(ports, caller.principal, 'list') : null;
      const render = (effect: EffectRecord) => ({ ...wireOf(effect, caller, ports), ...calls?.params(effect) });
      return lists.send(reply, Effects, 'effects', page.items, render, { next_cursor: page.next });
    });
  });
}

function addEffectRoute(app: ApiApp, ports: ApiPorts, lists: Lists): void {
  const getEffect = guarded('effects.read', {
    operationId: 'getEffect',
    summary: 'One action and its ledger events',
    params: WithId,
    response: answers({ 200: EffectWithLedger }),
  });
  app.get(`${WS}/effects/:id`, getEffect, async (request, reply) => {
    const { ws, id } = request.params;
    const caller = callerOf(request);
    const effect = await visibleEffect(ports, caller, ws, id);
    const [ledger, approval] = await Promise.all([
      ports.store.effectLedgerInTurns(ws, id),
      'approvalId' in effect.life ? ports.store.approval(ws, effect.life.approvalId) : null,
    ]);
    const params = readCalls(ports, caller.principal, 'page').params(effect);
    const shown = { ...wireOf(effect, caller, ports, approval), ...params };
    // An effect that is asked for again and again has many events.
    return lists.send(reply, EffectWithLedger, 'ledger', ledger, ledgerEventToWire, { effect: shown });
  });
}

function addReceiptRoute(app: ApiApp, ports: ApiPorts): void {
  const getReceipt = guarded('effects.read', {
    operationId: 'getReceipt',
    summary: 'The signed receipt',
    description:
      '`Accept: application/jose` gives the bare JWS. `disclosure=1` gives `receipt`, and in `disclosure` the salts and values that open its commitments, to a key without profile that may call the tool.',
    params: WithId,
    querystring: ReceiptQuery,
    response: answers({ 200: ReceiptAnswer }),
  });
  app.get(`${WS}/effects/:id/receipt`, getReceipt, async (request, reply) => {
    const { ws, id } = request.params;
    const { view } = callerOf(request);
    const receipt = await ports.store.receipt(ws, id);
    if (receipt === null) {
      await visibleEffect(ports, callerOf(request), ws, id);
      throw refuse('receipt_not_issued', 'Receipts are issued for committed effects; this one is not.');
    }
    const shown = ports.receipts.view(receipt.jws);
    // The receipt may be kept longer than the record, so the agent is taken from the receipt.
    const actor = shown['actor'];
    if (view.kind === 'own' && !(isJsonObject(actor) && actor['agent_id'] === view.agentId)) throw noSuchEffect();
    if (request.query.disclosure === '1') {
      mayReadParams(callerOf(request), shown);
      const named = isJsonArray(shown['approval']) ? shown['approval'][0] : undefined;
      const approvalId = isJsonObject(named) && typeof named['id'] === 'string' ? named['id'] : null;
      const [effect, approval] = await Promise.all([
        ports.store.effect(ws, id),
        typeof approvalId === 'string' ? ports.store.approval(ws, approvalId) : null,
      ]);
      const begun = performance.now();
      const isOpen = effect?.life.state === 'committed';
      const opened = isOpen ? ports.receipts.disclosure(effect, receipt.jws, approval) : null;
      const fields = request.query.fields?.split(',').map(decodedField) ?? null;
      if (opened !== null && fields !== null) mayBeOpened(fields, shown, opened);
      const disclosure = opened === null ? null : onlyFields(opened, fields, shown);
      if (disclosure === null)
        throw refuse(
          'disclosure_gone',
          'Params and salts were erased, or the record’s time is over. The receipt holds.',
        );
      await turnOfOthers(() => performance.now(), begun);
      const text = `{"receipt":${JSON.stringify(shown)},"disclosure":${await disclosureText(disclosure)}}`;
      return reply.type('application/json; charset=utf-8').send(text);
    }
    if (!/\bapplication\/jose\b/i.test(request.headers.accept ?? '')) return shown;
    return reply.type('application/jose').send(receipt.jws);
  });
}

function decodedField(field: string): string {
  return field.replaceAll('%2C', ',').replaceAll('%25', '%');
}

/** @throws a refusal of fields that the receipt does not commit to, or not so that they are opened by themselves */
function mayBeOpened(fields: readonly string[], receipt: JsonObject, opened: Disclosure): void {
  const unknown = fields.find((field) => commitmentIn(receipt, field) === null);
  if (unknown !== undefined)
    throw refuse('invalid_request', `This receipt has no commitment to ${unknown.slice(0, 100)}.`);
  const isTogether = fields.some((field) => isOneParam(field) && !isOpenedByOne(receipt, field));
  if (isTogether)
    throw refuse(
      'invalid_request',
      'This receipt commits to its params together, and they are opened together: ask for params. Where the configuration says receipts.params: each, later receipts open one by one.',
    );
  for (const field of fields) {
    const among = paramsAmong(opened, field);
    if (among !== null)
      throw refuse(
        'invalid_request',
        `This receipt commits to no ${field.slice(0, 100)}. It commits to: ${among.join(', ').slice(0, 1000)}.`,
      );
  }
}

function addStagesRoute(app: ApiApp, ports: ApiPorts): void {
  const getRun = guarded('effects.read', {
    operationId: 'getRun',
    summary: 'The run, stage by stage',
    params: WithId,
    response: answers({ 200: Run }),
  });
  app.get(`${WS}/effects/:id/run`, getRun, async (request) => {
    const { ws, id } = request.params;
    const effect = await visibleEffect(ports, callerOf(request), ws, id);
    return {
      effect_id: effect.id,
      state: effect.life.state,
      attempt: effect.attempt,
      stages: runStages(effect, ports.running),
    };
  });
}

function addResolveRoute(app: ApiApp, ports: ApiPorts): void {
  const resolveEffect = guarded('effects.resolve', {
    operationId: 'resolveEffect',
    summary: 'Settle an unknown outcome',
    description:
      'The same resolution twice is a 200, the opposite one a 409. `not_happened` is refused with `too_early` while something may still be under way.',
    params: WithId,
    body: ResolveBody,
    response: answers({ 200: Type.Object({ effect: Effect }) }),
  });
  app.post(`${WS}/effects/:id/resolve`, resolveEffect, async (request) => {
    const { ws, id } = request.params;
    const caller = callerOf(request);
    const { outcome, evidence = null, comment = null, force = false } = request.body;
    const { principal } = caller;
    const result = await ports.resolve({ principal, workspace: ws, effectId: id, outcome, evidence, comment, force });
    if (result.kind === 'problem') throw new Refused(result.problem, {});
    return { effect: wireOf(result.effect, caller, ports) };
  });
}

function addProbeRoute(app: ApiApp, ports: ApiPorts): void {
  const probeEffect = guarded('effects.probe', {
    operationId: 'probeEffect',
    summary: 'Find out from the upstream what became of an unknown outcome',
    description:
      'Makes the read that the tool declares as its probe. That it happened settles it at once; that it did not only after two readings, once nothing can be under way any more.',
    params: WithId,
    response: answers({
      200: Probed,
    }),
  });
  app.post(`${WS}/effects/:id/probe`, probeEffect, async (request) => {
    const { ws, id } = request.params;
    const caller = callerOf(request);
    await visibleEffect(ports, caller, ws, id);
    const probed = await ports.probe({ principal: caller.principal, workspace: ws, effectId: id });
    if (probed.kind === 'problem') throw new Refused(probed.problem, {});
    return { probe: probeToWire(probed), effect: wireOf(probed.effect, caller, ports) };
  });
}

/** Params are shown to keys that may send them. Keys with a profile may only look around. */
function mayReadParams({ principal }: Caller, receipt: JsonObject): void {
  if (principal.kind === 'profile')
    throw refuse('insufficient_scope', 'A key with a profile does not read params: use an account or agent key.');
  const { action } = receipt;
  const tool = isJsonObject(action) ? action['tool'] : null;
  if (principal.allowedTools !== null && !principal.allowedTools.some((name) => name === tool))
    throw refuse('insufficient_scope', 'The key may not call the tool, so it does not read its params.');
}

/** For a read that was not accepted: no earlier run can have changed anything. */
function neverHappens(ports: ApiPorts, { tool }: RunRequest): JsonObject {
  return ports.catalog().tool(tool)?.kind === 'read' ? { did_it_happen: 'no', safe_to_retry: true } : {};
}

/** An effect that the caller may not see is answered as if it did not exist. */
async function visibleEffect(ports: ApiPorts, caller: Caller, workspace: string, id: string): Promise<EffectRecord> {
  const effect = await ports.store.effect(workspace, id);
  if (effect === null || !mayBeSeen(caller, effect.actor.agentId)) throw noSuchEffect();
  return effect;
}

function noSuchEffect(): Refused {
  return refuse('not_found', 'There is no such effect here.');
}

function wireOf(
  effect: EffectRecord,
  caller: Caller,
  ports: ApiPorts,
  approval: Parameters<typeof effectToWire>[1]['approval'] = null,
) {
  const { principal } = caller;
  return effectToWire(effectFor(principal, effect), {
    publicUrl: ports.settings().publicUrl,
    receiptView: ports.receipts.view,
    tool: ports.catalog().tool(effect.action.tool),
    withResult: withheldBecause(principal, effect.action.tool) === null,
    approval,
    now: ports.store.now(),
  });
}

function renderContext(ports: ApiPorts, caller: Caller) {
  return {
    publicUrl: ports.settings().publicUrl,
    receiptView: ports.receipts.view,
    forAgent: caller.principal.kind === 'agent' || caller.view.kind === 'own',
    hasProbe: (tool: string) => ports.catalog().tool(tool)?.probe !== undefined,
  };
}

function sendOutcome(reply: FastifyReply, rendered: RenderedOutcome): FastifyReply {
  return reply.code(rendered.status).headers(rendered.headers).send(rendered.body);
}

/** @returns `null` if the filter asks for what the caller may not see */
function listFilter(query: Static<typeof ListQuery>, caller: Caller): EffectFilter | null {
  const faults: RequestFault[] = [];
  const { since, until } = timesOf(query, faults);
  const { limit, cursor } = pageOf(query, faults);
  if (faults.length > 0) throw refuseFaults(faults);
  const own = caller.view.kind === 'own' ? caller.view.agentId : null;
  if (own !== null && query.agent_id !== undefined && query.agent_id !== own) return null;
  return {
    state: query.state ?? null,
    decision: query.decision ?? null,
    tool: query.tool ?? null,
    agentId: own ?? query.agent_id ?? null,
    target: query.target,
    rule: query.rule,
    user: query.user,
    keyId: query.key_id,
    approver: query.approver,
    since,
    until,
    limit,
    cursor,
  };
}
