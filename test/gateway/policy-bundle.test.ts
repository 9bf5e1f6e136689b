import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { INSTALLATION } from '../../src/effects/model/ledger.ts';
import { type EffectStore, StoreUnavailable } from '../../src/effects/store.ts';
import { Agreement } from '../../src/gateway/files-in-force.ts';
import { FileReader } from '../../src/gateway/file-reader.ts';
import { activate, type InForce, readFiles } from '../../src/gateway/in-force.ts';
import { followPolicy } from '../../src/gateway/core-ports.ts';
import { Reloader } from '../../src/gateway/reload.ts';
import { ONLY, policyRows } from '../../src/records/control-rows.ts';
import { createEffectStore } from '../../src/records/effect-store.ts';
import { createStepRunner } from '../../src/records/runner.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { admitRequest, PERSON } from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import { ALONE, emptyRows, mapStore } from '../port/map-rows.ts';
import { administrator } from './administrator.ts';
import { POLICY_SEALS } from './policy-seals.ts';

/*
 * Gateways with files of their own over one store of rows. Who hears of what another one did, and when, is the store's; here
 * they hear of it at once.
 */

interface Runner {
  readonly store: EffectStore;
  readonly reloader: Reloader;
  inForce(): InForce;
  /** Rules in force, which tell the policies apart. */
  rules(): readonly string[];
  /** @param pool that calls need a unit of */
  write(rule: string, pool?: string): void;
  configure(user: string, pools?: string): void;
  notes(): readonly string[];
  /** How often files or policies were read and compiled. */
  reads(): number;
  /** Asks for a call under the policies that this gateway has; what stands in its way comes up to the store first. */
  call(): Promise<string>;
}

const closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

const ADMIN = administrator('maria');
const GATEWAY = { type: 'gateway', id: 'test' } as const;

function world(isFleet = true) {
  let time = 1_000_000;
  const clock = (): number => {
    time += 1;
    return time;
  };
  const store = mapStore(emptyRows(), clock);

  /** A gateway that starts with files that say so. */
  async function start(rule: string, folder = mkdtempSync(join(tmpdir(), 'svc-bundle-'))): Promise<Runner> {
    closers.push(async () => rmSync(folder, { recursive: true, force: true }));
    const configFile = join(folder, 'gateway.yaml');
    const write = (of: string, pool = ''): void =>
      writeFileSync(
        join(folder, 'policy.yaml'),
        `apiVersion: svc-gateway/v1\nkind: PolicySet\nname: a\nrules:\n  - { id: ${of}, effect: allow, match: { tools: [up.note] }${pool === '' ? '' : `, obligations: [ { reserve: { pool: ${pool}, units: 1 } } ]`} }\n`,
      );
    const configure = (user: string, pools = ''): void =>
      writeFileSync(
        configFile,
        `upstreams: [{ id: up, url: "http://127.0.0.1:9" }]\nusers: [{ id: ${user}, roles: [] }]\npools: [${pools}]\npolicies: { paths: ["${folder}/policy.yaml"] }\ntools:\n  - { name: up.note, title: Note, upstream: up, kind: write, action_type: note.add, request: { method: POST, path: /v1/notes, body: [text] } }\n`,
      );
    configure('maria');
    write(rule);
    const effects = createEffectStore(
      { ...store, ...ALONE },
      { retention: { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 }, keySeals: KEY_SEALS, maxFreezeMs: 0 },
    );
    let inForce = await readFiles(configFile, {});
    let reads = 0;
    const reader = new FileReader({ entry: null, longestMs: 60_000 });
    const reloader = new Reloader({
      configFile,
      environment: {},
      store: effects,
      seals: POLICY_SEALS,
      proposals: null,
      current: () => inForce,
      adopt: (next) => {
        inForce = next;
      },
      noted: (same) => {
        inForce = same;
      },
      reader: {
        close: () => reader.close(),
        suggest: (request) => reader.suggest(request),
        read(request) {
          reads += 1;
          return reader.read(request);
        },
      },
      owner: 'test',
      logger: createLogger({ level: 'fatal', sink: { write: () => undefined } }),
      metrics: { alerted: () => undefined },
    });
    closers.push(() => effects.close());
    closers.push(() => reloader.settled());
    const again = isFleet ? 'no' : 'after_files';
    if ((await activate(effects, inForce, { how: 'files', by: GATEWAY, again }, POLICY_SEALS)) !== null)
      await reloader.follow();
    effects.onPolicyChanged(() => void reloader.follow());
    const catchUp = followPolicy(() => inForce.policies.version, reloader);
    const agreement = new Agreement(null, () => inForce);
    return {
      store: effects,
      reloader,
      inForce: () => inForce,
      rules: () => inForce.policies.rules.map(({ id }) => id),
      write,
      configure,
      notes: () => agreement.notes().map(({ message }) => message),
      reads: () => reads,
      async call() {
        for (;;) {
          const seen = { policy: inForce.policies.version, pauses: 0 };
          const judgedBy = inForce.policies.rules.map(({ id }) => id).join();
          const admission = await effects.admit(admitRequest({ seen }));
          if (admission.kind !== 'stale') return `${admission.kind} by ${judgedBy}`;
          await catchUp(admission.versions.policy);
        }
      },
    };
  }
  return { start, runner: createStepRunner(store) };
}

