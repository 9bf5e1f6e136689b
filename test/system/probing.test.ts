import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { expectSilentFsckIn } from '../silent-fsck.ts';
import { type Answer, makeApiKey, send, startGateway, type TestGateway, untilSent } from './gateway.ts';
import { type LossyShop, startLossyShop } from './lossy-shop.ts';

const EFFECTS = '/v1/workspaces/demo/effects';

const config = (url: string): string => `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
users: [ { id: olga, roles: [] } ]
workspaces: [ { id: demo, agents: [ { id: bot, team: shop, owner: olga } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams: [ { id: shop, url: "${url}", timeout: 1s } ]
tools:
  - name: shop.order
    upstream: shop
    kind: write
    request: { method: POST, path: /orders, body: [order] }
    params_schema: { type: object, required: [order], properties: { order: { type: string } }, additionalProperties: false }
    max_processing: 3s
    idempotent: { header: Idempotency-Key, for: 1s }
    probe:
      request: { method: GET, path: "/orders/{idempotency_key}" }
      happened: { state: done }
      not_happened: { http_status: 404 }
      after: 500ms
      every: 200ms
`;

const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: shop
owner: team
rules:
  - { id: all, effect: allow, match: { upstreams: [shop] } }
`;

let shop: LossyShop;
let gateway: TestGateway;
const keys = { bot: '', operator: '' };

beforeEach(async () => {
  shop = await startLossyShop();
  gateway = await startGateway({ config: config(shop.url), policies: { 'shop.yaml': POLICY } });
  keys.bot = await makeApiKey(gateway, 'olga', { kind: 'agent', workspace: 'demo', agent_id: 'bot' });
  keys.operator = await makeApiKey(gateway, 'olga', { kind: 'account', workspace: 'demo' });
});
afterEach(async () => {
  await gateway.dispose(() => expectSilentFsckIn(gateway.dataFolder));
  await shop.close();
});

async function unknownOrder(order: string): Promise<string> {
  const body = {
    action_type: 'mcp.tool_call',
    tool: 'shop.order',
    target: order,
    params: { order },
    idempotency_key: order,
  };
  const answer = await untilSent(() => send(gateway.url, keys.bot, 'POST', EFFECTS, body));
  expect(answer.body).toMatchObject({ decision: 'unknown_effect' });
  return answer.body.effect_id;
}

const unknownOrders = (fate: string, count: number): Promise<readonly string[]> =>
  Promise.all(Array.from({ length: count }, (_, n) => unknownOrder(`${fate}-${n}`)));

const ask = (path: string): Promise<Answer> => send(gateway.url, keys.bot, 'GET', path);
const effectOf = async (id: string): Promise<Answer['body']> => (await ask(`${EFFECTS}/${id}`)).body;
const stateOf = async (id: string): Promise<string> => (await effectOf(id)).effect.state;
const notes = async (): Promise<unknown> => (await send(gateway.url, keys.bot, 'GET', '/readyz')).body.notes ?? [];
const metric = async (line: string): Promise<number> => {
  const text = await (
    await fetch(`${gateway.url}/metrics`, { headers: { authorization: `Bearer ${gateway.administrativeKey}` } })
  ).text();
  return Number(new RegExp(`^${line.replaceAll(/[{}]/g, String.raw`\$&`)} (\\d+)$`, 'm').exec(text)?.[1] ?? Number.NaN);
};

describe('nobody asks', () => {
  test('what happened settles soon; what did not, twice after everything is over', async () => {
    const [done, lost] = await Promise.all([unknownOrders('lost_after', 6), unknownOrders('lost_before', 4)]);
    const until = performance.now() + 10_000;
    for (const id of done)
      await expect.poll(() => stateOf(id), { timeout: until - performance.now() }).toBe('committed');
    const quiesce = Date.parse((await effectOf(lost[0] ?? '')).effect.quiesce_until);
    for (const id of lost)
      await expect.poll(() => stateOf(id), { timeout: quiesce + 10_000 - Date.now() }).toBe('failed');

    const { effect, ledger } = await effectOf(done[0] ?? '');
    expect(effect.settled_by).toMatchObject({ by: 'probe', evidence: { said: 'happened', read: 'shop.order' } });
    expect(ledger.findLast(({ kind }: { readonly kind: string }) => kind === 'effect.reconciled')).toMatchObject({
      actor: { type: 'gateway', id: 'prober' },
      data: { outcome: 'happened', evidence: effect.settled_by.evidence },
    });
    const { receipt } = (await ask(`${EFFECTS}/${done[0]}/receipt?disclosure=1`)).body;
    expect(receipt.effect.settled_by).toMatchObject({ by: 'probe', evidence: expect.any(String) });
    const { settled_by: settledBy } = (await effectOf(lost[0] ?? '')).effect;
    const [first, second] = [settledBy.evidence.before.read_at, settledBy.evidence.read_at].map(Date.parse);
    expect(first).toBeGreaterThanOrEqual(quiesce);
    expect(second).toBeGreaterThanOrEqual((first ?? Infinity) + 200);
    expect([...shop.done.values()].filter((times) => times !== 1)).toEqual([]);
    expect(await metric('svc_probes_total{by="gateway",outcome="happened"}')).toBe(6);
    expect(await metric('svc_probes_total{by="gateway",outcome="not_happened"}')).toBe(4);
    expect(await metric('svc_effects_unknown_by_age{workspace="demo",age="1m"}')).toBe(0);
  });

  test('a restart goes on with what was unknown before', async () => {
    shop.break(true);
    const ids = await unknownOrders('lost_after', 3);
    await expect.poll(() => shop.reads(), { timeout: 10_000 }).toBeGreaterThan(0);
    gateway.kill('SIGKILL');
    shop.break(false);
    const before = gateway;
    gateway = await before.restart();
    for (const id of ids) await expect.poll(() => stateOf(id), { timeout: 15_000 }).toBe('committed');
  });

  test('a broken upstream is asked ever less often, and one at a time; then all is settled', async () => {
    shop.break(true);
    const ids = await unknownOrders('lost_after', 100);
    await expect
      .poll(notes, { timeout: 20_000 })
      .toContainEqual({ part: 'probes', message: expect.stringMatching(/^The last \d+ probes of shop had no answer/) });
    const [reads, at] = [shop.reads(), performance.now()];
    await delay(4_000);
    // Rests of 0.8 s, 1.6 s and more, each before one probe.
    expect(shop.reads() - reads).toBeLessThanOrEqual(4);
    expect(performance.now() - at).toBeLessThan(8_000);
    expect(shop.reads()).toBeLessThan(8 + 12);
    shop.break(false);
    for (const id of ids) await expect.poll(() => stateOf(id), { timeout: 60_000 }).toBe('committed');
    expect(shop.mostAtOnce()).toBeLessThanOrEqual(8);
    expect(await notes()).toEqual([]);
  });

  test('a pause holds it back, and what is paused is settled when that is over', async () => {
    const pauses = '/v1/workspaces/demo/pauses';
    const scope = { upstream: 'shop' };
    const id = await unknownOrder('lost_after-paused');
    const pause = await send(gateway.url, keys.operator, 'POST', pauses, { scope, reason: 'broken' });
    const reads = shop.reads();
    await expect.poll(notes, { timeout: 10_000 }).toMatchObject([
      {
        part: 'probes',
        message:
          'Probes of shop are held back: The call, or what would ask about it, is paused, so nothing is sent for it.',
      },
    ]);
    expect(shop.reads()).toBe(reads);
    expect(await stateOf(id)).toBe('unknown');
    await send(gateway.url, keys.operator, 'DELETE', `${pauses}/${pause.body.id}`);
    await expect.poll(() => stateOf(id), { timeout: 15_000 }).toBe('committed');
  });
});
