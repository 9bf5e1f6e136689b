import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type Answer, send } from '../system/gateway.ts';
import { freshKey, startWorld, type World, worldFiles } from '../system/world.ts';
import { seededRandom } from '../torture/random.ts';

let world: World;
beforeAll(async () => {
  // Room for all the calls: what is compared is the decision, not the order in which a budget runs out.
  world = await startWorld({
    files: (url) => {
      const { config, policies } = worldFiles(url);
      return {
        config,
        policies: { 'world.yaml': String(policies['world.yaml']).replace('limit: 100000 }', 'limit: 100000000 }') },
      };
    },
  });
});
afterAll(() => world.close());

interface GeneratedCall {
  readonly tool: 'payments.refund' | 'payments.charge' | 'notes.add' | 'deploy.start';
  readonly params: Record<string, unknown>;
  readonly key: 'bot' | 'otherBot' | 'account' | 'readonly' | 'stranger';
  readonly agentId: string | null;
}

const random = seededRandom(20_261_121);

function pick<T>(values: readonly T[]): T {
  const value = values[Math.floor(random() * values.length)];
  if (value === undefined) throw new Error('nothing to pick from');
  return value;
}

function generate(index: number): GeneratedCall {
  // Few large ones: at most 20 actions of an agent wait for approval.
  if (index % 25 === 0) {
    const params = { payment_id: `pay_${index}`, amount: 60_000, currency: 'EUR' };
    return { tool: 'payments.refund', params, key: index % 2 === 0 ? 'bot' : 'otherBot', agentId: null };
  }
  const key = pick(['bot', 'bot', 'bot', 'otherBot', 'account', 'readonly'] as const);
  const agentId = key === 'account' ? pick(['bot', 'other-bot', 'nobody']) : null;
  const tool = pick(['payments.refund', 'payments.refund', 'payments.charge', 'notes.add', 'deploy.start'] as const);
  const amount = pick<unknown>([1, 5, 100, 0, -1, 1.5, '100', null]);
  switch (tool) {
    case 'payments.refund':
      return {
        tool,
        key,
        agentId,
        params: {
          payment_id: `pay_${index}`,
          amount,
          currency: pick<unknown>(['EUR', 'USD', 'JPY', 'eur', 7]),
          ...(random() < 0.2 ? { note: 'x' } : {}),
        },
      };
    case 'payments.charge':
      return { tool, key, agentId, params: { amount } };
    case 'notes.add':
      return {
        tool,
        key,
        agentId,
        params:
          random() < 0.3
            ? {}
            : { text: pick(['hello', 'mode:refuse', 'mode:accepted', 'mode:error_after', 'mode:redirect']) },
      };
    case 'deploy.start':
      return { tool, key, agentId, params: { service: pick(['api', 'web']) } };
  }
}

/** An answer in words that do not depend on the door; nothing in it is made up for the door that does not say it. */
interface Said {
  /** Of the upstream where it answered, of the gateway where that refused. */
  readonly status: number;
  /** Code of a problem, decision of everything else. */
  readonly said: string;
  readonly reason: { readonly code: string; readonly rule: string | null } | null;
  /** What is on record: as the effects API shows it, whichever door the call came through. */
  readonly recorded: unknown;
}

async function said(answer: Answer): Promise<Said> {
  const { status, body, headers } = answer;
  // What the upstream answered is its own answer at the proxy's door; the decision is in the headers there.
  const passedOn = headers.get('svc-decision') !== null && body.decision === undefined;
  const decision = passedOn ? headers.get('svc-decision') : body.decision;
  if (decision === undefined) return { status, said: body.code, reason: null, recorded: null };
  const id = passedOn ? headers.get('svc-effect-id') : body.effect_id;
  return {
    status: passedOn ? status : (body.upstream_status ?? status),
    said: decision,
    reason: passedOn ? null : { code: body.reason.code, rule: body.reason.rule ?? null },
    recorded: await recordOf(id),
  };
}

async function recordOf(id: string): Promise<unknown> {
  const { status, body } = await world.get(`/effects/${id}`);
  if (status !== 200) return status;
  const { state, decision, reason, tool, target, agent_id: agentId } = body.effect;
  const events = body.ledger.map(({ kind, data }: { kind: string; data: { code?: string; rules?: string[] } }) => [
    kind,
    data.code ?? null,
    data.rules ?? null,
  ]);
  return { state, decision, reason, tool, target, agentId, events };
}