const ruled = (gateways: readonly Runner[]): readonly (readonly string[])[] => gateways.map(({ rules }) => rules());

describe('policies of a fleet', () => {
  it('are what was put in force last, on every gateway; files that differ are named and stop nothing', async () => {
    const { start } = world();
    const all = [await start('one'), await start('one'), await start('one')];
    const [first, second, third] = all;
    first?.write('two');
    await first?.reloader.reload();
    await Promise.all(all.map(({ reloader }) => reloader.follow()));
    expect(ruled(all)).toEqual([['a/two'], ['a/two'], ['a/two']]);
    const calls = await Promise.all(all.map((gateway) => gateway.call()));
    expect(calls).toEqual(['dispatch by a/two', 'dispatch by a/two', 'dispatch by a/two']);
    expect(first?.notes()).toEqual([]);
    expect(second?.notes()).toEqual([expect.stringContaining('The policy files here')]);
    // The others get the same files; that is news to nobody.
    second?.write('two');
    await second?.reloader.reload();
    expect(second?.notes()).toEqual([]);
    // The newest wins, whoever has it.
    third?.write('three');
    await third?.reloader.reload();
    await Promise.all(all.map(({ reloader }) => reloader.follow()));
    expect(ruled(all)).toEqual([['a/three'], ['a/three'], ['a/three']]);
  });

  it('decide no call once others are in force: it waits for those', async () => {
    const { start } = world();
    const [first, second] = [await start('one'), await start('one')];
    expect(await second.call()).toBe('dispatch by a/one');
    first.write('two');
    await first.reloader.reload();
    // Whether or not the second gateway has heard of it.
    const calls = await Promise.all([second.call(), second.call(), first.call()]);
    expect(calls).toEqual(['dispatch by a/two', 'dispatch by a/two', 'dispatch by a/two']);
  });

  it('are brought into a workspace by the first of many calls, where the activation has not come there yet', async () => {
    const { start, runner } = world();
    const gateway = await start('one');
    await gateway.call();
    await runner.run(INSTALLATION, (draft) => {
      if (policyRows.get(draft, ONLY) !== 'another') policyRows.put(draft, ONLY, 'another');
    });
    const seen = { policy: 'another', pauses: 0 };
    const many = Array.from({ length: 8 }, () => gateway.store.admit(admitRequest({ seen })));
    expect((await Promise.all(many)).map(({ kind }) => kind)).toEqual(many.map(() => 'dispatch'));
  });

  it('are not turned back by a gateway that starts with files of before, nor by one whose configuration changes', async () => {
    const { start } = world();
    const [first, second] = [await start('one'), await start('one')];
    first.write('two');
    await first.reloader.reload();
    const late = await start('one');
    expect(late.rules()).toEqual(['a/two']);
    expect(late.notes()).toEqual([expect.stringContaining('not in force')]);
    second.configure('omar');
    await second.reloader.reload();
    expect(second.inForce().configuration.users.map(({ id }) => id)).toEqual(['omar']);
    expect(ruled([first, second, late])).toEqual([['a/two'], ['a/two'], ['a/two']]);
    // Files that were in force before come back when somebody says so.
    second.write('one');
    await second.reloader.reload();
    expect(second.rules()).toEqual(['a/two']);
    expect(await second.reloader.choose({ kind: 'files' }, ADMIN)).toMatchObject({ kind: 'active' });
    await Promise.all([first.reloader.follow(), late.reloader.follow()]);
    expect(ruled([first, second, late])).toEqual([['a/one'], ['a/one'], ['a/one']]);
  });

  it('go back to what was in force before, and that stands in history and ledger with who did it', async () => {
    const { start } = world();
    const [first, second] = [await start('one'), await start('one')];
    const one = first.inForce().policies.version;
    expect(await first.reloader.choose({ kind: 'before' }, ADMIN)).toEqual({ kind: 'not_kept' });
    first.write('two');
    await first.reloader.reload();
    const two = first.inForce().policies.version;
    await second.reloader.follow();
    const reads = first.reads();
    expect(await second.reloader.choose({ kind: 'before' }, ADMIN)).toEqual({ kind: 'active', version: one });
    await first.reloader.follow();
    expect(ruled([first, second])).toEqual([['a/one'], ['a/one']]);
    // What was in force there a moment ago is compiled already.
    expect(first.reads()).toBe(reads);
    // Each version keeps the text that it was made of, whatever the files of who chose it say.
    for (const [version, rule] of [
      [one, 'one'],
      [two, 'two'],
    ] as const)
      expect(await second.reloader.show(version)).toMatchObject({
        isProven: true,
        files: [{ text: expect.stringContaining(`id: ${rule},`) }],
      });
    expect(await first.reloader.choose({ kind: 'version', version: two }, ADMIN)).toEqual({
      kind: 'active',
      version: two,
    });
    const history = await first.store.policyHistory();
    expect(history.map(({ version, how, by }) => [version, how, by.id])).toEqual([
      [two, 'activate', PERSON.id],
      [one, 'rollback', PERSON.id],
      [two, 'files', 'test'],
      [one, 'files', 'test'],
    ]);
    const events = await first.store.ledger(INSTALLATION, 0, 100);
    const said = events.filter(({ kind }) => kind === 'policy.activated' || kind === 'policy.rolled_back');
    expect(said.map(({ kind, actor, data }) => [kind, actor, data['version'], data['before']])).toEqual([
      ['policy.activated', GATEWAY, one, null],
      ['policy.activated', GATEWAY, two, one],
      ['policy.rolled_back', PERSON, one, two],
      ['policy.activated', PERSON, two, one],
    ]);
  });

  it('that a gateway cannot compile stop it, with the reason, until its configuration fits', async () => {
    const { start } = world();
    const [first, other] = [await start('one'), await start('one')];
    first.configure('maria', '{ id: slots, units: 2 }');
    first.write('two', 'slots');
    await first.reloader.reload();
    await other.reloader.follow();
    expect(other.rules()).toEqual(['a/one']);
    expect(other.reloader.hindrance()).toContain('slots');
    await expect(other.call()).rejects.toBeInstanceOf(StoreUnavailable);
    expect(await first.call()).toBe('dispatch by a/two');
    other.configure('maria', '{ id: slots, units: 2 }');
    other.write('two', 'slots');
    await other.reloader.reload();
    expect(other.reloader.hindrance()).toBeNull();
    expect(await other.call()).toBe('dispatch by a/two');
  });

  it('that something else than a gateway put into the store are not taken on', async () => {
    const { start } = world();
    const [first, second] = [await start('one'), await start('one')];
    // The seal of another version.
    await first.store.activatePolicy('V'.repeat(43), [], {
      how: 'files',
      by: GATEWAY,
      again: 'yes',
      bundle: { version: 'V'.repeat(43), seal: POLICY_SEALS.seal('another'), parts: ['AAAA'] },
    });
    await second.reloader.follow();
    expect(second.rules()).toEqual(['a/one']);
    expect(second.reloader.hindrance()).toContain('VVVV');
    await expect(second.call()).rejects.toBeInstanceOf(StoreUnavailable);
  });

  it('whose parts were changed in the store are not taken on', async () => {
    const { start } = world();
    const first = await start('one');
    const evil = await start('two');
    const bundle = await evil.store.policyBundle(evil.inForce().policies.version);
    const version = 'E'.repeat(43);
    if (bundle === null) throw new Error('it is kept');
    // A right seal over a version, and the files of another one.
    await evil.store.activatePolicy(version, [], {
      how: 'files',
      by: GATEWAY,
      again: 'yes',
      bundle: { version, seal: POLICY_SEALS.seal(version), parts: bundle.parts },
    });
    await first.reloader.follow();
    expect(first.reloader.hindrance()).toContain('are not those of version');
  });

  it('are kept: an earlier version is put in force again', async () => {
    const { start } = world();
    const gateway = await start('r0');
    const oldest = gateway.inForce().policies.version;
    for (let n = 1; n <= 12; n += 1) {
      gateway.write(`r${n}`);
      await gateway.reloader.reload();
    }
    expect(await gateway.reloader.choose({ kind: 'version', version: 'none' }, ADMIN)).toEqual({ kind: 'not_kept' });
    expect(await gateway.reloader.choose({ kind: 'before' }, ADMIN)).toMatchObject({ kind: 'active' });
    expect(gateway.rules()).toEqual(['a/r11']);
    expect(await gateway.reloader.choose({ kind: 'version', version: oldest }, ADMIN)).toMatchObject({
      kind: 'active',
    });
    expect(gateway.rules()).toEqual(['a/r0']);
  });
});

