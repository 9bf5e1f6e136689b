import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type RedisServer, startRedis, until } from '../redis/servers.ts';
import { AN_HOUR_APART, clockOf, offsetSeenIn } from './clocks.ts';
import { type Fleet, startFleet } from './fleet.ts';
import { type Answer, makeApiKey, type TestFiles } from './gateway.ts';
import { freshKey } from './world.ts';

const HALF_AN_HOUR_MS = 1_800_000;
const GATEWAYS = AN_HOUR_APART.map((_, place) => place);

/** Rules that hold now, not yet, and no longer: each by less than the clocks of two gateways are off. */
function files(upstreamUrl: string): TestFiles {
  const at = (shift: number): string => new Date(Date.now() + shift).toISOString();
  const tool = (name: string): string => `
  - name: ${name}
    title: Book
    upstream: ledger
    kind: write
    request: { method: POST, path: "/v1/bookings/{op}", body: [amount, note] }
    params_schema: { type: object, required: [op, amount], properties: { op: { type: string }, amount: { type: integer }, note: { type: string } }, additionalProperties: false }
    timeout: 20s
    max_processing: 500ms`;
  return {
    config: `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
users: [ { id: tom }, { id: olga } ]
workspaces: [ { id: demo, agents: [ { id: bot } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams: [ { id: ledger, url: "${upstreamUrl}", timeout: 10s } ]
tools:${['book.now', 'book.early', 'book.late'].map(tool).join('')}
telemetry: { log_level: error }
`,
    policies: {
      'times.yaml': `
apiVersion: svc-gateway/v1
kind: PolicySet
name: times
budgets: { hourly: { unit: coin, by: [], per: hour, limit: 1000000 } }
rules:
  - { id: now, effect: allow, match: { tools: [book.now] }, from: "${at(-HALF_AN_HOUR_MS)}", until: "${at(HALF_AN_HOUR_MS)}", obligations: [ { budget: { use: hourly, amount: params.amount } } ] }
  - { id: early, effect: allow, match: { tools: [book.early] }, from: "${at(HALF_AN_HOUR_MS)}" }
  - { id: late, effect: allow, match: { tools: [book.late] }, until: "${at(-HALF_AN_HOUR_MS)}" }
`,
    },
  };
}

let redis: RedisServer;
let fleet: Fleet;
beforeAll(async () => {
  redis = await startRedis();
  fleet = await startFleet({ gateways: 3, store: `url: "${redis.url}", max_freeze: 1s`, files, env: clockOf });
});
afterAll(async () => {
  await fleet.close();
  await redis.stop();
});

function book(tool: string, params: Readonly<Record<string, unknown>> = {}): Record<string, unknown> {
  const key = freshKey();
  return { tool, params: { op: key, amount: 1, ...params }, idempotency_key: key };
}

/** The same call, with a key of its own, through each gateway. */
function everywhere(tool: string, key?: string): Promise<readonly Answer[]> {
  return Promise.all(GATEWAYS.map((gateway) => fleet.run(gateway, book(tool), key)));
}

const decisions = (answers: readonly Answer[]): readonly unknown[] => answers.map(({ body }) => body.decision);
const all = (decision: string): readonly string[] => GATEWAYS.map(() => decision);