async function throughProxy(call: GeneratedCall, idempotencyKey: string): Promise<Answer> {
  const { payment_id: paymentId, ...rest } = call.params;
  const paths = {
    'payments.refund': `/v1/payments/${String(paymentId)}/refunds`,
    'payments.charge': '/v1/charges',
    'notes.add': '/v1/notes',
    'deploy.start': '/v1/deployments',
  };
  return send(
    world.gateway.url,
    world.keys[call.key],
    'POST',
    `/payments${paths[call.tool]}`,
    call.tool === 'payments.refund' ? rest : call.params,
    {
      'idempotency-key': idempotencyKey,
      ...(call.agentId === null ? {} : { 'svc-agent-id': call.agentId }),
    },
  );
}

/** When the last calls of each kind of refusal that the store counts by key were made, ms. */
const refusedAt = new Map<string, number[]>();

/**
 * Of refusals that are counted by key and code the first ten of a second are kept, two to a call here: five calls a
 * second at most, so that every one of them is on record at both doors.
 */
async function pace({ key, agentId }: GeneratedCall): Promise<void> {
  if (key !== 'readonly' && agentId !== 'nobody') return;
  const word = `${key} ${agentId}`;
  const times = refusedAt.get(word) ?? [];
  refusedAt.set(word, times);
  const fourthLast = times.at(-4);
  if (fourthLast !== undefined) await delay(Math.max(0, fourthLast + 1100 - Date.now()));
  times.push(Date.now());
}

it('effects API, proxy and preview give 240 generated calls the same decision, code and rule', async () => {
  const seen = new Map<string, number>();
  for (let index = 0; index < 240; index += 1) {
    const call = generate(index);
    await pace(call);
    const body = { tool: call.tool, params: call.params, ...(call.agentId === null ? {} : { agent_id: call.agentId }) };
    const key = world.keys[call.key];
    const preview = await send(world.gateway.url, key, 'POST', '/v1/workspaces/demo/effects/preview', {
      ...body,
      idempotency_key: freshKey(),
    });
    const run = await world.run({ ...body, idempotency_key: freshKey() }, key);
    const proxied = await throughProxy(call, freshKey());
    const [atApi, atProxy] = [await said(run), await said(proxied)];
    const which = `proxy, call ${index}: ${JSON.stringify(call)} ${JSON.stringify(proxied.body)}`;
    // Of what was passed on the proxy says no reason: the record of it does.
    expect(atProxy, which).toEqual({ ...atApi, reason: atProxy.reason === null ? null : atApi.reason });
    if (atProxy.reason === null) expect(['committed', 'failed', 'invalid_request'], which).toContain(atProxy.said);
    const decision = run.body.decision ?? run.body.code;
    seen.set(decision, (seen.get(decision) ?? 0) + 1);
    if (call.key === 'readonly') {
      expect(preview.body.code).toBe('insufficient_scope');
      continue;
    }
    // A preview cannot know what the upstream will answer: that it would be sent is what it says.
    const sent = ['committed', 'failed', 'unknown_effect'].includes(String(decision));
    expect(preview.body.would ?? preview.body.code, `preview, call ${index}: ${JSON.stringify(call)}`).toBe(
      sent ? 'committed' : decision,
    );
    if (!sent && run.body.decision !== undefined) {
      expect(preview.body.reason.code).toBe(run.body.reason.code);
      expect(preview.body.reason.rule ?? null).toBe(run.body.reason.rule ?? null);
    }
  }
  for (const decision of [
    'committed',
    'failed',
    'unknown_effect',
    'pending_approval',
    'denied_policy',
    'denied_identity',
    'denied_permission',
    'denied_budget',
    'invalid_request',
  ]) {
    expect(seen.get(decision) ?? 0, decision).toBeGreaterThan(0);
  }
});

it('the same key through another door is the same action', async () => {
  const key = freshKey();
  const params = { payment_id: `pay_${key}`, amount: 7, currency: 'EUR' };
  const run = await world.run({ tool: 'payments.refund', params, idempotency_key: key });
  expect(run.body.decision).toBe('committed');
  const proxied = await throughProxy({ tool: 'payments.refund', params, key: 'bot', agentId: null }, key);
  expect(proxied.body).toMatchObject({
    decision: 'duplicate_blocked',
    effect_id: run.body.effect_id,
    receipt: run.body.receipt,
  });
});
