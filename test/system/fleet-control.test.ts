import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type RedisServer, startRedis, until } from '../redis/servers.ts';
import { type Fleet, startFleet } from './fleet.ts';
import { approverAt } from './approver.ts';
import { makeApiKey, send } from './gateway.ts';
import { shortest } from '../shortest.ts';
import { freshKey, refund } from './world.ts';

/** What is set on one gateway is in force on the others within this long, ms. */
const WITHIN_MS = 1000;

let redis: RedisServer;
let fleet: Fleet;
beforeAll(async () => {
  redis = await startRedis();
  fleet = await startFleet({ gateways: 2, store: `url: "${redis.url}", max_freeze: 1s` });
});
afterAll(async () => {
  await fleet.close();
  await redis.stop();
});

describe('two gateways on one Redis', () => {
  it('are one: a key used on one is a duplicate on the other, with the same receipt', async () => {
    const call = refund();
    const first = await fleet.run(0, call);
    expect(first.body).toMatchObject({ decision: 'committed' });
    const again = await fleet.run(1, call);
    expect([again.status, again.body.decision]).toEqual([409, 'duplicate_blocked']);
    expect(again.body.receipt).toEqual(first.body.receipt);
    const ready = await fleet.ask(1, 'GET', '/readyz');
    expect(ready.body).toMatchObject({ ready: true, store: { durability: 'fsync' } });
  });

  it('know one session of an approver, until its key is revoked at either', async () => {
    const [one = '', other = ''] = fleet.gateways.map(({ url }) => url);
    const key = await makeApiKey(fleet.gateways[0]!, 'maria', { kind: 'account', workspace: 'demo' });
    const { body } = await fleet.run(1, refund({ amount: 60_000 }));
    const { pathname } = new URL(body.approval.url);
    const maria = await approverAt(one, body.approval.url, key);
    const { form } = await maria.look(pathname, one);
    expect((await maria.look(pathname, other)).text).toContain('You are maria');
    expect(await maria.send(pathname, { form, verdict: 'reject' }, other)).toMatchObject({ status: 303 });
    const revoked = `/v1/beta/users/maria/keys/key_${key.slice('svc_acct_'.length, 'svc_acct_'.length + 12)}`;
    await fleet.ask(1, 'DELETE', revoked, undefined, fleet.administrativeKey);
    expect((await maria.look(pathname, other)).text).toContain('Your API key');
    await until(async () => (await maria.look(pathname, one)).text.includes('Your API key'));
  });

  it('spend one budget', async () => {
    const before = await fleet.ask(0, 'GET', '/v1/workspaces/demo/budgets');
    const spent = (answer: typeof before): number =>
      answer.body.budgets.reduce(
        (sum: number, row: { unit: string; spent: number }) => sum + (row.unit === 'EUR-cent' ? row.spent : 0),
        0,
      );
    await fleet.run(0, refund({ amount: 1500 }));
    await fleet.run(1, refund({ amount: 2500 }));
    const after = await fleet.ask(1, 'GET', '/v1/workspaces/demo/budgets');
    expect(spent(after) - spent(before)).toBe(4000);
  });

  it('a pause set on one refuses on the other, calls and reads, within a second; lifted as well', async () => {
    const read = () => send(fleet.gateways[1]!.url, fleet.keys.bot, 'GET', '/payments/v1/payments/pay_1');
    expect((await read()).status).toBeLessThan(500);
    const pauses = '/v1/workspaces/demo/pauses';
    const pauseAndLift = async (): Promise<number> => {
      const pause = await fleet.ask(0, 'POST', pauses, { scope: { agent: 'bot' }, reason: 'test' });
      expect(pause.status).toBe(201);
      const set = performance.now();
      // A call asks the store: it never gets by.
      expect((await fleet.run(1, refund())).body.decision).toBe('denied_paused');
      await until(async () => (await read()).status === 423);
      const setMs = performance.now() - set;
      await fleet.ask(1, 'DELETE', `${pauses}/${pause.body.id}`);
      const lifted = performance.now();
      await until(async () => (await fleet.run(0, refund())).body.decision === 'committed');
      return Math.max(setMs, performance.now() - lifted);
    };
    expect(await shortest(WITHIN_MS, pauseAndLift)).toBeLessThan(WITHIN_MS);
  });

  it('a key revoked on one is refused by the other within a second', async () => {
    const keys = '/v1/beta/users/olga/keys';
    const revoke = async (): Promise<number> => {
      const key = await makeApiKey(fleet.gateways[0]!, 'olga', { kind: 'agent', agent_id: 'bot', workspace: 'demo' });
      expect((await fleet.run(1, refund(), key)).body.decision).toBe('committed');
      const listed = await fleet.ask(1, 'GET', keys, undefined, fleet.administrativeKey);
      const newest = listed.body.keys.at(-1);
      const gone = await fleet.ask(0, 'DELETE', `${keys}/${newest.id}`, undefined, fleet.administrativeKey);
      expect(gone.status).toBeLessThan(300);
      const revoked = performance.now();
      await until(async () => (await fleet.run(1, refund(), key)).status === 401);
      return performance.now() - revoked;
    };
    expect(await shortest(WITHIN_MS, revoke)).toBeLessThan(WITHIN_MS);
  });

  it('with other policy files than those in force it serves by those in force, and says so', async () => {
    const [first, second] = fleet.gateways;
    const file = (gateway: typeof first): string => join(gateway!.policyFolder, 'world.yaml');
    const good = await readFile(file(first), 'utf8');
    const remarks = async (gateway: number): Promise<string> => {
      const { status, body } = await fleet.ask(gateway, 'GET', '/readyz');
      return JSON.stringify([status, status === 200 ? (body.notes ?? []) : body.parts]);
    };
    const changed = good.replace('owner: team-test', 'owner: team-changed');
    await writeFile(file(first), changed);
    await until(async () => (await remarks(1)).startsWith('[200,[{"part":"policies","message":"The policy files here'));
    expect((await fleet.run(1, refund())).body.decision).toBe('committed');
    expect((await fleet.run(0, refund())).body.decision).toBe('committed');
    await writeFile(file(second), changed);
    await until(async () => (await remarks(0)) === '[200,[]]' && (await remarks(1)) === '[200,[]]');
    expect((await fleet.run(1, refund())).body.decision).toBe('committed');
  });

  it('with another configuration each says so, within a second', async () => {
    const { configFile } = fleet.gateways[1]!;
    const written = await readFile(configFile, 'utf8');
    const notes = async (gateway: number): Promise<string> =>
      JSON.stringify((await fleet.ask(gateway, 'GET', '/readyz')).body.notes ?? []);
    expect([await notes(0), await notes(1)]).toEqual(['[]', '[]']);
    await writeFile(configFile, written.replace('title: Charge', 'title: Charge a card'));
    await until(async () => (await notes(0)).includes('another configuration'));
    await until(async () => (await notes(1)).includes('another configuration'));
    expect((await fleet.run(1, refund())).body.decision).toBe('committed');
    await writeFile(configFile, written);
    await until(async () => (await notes(0)) === '[]' && (await notes(1)) === '[]');
  });

  it('an agent registered on one acts through the other within a second', async () => {
    const register = async (time: number): Promise<number> => {
      const agent = { id: `late-bot-${time}`, team: 'support' };
      const made = await fleet.ask(0, 'POST', '/v1/workspaces/demo/agents', agent, fleet.administrativeKey);
      expect(made.status).toBe(201);
      const at = performance.now();
      await until(async () => {
        const call = { ...refund({}, freshKey()), agent_id: agent.id };
        return (await fleet.ask(1, 'POST', '/v1/workspaces/demo/effects', call)).body.decision === 'committed';
      });
      return performance.now() - at;
    };
    expect(await shortest(WITHIN_MS, register)).toBeLessThan(WITHIN_MS);
  });
});