describe('what the policies of a version said', () => {
  it('is shown while they are kept, and whether it is proven by the version; what no gateway sealed is not shown', async () => {
    const { start } = world();
    const gateway = await start('one');
    const first = gateway.inForce().policies.version;
    gateway.write('two');
    await gateway.reloader.reload();
    const shown = await gateway.reloader.show(first);
    expect(shown).toMatchObject({
      kind: 'shown',
      isProven: true,
      files: [{ text: expect.stringContaining('id: one') }],
    });
    const reads = gateway.reads();
    await gateway.reloader.show(first);
    expect(gateway.reads()).toBe(reads);
    expect(await gateway.reloader.show('N'.repeat(43))).toEqual({ kind: 'not_kept' });
    // To look changes nothing.
    expect(gateway.rules()).toEqual(['a/two']);

    const parts = (await gateway.store.policyBundle(first))?.parts ?? [];
    const put = (version: string, seal: string) =>
      gateway.store.activatePolicy(version, [], {
        how: 'files',
        by: GATEWAY,
        again: 'yes',
        bundle: { version, seal, parts },
      });
    await put('E'.repeat(43), POLICY_SEALS.seal('E'.repeat(43)));
    expect(await gateway.reloader.show('E'.repeat(43))).toMatchObject({ kind: 'shown', isProven: false });
    expect(await gateway.reloader.show(first)).toMatchObject({ kind: 'shown', isProven: true });
    await put('F'.repeat(43), POLICY_SEALS.seal('another'));
    expect(await gateway.reloader.show('F'.repeat(43))).toEqual({ kind: 'not_kept' });
  });

  it('who chooses files that do not hold is told why, and nothing changes', async () => {
    const { start } = world();
    const gateway = await start('one');
    gateway.write('two', 'nowhere');
    const { version } = gateway.inForce().policies;
    const chosen = await gateway.reloader.choose({ kind: 'files' }, ADMIN);
    expect(chosen).toEqual({ kind: 'refused', message: expect.stringContaining('nowhere') });
    expect([gateway.inForce().policies.version, await gateway.store.policyInForce()]).toEqual([version, version]);
  });
});

describe('policies of a gateway that is alone', () => {
  it('are those of its files, also where they were in force before', async () => {
    const { start } = world(false);
    const gateway = await start('one');
    for (const rule of ['two', 'one']) {
      gateway.write(rule);
      await gateway.reloader.reload();
      expect(gateway.rules()).toEqual([`a/${rule}`]);
    }
    expect((await start('two')).rules()).toEqual(['a/two']);
  });

  it('stay rolled back over a start, and over a change of the configuration', async () => {
    const { start } = world(false);
    const gateway = await start('one');
    gateway.write('two');
    await gateway.reloader.reload();
    await gateway.reloader.choose({ kind: 'before' }, ADMIN);
    gateway.configure('omar');
    await gateway.reloader.reload();
    expect(gateway.rules()).toEqual(['a/one']);
    expect((await start('two')).rules()).toEqual(['a/one']);
    // A new version of the files is what somebody wants now.
    gateway.write('three');
    await gateway.reloader.reload();
    expect(gateway.rules()).toEqual(['a/three']);
  });
});