describe('three gateways on one Redis, with clocks an hour apart', () => {
  it('do have such clocks', async () => {
    for (const gateway of GATEWAYS) {
      const { body } = await fleet.run(gateway, book('book.now'));
      const offset = offsetSeenIn(body.effect_id);
      expect(Math.abs(offset - (AN_HOUR_APART[gateway] ?? 0))).toBeLessThan(60_000);
    }
  });

  it('apply a rule from and until the same moments', async () => {
    expect(decisions(await everywhere('book.now'))).toEqual(all('committed'));
    expect(decisions(await everywhere('book.early'))).toEqual(all('denied_policy'));
    expect(decisions(await everywhere('book.late'))).toEqual(all('denied_policy'));
  });

  it('spend in one window of a budget per hour, which is the hour of the store', async () => {
    const storeHour = async (): Promise<number> => Math.floor(Number((await redis.client.time())[0]) / 3600);
    const spentIn = async (): Promise<ReadonlyMap<string, number>> => {
      const { body } = await fleet.ask(2, 'GET', '/v1/workspaces/demo/budgets');
      const rows: readonly { readonly window: string; readonly spent: number }[] = body.budgets;
      return new Map(rows.map(({ window, spent }) => [window, spent]));
    };
    const hour = await storeHour();
    const before = await spentIn();
    for (const gateway of GATEWAYS) await fleet.run(gateway, book('book.now', { amount: 10 }));
    const after = await spentIn();
    // At the turn of the store's hour there are two.
    if ((await storeHour()) === hour) expect(after.size).toBe(1);
    const sum = (rows: ReadonlyMap<string, number>): number => [...rows.values()].reduce((total, it) => total + it, 0);
    if ((await storeHour()) === hour) expect(sum(after) - sum(before)).toBe(30);
    for (const window of after.keys()) {
      const [, start = ''] = /^c:(\d+):/.exec(window) ?? [];
      expect(Number(start) / 3_600_000 - hour).toBeLessThanOrEqual(1);
      expect(hour - Number(start) / 3_600_000).toBeLessThanOrEqual(0);
    }
  });

  it('let a key expire at the same moment, whoever made it', async () => {
    const expires = async (gateway: number): Promise<void> => {
      const through = { ...fleet.gateways[gateway]!, administrativeKey: fleet.administrativeKey };
      const agent = { kind: 'agent', agent_id: 'bot', workspace: 'demo' };
      const lasting = await makeApiKey(through, 'olga', { ...agent, expires_in: 1800 });
      let isJudged = false;
      for (let lifeS = 2; !isJudged; lifeS *= 3) {
        const made = performance.now();
        const short = await makeApiKey(through, 'olga', { ...agent, expires_in: lifeS });
        const early = await everywhere('book.now', short);
        // On a busy machine the answers may come too late to be of this key; the next lives longer.
        isJudged = performance.now() - made < lifeS * 1000;
        if (isJudged) expect(decisions(early)).toEqual(all('committed'));
        await until(async () => (await everywhere('book.now', short)).every(({ status }) => status === 401));
        expect(performance.now() - made).toBeGreaterThan(lifeS * 1000 - 100);
      }
      expect(decisions(await everywhere('book.now', lasting))).toEqual(all('committed'));
    };
    await Promise.all(GATEWAYS.map(expires));
  });

  it('end a pause at the same moment', async () => {
    const pauses = '/v1/workspaces/demo/pauses';
    const paused = async (gateway: number, forMs: number): Promise<string> => {
      const until = new Date(Date.now() + forMs).toISOString();
      const pause = { scope: { tool: 'book.now' }, reason: 'looks at the clock', until };
      const { status, body } = await fleet.ask(gateway, 'POST', pauses, pause);
      expect(status).toBe(201);
      return body.id;
    };
    for (const gateway of GATEWAYS) {
      const id = await paused(gateway, HALF_AN_HOUR_MS);
      expect(decisions(await everywhere('book.now'))).toEqual(all('denied_paused'));
      await fleet.ask(gateway, 'DELETE', `${pauses}/${id}`);
      let isJudged = false;
      for (let forMs = 1000; !isJudged; forMs *= 4) {
        const ends = Date.now() + forMs;
        await paused(gateway, forMs);
        const meanwhile = await everywhere('book.now');
        // On a busy machine the answers may come too late to be of this pause; the next is longer.
        isJudged = Date.now() < ends;
        if (isJudged) expect(decisions(meanwhile)).toEqual(all('denied_paused'));
      }
      await until(async () => decisions(await everywhere('book.now')).every((decision) => decision === 'committed'));
    }
  });

  it('leave each other’s leases alone until they are over', async () => {
    const held = async (gateway: number): Promise<() => Promise<void>> => {
      const call = book('book.now', { note: 'mode:held' });
      const path = `/v1/bookings/${String(call['idempotency_key'])}`;
      let answer: Answer | null = null;
      const answering = fleet.run(gateway, call).then((it) => {
        answer = it;
      });
      await until(async () => (await fleet.upstream.ledger()).requests.some((request) => request.path === path));
      const seen = new Set<unknown>();
      const others = async (): Promise<void> => {
        for (const other of GATEWAYS) if (other !== gateway) seen.add((await fleet.run(other, call)).body.decision);
      };
      // Longer than the others sweep apart.
      for (const began = performance.now(); performance.now() - began < 1500; ) await others();
      expect(answer).toBeNull();
      expect([...seen]).toEqual(['in_progress']);
      return async () => {
        await answering;
        expect(answer).toMatchObject({ body: { decision: 'committed' } });
      };
    };
    const ends = await Promise.all(GATEWAYS.map(held));
    await fleet.upstream.release();
    await Promise.all(ends.map((end) => end()));
  });

  it('date receipts by the store', async () => {
    for (const { body } of await everywhere('book.now'))
      expect(Math.abs(Date.parse(body.receipt.iat) - Date.now())).toBeLessThan(60_000);
  });
});
