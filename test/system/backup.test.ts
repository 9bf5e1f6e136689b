import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { until } from '../redis/servers.ts';
import { svc } from './command-line.ts';
import { type Answer, send, type TestGateway } from './gateway.ts';
import { freshKey, refund, startWorld, type World } from './world.ts';

let world: World;
/** The gateway that runs now. */
let gateway: TestGateway;
let backup = '';

beforeEach(async () => {
  world = await startWorld();
  ({ gateway } = world);
  backup = join(gateway.folder, 'backup');
});
afterEach(() => world.close());

const command = (...words: readonly string[]): ReturnType<typeof svc> => svc(gateway.folder, {}, ...words);

/** Calls one after the other, several at a time, until it is stopped. Each has a key of its own. */
function load(atOnce: number): { readonly keys: Map<string, string>; stop(): Promise<void> } {
  const keys = new Map<string, string>();
  let stopped = false;
  const running = Array.from({ length: atOnce }, async () => {
    while (!stopped) {
      const key = freshKey();
      keys.set(key, 'sent');
      const answer = await world.run(refund({ amount: 1 }, key)).catch(() => null);
      if (answer !== null) keys.set(key, answer.body.decision);
    }
  });
  return {
    keys,
    async stop() {
      stopped = true;
      await Promise.all(running);
    },
  };
}

const committed = (keys: ReadonlyMap<string, string>): readonly string[] =>
  [...keys].flatMap(([key, said]) => (said === 'committed' ? [key] : []));

async function repeat(key: string): Promise<Answer> {
  return world.run(refund({ amount: 1 }, key));
}

async function expectNothingTwice(): Promise<void> {
  const { effects } = await world.upstream.ledger();
  expect(new Set(effects.map(({ path }) => path)).size).toBe(effects.length);
}

async function killed(): Promise<void> {
  gateway.kill('SIGKILL');
  await gateway.ended;
}

async function restarted(): Promise<void> {
  gateway = await gateway.restart();
}

it('a backup that was made under load and restored after a crash: no key of before runs twice', async () => {
  const calls = load(8);
  const earlier = join(gateway.folder, 'earlier');
  expect(await command('backup', earlier)).toMatchObject({ code: 0 });
  await until(() => committed(calls.keys).length >= 40);
  const made = await command('backup', backup, '--json');
  expect(made).toMatchObject({ code: 0 });
  expect(readdirSync(backup).toSorted()).toEqual(['backup.json', 'base.db', 'changes-1', 'journal']);
  rmSync(earlier, { recursive: true });
  const before = new Set(committed(calls.keys));
  await until(() => committed(calls.keys).length >= before.size + 40);
  const after = committed(calls.keys).filter((key) => !before.has(key));
  await killed();
  await calls.stop();

  const restored = await command('restore', backup, '--replace', '--json');
  expect(restored).toMatchObject({ code: 0 });
  const { carried, replaced } = JSON.parse(restored.out);
  expect(carried).toMatchObject({ fault: null });
  // Some of `after` were committed while the backup was made.
  expect(carried.unknown).toBeGreaterThan(20);
  expect(existsSync(join(replaced, 'store.db'))).toBe(true);
  await restarted();

  const said = new Map<string, number>();
  for (const key of calls.keys.keys()) {
    const { body } = await repeat(key);
    said.set(body.decision, (said.get(body.decision) ?? 0) + 1);
    if (after.includes(key)) expect(['unknown_effect', 'duplicate_blocked']).toContain(body.decision);
  }
  expect(said.get('unknown_effect')).toBeGreaterThan(20);
  expect(said.get('duplicate_blocked')).toBeGreaterThan(20);
  await expectNothingTwice();

  const { body } = await send(gateway.url, gateway.administrativeKey, 'GET', '/v1/beta/ledger?kind=store.restored');
  expect(body.events).toMatchObject([
    { actor: { id: 'svc restore' }, data: { unknown: carried.unknown, replaced: 'read' } },
  ]);
  // One that is known to have happened is settled, and spends what it held.
  const unknown = await world.get('/effects?state=unknown&limit=1');
  const { id } = unknown.body.effects[0];
  expect((await world.post(`/effects/${id}/resolve`, { outcome: 'happened' }, world.keys.approver)).status).toBe(200);
});

