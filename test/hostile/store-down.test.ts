import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it, type TestContext, vi } from 'vitest';
import { type Answer, send } from '../system/gateway.ts';
import { freshKey, refund, startWorld, type World, worldFiles } from '../system/world.ts';

/** For what has to come, and how soon is not the question. */
const PATIENT = { timeout: 30_000, interval: 50 } as const;

let world: World | null = null;
let disk: string | null = null;
afterEach(async () => {
  await world?.close();
  world = null;
  // What is mounted within goes first.
  if (disk !== null)
    for (const folder of [join(disk, 'data', 'spill'), disk]) spawnSync('umount', [folder], { stdio: 'ignore' });
  if (disk !== null) rmSync(disk, { recursive: true, force: true });
  disk = null;
});

function mount(folder: string, size: string): void {
  mkdirSync(folder, { recursive: true });
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${size},mode=700`, 'tmpfs', folder]);
}

/** A gateway whose store is on a small disk of its own; `spill`: its journal is on another. */
async function startOnSmallDisk(context: TestContext, spill: 'beside' | 'apart'): Promise<World> {
  disk = mkdtempSync(join(tmpdir(), 'svc-disk-'));
  try {
    mount(disk, '8m');
  } catch {
    context.skip('this machine lets nobody mount a file system');
  }
  if (spill === 'apart') mount(join(disk, 'data', 'spill'), '2m');
  const path = join(disk, 'data');
  world = await startWorld({
    files(url) {
      const files = worldFiles(url);
      return { ...files, config: files.config.replaceAll('${SVC_TEST_DATA}', path) };
    },
  });
  return world;
}

function filler(): string {
  return join(disk ?? '', 'filler');
}

/** Fills the disk, then sends calls until the store has no room for one more; gives the first that was not taken. */
async function fillUp({ run }: World): Promise<Answer> {
  expect(spawnSync('dd', ['if=/dev/zero', `of=${filler()}`, 'bs=4k']).status).not.toBe(0);
  for (let n = 0; n < 100; n += 1) {
    const fill = { metadata: { filling: 'x'.repeat(4_000) } };
    const answers = await Promise.all(Array.from({ length: 40 }, () => run({ ...refund({ amount: 0 }), ...fill })));
    const refused = answers.find(({ status }) => status === 503);
    if (refused !== undefined) return refused;
  }
  throw new Error('the disk was never full');
}

async function readiness({ gateway }: World): Promise<{ readonly status: number; readonly text: string }> {
  const response = await fetch(`${gateway.url}/readyz`);
  return { status: response.status, text: await response.text() };
}

async function becomesReady(of: World): Promise<void> {
  await vi.waitFor(async () => expect((await readiness(of)).status).toBe(200), PATIENT);
}

function note({ run }: World, text: string, key = freshKey()): Promise<Answer> {
  return run({ tool: 'notes.add', params: { text }, idempotency_key: key });
}

describe('a full disk', () => {
  it('503 and nothing sent while it is full; it goes on by itself when there is room; what ran meanwhile is settled late', async (context) => {
    const it = await startOnSmallDisk(context, 'apart');
    const early = await it.run(refund());
    expect(early.body.decision).toBe('committed');

    // Three calls are under way when the disk fills up.
    await it.upstream.mode({ mode: 'held', times: 3, path: '/v1/notes' });
    const keys = [freshKey(), freshKey(), freshKey()];
    const running = keys.map((key) => note(it, 'under way', key));
    await vi.waitFor(async () => {
      const { effects } = await it.upstream.ledger();
      expect(effects.filter(({ path }) => path === '/v1/notes').length).toBe(3);
    }, PATIENT);
    await fillUp(it);

    const before = await it.upstream.counts();
    const keysRefused: string[] = [];
    const refuse = async (): Promise<void> => {
      const key = freshKey();
      keysRefused.push(key);
      const refused = await it.run(refund({}, key));
      expect(refused.status).toBe(503);
      expect(refused.headers.get('retry-after')).toMatch(/^[1-9]\d*$/);
      expect(refused.headers.get('x-should-retry')).toBe('true');
      expect(refused.body).toMatchObject({ code: 'store_unavailable', did_it_happen: 'maybe', safe_to_retry: true });
      const proxied = await send(
        it.gateway.url,
        it.keys.bot,
        'POST',
        '/payments/v1/notes',
        { text: 'x' },
        { 'idempotency-key': freshKey() },
      );
      expect([proxied.status, proxied.headers.get('x-should-retry')]).toEqual([503, 'true']);
    };
    for (let n = 0; n < 5; n += 1) await refuse();
    expect((await send(it.gateway.url, it.keys.bot, 'GET', '/payments/v1/payments/pay_1')).status).toBe(503);
    expect((await it.get('/effects')).status).toBe(503);
    const { status, text } = await readiness(it);
    expect(status).toBe(503);
    expect(text).toMatch(/"part":"store".*"code":"store_full"/);
    expect((await fetch(`${it.gateway.url}/livez`)).status).toBe(200);
    expect(await it.upstream.counts()).toEqual(before);

    // The calls under way have happened: their callers are told the truth, and that it is still to be written down.
    await it.upstream.release();
    const answers = await Promise.all(running);
    for (const answer of answers) {
      expect(answer.status).toBe(200);
      expect(answer.body).toMatchObject({
        decision: 'committed',
        settlement: 'pending',
        receipt: { jws: expect.any(String) },
      });
    }
    expect(readdirSync(join(disk ?? '', 'data', 'spill')).filter((name) => name.endsWith('.json')).length).toBe(3);
    expect(await it.upstream.counts()).toEqual(before);

    rmSync(filler());
    await becomesReady(it);
    for (const [index, answer] of answers.entries()) {
      const path = `/effects/${answer.body.effect_id}`;
      await vi.waitFor(async () => expect((await it.get(path)).body.effect?.state).toBe('committed'), PATIENT);
      expect((await it.get(`${path}/receipt`)).body.jws).toBe(answer.body.receipt.jws);
      const again = await note(it, 'under way', keys[index]);
      expect(again.body).toMatchObject({ decision: 'duplicate_blocked', receipt: { jws: answer.body.receipt.jws } });
    }
    await vi.waitFor(() => expect(readdirSync(join(disk ?? '', 'data', 'spill'))).toEqual([]), PATIENT);
    // What was refused has not happened, and runs now; what was there before is there.
    for (const key of keysRefused) {
      const { body } = await it.run(refund({}, key));
      expect(body.decision).toBe('committed');
    }
    expect((await it.get(`/effects/${early.body.effect_id}/receipt`)).body.jws).toBe(early.body.receipt.jws);
    const ledger = await it.upstream.ledger();
    const perKey = new Map<string, number>();
    for (const { path } of ledger.effects) perKey.set(path, (perKey.get(path) ?? 0) + 1);
    for (const [path, count] of perKey) if (path !== '/v1/notes') expect([path, count]).toEqual([path, 1]);
    expect(perKey.get('/v1/notes')).toBe(3);
  });

  it('a gateway killed while its settlements wait beside the store hands them in at the next start', async (context) => {
    const it = await startOnSmallDisk(context, 'apart');
    await it.upstream.mode({ mode: 'held', times: 1, path: '/v1/notes' });
    const key = freshKey();
    const running = note(it, 'under way', key);
    await vi.waitFor(async () => expect((await it.upstream.counts()).effects).toBe(1), PATIENT);
    await fillUp(it);
    await it.upstream.release();
    const answer = await running;
    expect(answer.body).toMatchObject({ decision: 'committed', settlement: 'pending' });
    it.gateway.kill('SIGKILL');
    rmSync(filler());
    const next = await it.gateway.restart();
    try {
      const path = `/v1/workspaces/demo/effects/${answer.body.effect_id}`;
      await vi.waitFor(async () => {
        const { body } = await send(next.url, it.keys.account, 'GET', path);
        expect(body.effect).toMatchObject({ state: 'committed' });
      }, PATIENT);
      const again = await send(next.url, it.keys.bot, 'POST', '/v1/workspaces/demo/effects', {
        tool: 'notes.add',
        params: { text: 'under way' },
        idempotency_key: key,
      });
      expect(again.body).toMatchObject({ decision: 'duplicate_blocked', receipt: { jws: answer.body.receipt.jws } });
      expect((await it.upstream.ledger()).effects.filter(({ path: at }) => at === '/v1/notes').length).toBe(1);
    } finally {
      await next.stop();
    }
  });

  it('a settlement that finds room nowhere is not lost: the outcome is unknown, and can be resolved', async (context) => {
    const it = await startOnSmallDisk(context, 'beside');
    await it.upstream.mode({ mode: 'held', times: 1, path: '/v1/notes' });
    const key = freshKey();
    const running = note(it, 'under way', key);
    await vi.waitFor(async () => expect((await it.upstream.counts()).effects).toBe(1), PATIENT);
    await fillUp(it);
    await it.upstream.release();
    const answer = await running;
    // No receipt leaves that is durable nowhere.
    expect(answer.status).toBe(504);
    expect(answer.body).toMatchObject({ decision: 'unknown_effect', settlement: 'pending', did_it_happen: 'maybe' });
    expect(answer.body).not.toHaveProperty('receipt');

    rmSync(filler());
    await becomesReady(it);
    const again = await note(it, 'under way', key);
    expect(again.status).toBe(409);
    expect(again.body).toMatchObject({ decision: 'unknown_effect', effect_id: answer.body.effect_id });
    const resolved = await it.post(`/effects/${answer.body.effect_id}/resolve`, { outcome: 'happened' });
    expect(resolved.body.effect).toMatchObject({ state: 'committed', receipt_id: expect.any(String) });
    expect((await it.upstream.ledger()).effects.filter(({ path }) => path === '/v1/notes').length).toBe(1);
  });
});

it('a gateway that finds its disk full at the start is refused with a sentence, and starts when there is room', async (context) => {
  const { gateway, keys } = await startOnSmallDisk(context, 'beside');
  await gateway.stop();
  spawnSync('dd', ['if=/dev/zero', `of=${filler()}`, 'bs=4k']);
  const refused = await startInVain(gateway.configFile, { SVC_TEST_POLICIES: gateway.policyFolder });
  expect(refused.code).not.toBe(0);
  expect(refused.out).toBe('');
  expect(refused.log).toMatch(/The disk under the store in .* is full/);
  expect(refused.log).not.toMatch(/\n\s+at /);
  rmSync(filler());
  const next = await gateway.restart();
  try {
    const run = await send(next.url, keys.bot, 'POST', '/v1/workspaces/demo/effects', refund());
    expect(run.body.decision).toBe('committed');
  } finally {
    await next.stop();
  }
});

interface Ended {
  readonly code: number | null;
  readonly out: string;
  readonly log: string;
}

/** Starts a gateway that is expected to refuse; waits until it has ended. */
async function startInVain(configFile: string, env: Record<string, string>): Promise<Ended> {
  const child = spawn(
    process.execPath,
    [join(process.cwd(), 'bin', 'svc.mjs'), 'start', '--config', configFile, '--port', '0'],
    {
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  );
  let out = '';
  let log = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    out += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    log += text;
  });
  const [code] = await once(child, 'close');
  return { code, out, log };
}

function environmentOf({ gateway }: World): Record<string, string> {
  return { SVC_TEST_DATA: gateway.dataFolder, SVC_TEST_POLICIES: gateway.policyFolder };
}

it('a second gateway on the same folder is refused with a sentence; the first goes on', async () => {
  world = await startWorld({
    files(url) {
      const files = worldFiles(url);
      return {
        ...files,
        config: files.config.replace('store: { kind: embedded,', 'store: { kind: embedded, lock_wait: 200ms,'),
      };
    },
  });
  const { run, gateway } = world;
  const key = freshKey();
  const first = await run(refund({}, key));
  const second = await startInVain(gateway.configFile, environmentOf(world));
  expect(second.code).not.toBe(0);
  expect(second.out).toBe('');
  expect(second.log).toMatch(/Another gateway uses the store/);
  expect(second.log).toContain(gateway.dataFolder);
  expect(second.log).not.toMatch(/\n\s+at /);
  expect((await run(refund({}, key))).body).toMatchObject({
    decision: 'duplicate_blocked',
    receipt: first.body.receipt,
  });
  expect((await run(refund())).body.decision).toBe('committed');
});

it('a store that is broken is refused with a sentence, left as it is, and works again when it is restored', async () => {
  world = await startWorld();
  const { run, gateway } = world;
  const key = freshKey();
  const first = await run(refund({}, key));
  await gateway.stop();
  const file = join(gateway.dataFolder, 'store.db');
  const good = readFileSync(file);
  for (const broken of [
    Buffer.alloc(65_536, 'no database at all '),
    Buffer.concat([good.subarray(0, 4_096), Buffer.alloc(good.length - 4_096, 0xff)]),
  ]) {
    writeFileSync(file, broken);
    const refused = await startInVain(gateway.configFile, environmentOf(world));
    expect(refused.code, refused.log).not.toBe(0);
    expect(refused.out).toBe('');
    expect(refused.log).toMatch(/damaged.*backup/i);
    expect(refused.log).not.toMatch(/\n\s+at /);
    expect(readFileSync(file).equals(broken)).toBe(true);
  }
  writeFileSync(file, good);
  const next = await gateway.restart();
  try {
    const again = await send(next.url, world.keys.bot, 'POST', '/v1/workspaces/demo/effects', refund({}, key));
    expect(again.body).toMatchObject({ decision: 'duplicate_blocked', receipt: first.body.receipt });
  } finally {
    await next.stop();
  }
});
