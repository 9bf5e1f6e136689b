import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type RedisServer, startRedis, until } from '../redis/servers.ts';
import { type Fleet, startFleet } from './fleet.ts';
import { freshKey, refund } from './world.ts';

/**
 * What is put in force on one gateway is in force on all soon after, ms. The promise is two seconds; three gateways, their
 * callers, Redis and an upstream share this machine with whatever else runs on it, so the test says how long it took.
 */
const WITHIN_MS = 10_000;
const GATEWAYS = [0, 1, 2] as const;

let redis: RedisServer;
let fleet: Fleet;
let endLoad: () => Promise<unknown> = async () => {};
beforeAll(async () => {
  redis = await startRedis();
  fleet = await startFleet({ gateways: GATEWAYS.length, store: `url: "${redis.url}", max_freeze: 1s` });
});
afterEach(() => endLoad());
afterAll(async () => {
  await fleet.close();
  await redis.stop();
});

const fileOf = (gateway: number): string => join(fleet.gateways[gateway]!.policyFolder, 'world.yaml');
const admin = (gateway: number, method: string, path: string, body?: unknown) =>
  fleet.ask(gateway, method, `/v1/beta/policies${path}`, body, fleet.administrativeKey);

/** The version that a gateway judges by. */
async function versionOf(gateway: number): Promise<string> {
  const { body } = await fleet.ask(gateway, 'GET', '/v1/workspaces/demo/policies');
  return String(body.version);
}

/** What a gateway says of policies that are not the same everywhere. */
async function notesOf(gateway: number): Promise<readonly unknown[]> {
  const { body } = await fleet.ask(gateway, 'GET', '/readyz');
  return (body.notes ?? []).filter(({ part }: { readonly part: string }) => part === 'policies');
}

/** Calls of one agent on several gateways at once: without claims, whose row of that agent each of them would have to write. */
const charge = () => ({
  action_type: 'mcp.tool_call',
  tool: 'payments.charge',
  params: { amount: 1 },
  idempotency_key: freshKey(),
});

/** A caller asks again so long after an answer, ms: the machine is not to be the bottleneck. */
const PAUSE_MS = 15;

/** Callers of all gateways, who never stop asking; each answer that was no decision of the governed path is kept. */
function callWhile(): { readonly decided: () => number; stop(): Promise<readonly string[]> } {
  const refused: string[] = [];
  let decided = 0;
  let isOver = false;
  async function call(gateway: number): Promise<void> {
    const begun = performance.now();
    const said = await fleet.run(gateway, charge()).then(
      ({ status, body }) => (body.decision === 'committed' ? null : `${status} ${JSON.stringify(body).slice(0, 300)}`),
      (error: unknown) => String(error),
    );
    if (said === null) decided += 1;
    else refused.push(`gateway ${gateway} after ${Math.round(performance.now() - begun)} ms: ${said}`);
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
  const callers = GATEWAYS.flatMap((gateway) =>
    [1, 2].map(async () => {
      while (!isOver) await call(gateway);
    }),
  );
  async function stop(): Promise<readonly string[]> {
    isOver = true;
    await Promise.all(callers);
    return refused;
  }
  endLoad = stop;
  return { decided: () => decided, stop };
}

/** @returns ms until all gateways judge by it */
async function untilAllHave(version: string): Promise<number> {
  const begun = performance.now();
  await until(async () => (await Promise.all(GATEWAYS.map(versionOf))).every((is) => is === version));
  const ms = performance.now() - begun;
  console.log(JSON.stringify({ policiesInForceEverywhereMs: Math.round(ms) }));
  return ms;
}

describe('a rolling policy update of three gateways under load', () => {
  it('refuses no call, and is soon in force on all; so is the rollback', async () => {
    const before = await versionOf(0);
    const good = await readFile(fileOf(0), 'utf8');
    const load = callWhile();
    await until(async () => load.decided() > 100);

    const changed = good.replace('owner: team-test', 'owner: team-new');
    await writeFile(fileOf(0), changed);
    await until(async () => (await versionOf(0)) !== before);
    const updated = await versionOf(0);
    // The others have files of before; they get the new ones afterwards, and that is no news.
    expect(await untilAllHave(updated)).toBeLessThan(WITHIN_MS);
    for (const gateway of [1, 2]) await writeFile(fileOf(gateway), changed);
    const since = load.decided();
    await until(async () => load.decided() > since + 20);

    await until(async () => (await Promise.all(GATEWAYS.map(notesOf))).every((notes) => notes.length === 0));

    const rolledBack = await admin(1, 'POST', '/rollback', {});
    expect([rolledBack.status, rolledBack.body]).toEqual([200, { version: before }]);
    expect(await untilAllHave(before)).toBeLessThan(WITHIN_MS);
    const after = load.decided();
    await until(async () => load.decided() > after + 20);
    expect(await load.stop()).toEqual([]);

    const history = await admin(2, 'GET', '/activations');
    expect(history.body).toMatchObject({ in_force: before, files_version: updated });
    expect(history.body.activations.map((one: { how: string; version: string }) => [one.how, one.version])).toEqual([
      ['rollback', before],
      ['files', updated],
      ['files', before],
    ]);
    expect(history.body.activations[0].by.type).not.toBe('gateway');
  });

  it('is not turned back by a gateway that starts with the files of before; who wants them says so', async () => {
    const rolledBackTo = await versionOf(0);
    await fleet.gateways[2]?.stop();
    await fleet.restart(2);
    await until(async () => (await versionOf(2)) === rolledBackTo);
    expect(await versionOf(0)).toBe(rolledBackTo);
    const ready = await fleet.ask(2, 'GET', '/readyz');
    expect([ready.status, JSON.stringify(ready.body.notes)]).toEqual([
      200,
      expect.stringContaining('policy files here'),
    ]);

    const activated = await admin(2, 'POST', '/activations', {});
    expect(activated.status).toBe(200);
    expect(activated.body.version).not.toBe(rolledBackTo);
    expect(await untilAllHave(activated.body.version)).toBeLessThan(WITHIN_MS);
    expect((await fleet.run(0, refund())).body.decision).toBe('committed');
  });

  it('an edit while they run is in force on all, also of what stood there before; a broken file is named', async () => {
    const now = await versionOf(1);
    const text = await readFile(fileOf(1), 'utf8');
    const earlier = text.replace('owner: team-new', 'owner: team-test');
    expect(earlier).not.toBe(text);
    await writeFile(fileOf(1), earlier);
    await until(async () => (await versionOf(1)) !== now);
    expect(await untilAllHave(await versionOf(1))).toBeLessThan(WITHIN_MS);

    await writeFile(fileOf(0), 'apiVersion: broken');
    await until(async () => {
      const { body } = await fleet.ask(0, 'GET', '/readyz');
      return (body.notes ?? []).some(({ part }: { readonly part: string }) => part === 'configuration');
    });
    await writeFile(fileOf(0), earlier);
    await until(async () => (await notesOf(0)).length === 0);
  });
});