it('what waited, failed or was not there when the backup was made, and ran since, is not run again', async () => {
  const [waits, fails] = [freshKey(), freshKey()];
  const large = refund({ amount: 50_001 }, waits);
  const { body: asked } = await world.run(large);
  const failing = refund({ amount: 2, reason: 'mode:unavailable' }, fails);
  expect((await world.run(failing)).body.decision).toBe('failed');
  expect(await command('backup', backup)).toMatchObject({ code: 0 });
  await world.post(`/approvals/${asked.approval.id}/approve`, {}, world.keys.approver);
  await until(async () => (await world.run(large)).body.decision === 'duplicate_blocked');
  await world.upstream.mode({ mode: 'drop_after', times: 1, path: `/v1/payments/pay_${fails}/refunds` });
  await world.run(failing);
  await gateway.stop();

  expect(await command('restore', backup, '--replace')).toMatchObject({ code: 0 });
  await restarted();
  expect((await world.run(large)).body).toMatchObject({ decision: 'unknown_effect', effect_id: asked.effect_id });
  expect((await world.get('/approvals?status=pending')).body.approvals).toEqual([]);
  await world.run(failing);
  await expectNothingTwice();
});

it('refuses a store that serves, one that is there, and a backup that is not whole', async () => {
  await world.run(refund());
  expect(await command('backup', backup)).toMatchObject({ code: 0 });
  expect(await command('backup', backup)).toMatchObject({ code: 2, err: expect.stringContaining('is not empty') });
  const live = await command('restore', backup, '--replace');
  expect(live).toMatchObject({ code: 2, err: expect.stringContaining('Another gateway uses the store') });
  await gateway.stop();
  const there = await command('restore', backup);
  expect(there).toMatchObject({ code: 2, err: expect.stringContaining('With --replace') });

  const damaged = join(gateway.folder, 'damaged');
  cpSync(backup, damaged, { recursive: true });
  truncateSync(join(damaged, 'backup.db'), statSync(join(damaged, 'backup.db')).size - 8192);
  const refused = await command('restore', damaged, '--replace');
  expect(refused).toMatchObject({ code: 2, err: expect.stringContaining('is not as it was written') });
  rmSync(join(damaged, 'backup.json'));
  const partial = await command('restore', damaged, '--replace');
  expect(partial).toMatchObject({ code: 2, err: expect.stringContaining('There is no whole backup') });
  writeFileSync(join(damaged, 'backup.json.new'), '');
  expect(await command('backup', damaged)).toMatchObject({ code: 2, err: expect.stringContaining('was interrupted') });
  // What fails after the store was made again leaves it no more than what fails before.
  const odd = join(gateway.dataFolder, 'spill', 'odd.json');
  mkdirSync(odd, { recursive: true });
  expect(await command('restore', backup, '--replace')).toMatchObject({ code: 2, err: expect.stringContaining(odd) });
  rmSync(odd, { recursive: true });
  // Nothing has changed.
  expect(readdirSync(gateway.dataFolder).filter((name) => /^(replaced|restoring)/.test(name))).toEqual([]);
  await restarted();
  expect((await send(gateway.url, '', 'GET', '/readyz')).status).toBe(200);
});

it('a backup that was only copied into the place of the store is not opened', async () => {
  expect(await command('backup', backup)).toMatchObject({ code: 0 });
  await gateway.stop();
  const file = join(gateway.dataFolder, 'store.db');
  renameSync(file, `${file}.kept`);
  copyFileSync(join(backup, 'backup.db'), file);
  await expect(restarted()).rejects.toThrow('svc restore');
  renameSync(`${file}.kept`, file);
});

it('a store that is damaged is replaced; that it could not be read is said', async () => {
  const key = freshKey();
  await world.run(refund({ amount: 1 }, key));
  expect(await command('backup', backup)).toMatchObject({ code: 0 });
  await gateway.stop();
  writeFileSync(join(gateway.dataFolder, 'store.db'), Buffer.alloc(65_536, 'not a database '));
  const restored = await command('restore', backup, '--replace');
  expect(restored).toMatchObject({
    code: 1,
    out: expect.stringMatching(/^WARNING: .*could not be read to its end .*SENT AGAIN/),
  });
  expect(restored.err).toContain(`svc store accept-loss --config ${gateway.configFile}`);
  await restarted();
  expect((await repeat(key)).body.decision).toBe('duplicate_blocked');
  await expectNothingTwice();
  const notes = async () => (await send(gateway.url, '', 'GET', '/readyz')).body.notes;
  expect(await notes()).toMatchObject([{ part: 'restore', since: expect.any(String) }]);
  // Another one that finds everything does not make that known.
  await gateway.stop();
  expect(await command('restore', backup, '--replace')).toMatchObject({ code: 1 });
  await restarted();
  expect(await notes()).toMatchObject([{ part: 'restore' }]);
  // While it runs.
  expect(await command('store', 'accept-loss')).toMatchObject({ code: 0 });
  await until(async () => (await notes()) === undefined);
  const { body } = await send(
    gateway.url,
    gateway.administrativeKey,
    'GET',
    '/v1/beta/ledger?kind=store.loss_accepted',
  );
  expect(body.events).toMatchObject([{ data: { restored_at: expect.any(String) } }]);
  expect(await command('store', 'accept-loss')).toMatchObject({ code: 2 });
});

it('what is lost is counted from the farthest that was seen, however often a backup is put back', async () => {
  expect(await command('backup', backup)).toMatchObject({ code: 0 });
  for (let calls = 0; calls < 5; calls += 1) await world.run(refund({ amount: 1 }));
  await gateway.stop();
  const restored = async () => {
    rmSync(join(gateway.dataFolder, 'store.db'));
    const { code, out } = await command('restore', backup, '--json');
    expect(code).toBe(1);
    const { transactions, transactions_known: known } = JSON.parse(out);
    return known - transactions;
  };
  const first = await restored();
  expect(first).toBeGreaterThanOrEqual(10);
  expect(await restored()).toBeGreaterThanOrEqual(first);
  await restarted();
  await world.run(refund({ amount: 1 }));
  await gateway.stop();
  expect(await restored()).toBeGreaterThan(first);
  await restarted();
});

it('a restore that was interrupted before it began to replace is made anew: the store has gone on', async () => {
  await world.run(refund({ amount: 1 }));
  const at = (...names: readonly string[]): string => join(gateway.dataFolder, ...names);
  const spilled = (of: string): string => at('spill', `of-the-${of}.settlement.json`);
  writeFileSync(spilled('backup'), '{}');
  expect(await command('backup', backup)).toMatchObject({ code: 0 });
  rmSync(spilled('backup'));
  await gateway.stop();
  mkdirSync(at('restoring'));
  for (const name of ['store.db', 'install.json']) copyFileSync(at(name), at('restoring', name));
  writeFileSync(
    at('restoring', 'whole'),
    JSON.stringify(JSON.parse(readFileSync(join(backup, 'backup.json'), 'utf8'))),
  );
  await restarted();
  const key = freshKey();
  expect((await world.run(refund({ amount: 1 }, key))).body.decision).toBe('committed');
  await gateway.stop();

  const there = await command('restore', backup);
  expect(there).toMatchObject({ code: 2, err: expect.stringContaining('With --replace') });
  writeFileSync(spilled('store'), '{}');
  expect(await command('restore', backup, '--replace')).toMatchObject({ code: 0 });
  // The settlements that neither has taken are there.
  expect(['backup', 'store'].map((of) => existsSync(spilled(of)))).toEqual([true, true]);
  rmSync(at('spill'), { recursive: true });
  await restarted();
  expect((await repeat(key)).body.decision).toBe('unknown_effect');
  await expectNothingTwice();
});

it('a restore that was interrupted while it replaced goes on, and not with another backup', async () => {
  expect(await command('backup', backup)).toMatchObject({ code: 0 });
  const other = join(gateway.folder, 'other');
  expect(await command('backup', other)).toMatchObject({ code: 0 });
  await gateway.stop();
  const at = (...names: readonly string[]): string => join(gateway.dataFolder, ...names);
  mkdirSync(at('restoring'));
  copyFileSync(at('store.db'), at('restoring', 'store.db'));
  writeFileSync(
    at('restoring', 'whole'),
    JSON.stringify(JSON.parse(readFileSync(join(backup, 'backup.json'), 'utf8'))),
  );
  const refused = await command('restore', other, '--replace');
  expect(refused).toMatchObject({ code: 2, err: expect.stringContaining('Another backup was being put') });
  const done = await command('restore', backup);
  expect(done).toMatchObject({ code: 0, out: expect.stringContaining('store.restored') });
  expect(existsSync(at('restoring'))).toBe(false);
});
