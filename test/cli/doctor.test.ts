import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statfsSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type CliPorts, CommandFailure, type StoreInspection } from '../../src/cli/ports.ts';
import { createKey } from '../../src/gateway/offline-keys.ts';
import { renderPinLock } from '../../src/pins/lock-file.ts';
import { makeCa } from '../upstream/certificates.ts';
import { svcWith } from './run.ts';

/** What the disk says is free; `null`: what it has. */
const free: { bytes: number | null } = vi.hoisted(() => ({ bytes: null }));
vi.mock('node:fs/promises', async (original) => {
  const files = await original<typeof import('node:fs/promises')>();
  const statfs = async (path: string) =>
    free.bytes === null ? files.statfs(path) : { bavail: free.bytes / 4096, bsize: 4096 };
  return { ...files, statfs };
});

const folder = mkdtempSync(join(tmpdir(), 'svc-doctor-'));
afterAll(() => rmSync(folder, { recursive: true }));

const file = join(folder, 'gateway.yaml');
/** A port that another program has, which answers as the gateway of this store might. */
let readiness: object = { ready: true };
const taken = createServer((_request, response) => response.end(JSON.stringify(readiness)));
let port = 0;
beforeAll(async () => {
  taken.listen(0, '127.0.0.1');
  await once(taken, 'listening');
  const address = taken.address();
  port = address !== null && typeof address === 'object' ? address.port : 0;
  configure(0);
});
afterAll(() => void taken.close());

const MASTER = join(folder, 'data', 'keys', 'master');

function configure(on: number): void {
  const lines = [
    `server: { port: ${on} }`,
    `store: { path: ${JSON.stringify(join(folder, 'data'))} }`,
    'upstreams: [ { id: one, url: "http://127.0.0.1:1" }, { id: two, url: "http://127.0.0.1:2" } ]',
  ];
  writeFileSync(file, lines.join('\n'));
  mkdirSync(join(folder, 'data', 'keys'), { recursive: true });
  writeFileSync(MASTER, 'a secret', { mode: 0o600 });
}

const KEYS = { administrative: 1, account: 1, agent: 1, profile: 0 } as const;
const SOUND: StoreInspection = { state: 'ready', problem: null, durability: 'fsync', inUse: false, keys: KEYS };

/** How the checks of these names come out, and the exit code. */
async function examined(
  names: readonly string[],
  store: Partial<StoreInspection> = {},
  dates: readonly (number | null)[] = [null, null],
) {
  const left = [...dates];
  const probeUpstream: CliPorts['probeUpstream'] = async () => ({
    kind: 'answered',
    status: 200,
    date: left.shift() ?? null,
  });
  const inspectStore: CliPorts['inspectStore'] = async () => ({ ...SOUND, ...store });
  const { code, out } = await svcWith({ probeUpstream, inspectStore }, 'doctor', file, '--json');
  const { checks }: { readonly checks: readonly { readonly name: string; status: string; detail: string }[] } =
    JSON.parse(out);
  const by = new Map(checks.map(({ name, status, detail }) => [name, `${status}: ${detail}`]));
  return [...names.map((name) => by.get(name)), code];
}

describe('svc doctor', () => {
  it.each([
    [{ keys: { ...KEYS, administrative: 0 } }, 'warning: 0 administrative, 1 account, 1 agent, 0 profile: nobody can'],
    [
      { keys: { ...KEYS, account: 0, agent: 0 } },
      'warning: 1 administrative, 0 account, 0 agent, 0 profile: no caller',
    ],
    [{ keys: { ...KEYS, account: 0, agent: 0, profile: 1 } }, 'ok: 1 administrative'],
    [{ state: 'absent' as const, keys: null }, 'skipped: made on the first start'],
    [{ keys: null }, 'skipped: not counted on Redis'],
    [{ state: 'broken' as const, keys: null }, 'skipped: the store cannot be read'],
  ])('counts keys: %j', async (store, says) => {
    expect(await examined(['keys'], store)).toEqual([expect.stringContaining(says), 0]);
  });

  it('says which variables are missing, and looks at all the rest; a key is made without those it does not need', async () => {
    const written = readFileSync(file, 'utf8');
    const webhook = 'webhooks: [ { name: desk, url: "https://desk.example.com/", secret: "${SVC_TEST_UNSET}" } ]';
    writeFileSync(file, `${written}\n${webhook}\n`);
    expect(await examined(['configuration', 'store', 'keys', 'port', 'upstream one', 'clock'])).toEqual([
      expect.stringMatching(/^failed: .*1 error[^]*The environment variable SVC_TEST_UNSET is not set/),
      'ok: durability fsync',
      expect.stringMatching(/^ok: /),
      expect.stringMatching(/^ok: /),
      expect.stringMatching(/^ok: .*answers/),
      expect.stringMatching(/^ok: /),
      1,
    ]);
    writeFileSync(file, `${written.replace('http://127.0.0.1:1', '${SVC_TEST_UNSET}')}\n${webhook}\n`);
    expect(await examined(['store', 'upstream one', 'upstreams'])).toEqual([
      'ok: durability fsync',
      undefined,
      'skipped: not asked: see the configuration',
      1,
    ]);
    const own = join(folder, 'own.yaml');
    const data = join(folder, 'own');
    writeFileSync(own, `store: { path: ${JSON.stringify(data)} }\nusers: [ { id: maria } ]\n${webhook}\n`);
    const asked = { configFile: own, environment: {}, workspace: null, agent: null, profile: null, name: null };
    const { record, notice } = await createKey({ ...asked, kind: 'administrative', user: 'maria' });
    expect([record['user_id'], notice]).toEqual(['maria', null]);
    // Of the store nothing is guessed.
    writeFileSync(own, 'store: { path: "${SVC_TEST_UNSET}" }\n');
    await expect(createKey({ ...asked, kind: 'administrative', user: 'maria' })).rejects.toThrow();
    writeFileSync(file, written);
  });

  it('fails where a store that was used has lost its master secret, and not where nothing was used yet', async () => {
    rmSync(MASTER);
    const missing = expect.stringMatching(/^failed: .*master is missing, and the store was used with one$/);
    expect(await examined(['master secret'])).toEqual([missing, 1]);
    const unused = { administrative: 0, account: 0, agent: 0, profile: 0 };
    for (const keys of [unused, null])
      expect(await examined(['master secret'], { keys })).toEqual([expect.stringMatching(/^ok: .*not there yet/), 0]);
    configure(0);
  });

  it('fails where the store does, with what the store says', async () => {
    const problem = { message: 'it is older than it was', remedy: 'svc store accept-loss' };
    expect(await examined(['store'], { state: 'broken', problem })).toEqual(['failed: it is older than it was', 1]);
    const told = { ...problem, message: 'Run svc store accept-loss. Or: svc store accept-time --config FILE.' };
    expect(await examined(['store'], { state: 'broken', problem: told })).toEqual([
      `failed: Run svc store accept-loss --config ${file}. Or: svc store accept-time --config ${file}.`,
      1,
    ]);
    const checkStore: CliPorts['checkStore'] = () => Promise.reject(new CommandFailure(told.message));
    const { err } = await svcWith({ checkStore }, 'fsck', '--config', file);
    expect(err).toContain(`svc store accept-loss --config ${file}.`);
    expect(await examined(['store'], { inUse: true })).toEqual(['ok: durability fsync, in use by a gateway', 0]);
    expect(await examined(['store'], { state: 'absent' })).toEqual(['ok: not there yet; the first start makes it', 0]);
  });

  it('a port that is taken is in order where a gateway runs on this store, and nowhere else', async () => {
    configure(port);
    expect(await examined(['port'], { inUse: true })).toEqual([
      `ok: 127.0.0.1:${port} is taken, and a gateway runs on this store`,
      0,
    ]);
    expect(await examined(['port'])).toEqual([`failed: 127.0.0.1:${port} is taken by another program`, 1]);
    const unread = { state: 'broken', inUse: null } as const;
    expect(await examined(['port', 'gateway'], unread)).toEqual([
      `warning: 127.0.0.1:${port} is taken; whether by the gateway of this store cannot be told`,
      expect.stringMatching(/^skipped: .*cannot be told/),
      0,
    ]);
    configure(0);
  });

  it('asks the gateway that runs how it is', async () => {
    expect(await examined(['gateway'])).toEqual(['skipped: none runs on this store', 0]);
    configure(port);
    const full = { part: 'store', message: 'The disk is full.' };
    for (const [said, found, code] of [
      [{ ready: true }, 'ok: takes calls', 0],
      [{ ready: true, notes: [full] }, 'warning: takes calls: The disk is full.', 0],
      [{ ready: false, parts: [full] }, 'failed: takes no calls: The disk is full.', 1],
      [{}, `failed: http://127.0.0.1:${port} does not answer as a gateway does: it answers 200 with something else`, 1],
    ] as const) {
      readiness = said;
      expect(await examined(['gateway'], { inUse: true })).toEqual([found, code]);
    }
    readiness = { ready: true };
    configure(0);
    expect(await examined(['gateway'], { inUse: true })).toEqual([expect.stringMatching(/^skipped: runs/), 0]);
  });

  it('asks it on this machine where it listens on every address', async () => {
    configure(port);
    writeFileSync(file, readFileSync(file, 'utf8').replace('server: {', 'server: { host: 0.0.0.0,'));
    const asked = vi.spyOn(globalThis, 'fetch');
    expect(await examined(['gateway'], { inUse: true })).toEqual(['ok: takes calls', 0]);
    expect(asked.mock.calls.map(([address]) => address)).toEqual([new URL(`http://127.0.0.1:${port}/readyz`)]);
    asked.mockRestore();
    configure(0);
    expect(await examined(['port'])).toEqual(['ok: chosen by the system', 0]);
  });

  it('asks it in the form that an address of IPv6 has, and not where only those with a certificate are answered', async () => {
    const asked = vi.spyOn(globalThis, 'fetch').mockImplementation(async () => Response.json({ ready: true }));
    try {
      for (const host of ['::', '::1']) {
        configure(port);
        writeFileSync(file, readFileSync(file, 'utf8').replace('server: {', `server: { host: "${host}",`));
        expect(await examined(['gateway'], { inUse: true })).toEqual(['ok: takes calls', 0]);
      }
      expect(asked.mock.calls.map(([address]) => address)).toEqual(
        [1, 2].map(() => new URL(`http://[::1]:${port}/readyz`)),
      );
      const { cert, key } = makeCa('ca').issue('localhost');
      const [certFile, keyFile] = [join(folder, 'cert.pem'), join(folder, 'key.pem')];
      writeFileSync(certFile, cert);
      writeFileSync(keyFile, key, { mode: 0o600 });
      const tls = `server: { tls: { cert: "${certFile}", key: "${keyFile}" },`;
      writeFileSync(file, readFileSync(file, 'utf8').replace('server: {', tls));
      expect(await examined(['gateway'], { inUse: true })).toEqual([expect.stringMatching(/^skipped: runs/), 0]);
      expect(asked).toHaveBeenCalledTimes(2);
    } finally {
      asked.mockRestore();
      configure(0);
    }
  });

  it('an address that this machine does not have is told from one that is taken', async () => {
    configure(port);
    writeFileSync(file, readFileSync(file, 'utf8').replace('server: {', 'server: { host: 192.0.2.1,'));
    expect(await examined(['port'])).toEqual([`failed: 192.0.2.1:${port} cannot be bound (EADDRNOTAVAIL)`, 1]);
    configure(0);
  });

  it('starts no program to see whether it answers', async () => {
    const lock = join(folder, 'own.lock.json');
    writeFileSync(lock, renderPinLock({ upstream: 'own', server: null, instructions: null, tools: [] }));
    const upstream = `{ id: own, mcp: { command: [no-such-program], pins: "${lock}" } }`;
    writeFileSync(file, readFileSync(file, 'utf8').replace('upstreams: [', `upstreams: [ ${upstream},`));
    expect((await examined(['upstream own']))[0]).toBe('ok: runs no-such-program, once for each session');
    configure(0);
  });

  it('fails where an upstream does not answer, with why and what to mend', async () => {
    const probeUpstream: CliPorts['probeUpstream'] = async ({ id }) =>
      id === 'one' ? { kind: 'answered', status: 404, date: null } : { kind: 'silent', why: 'nobody listens' };
    const inspectStore: CliPorts['inspectStore'] = async () => SOUND;
    const { code, out } = await svcWith({ probeUpstream, inspectStore }, 'doctor', file);
    expect(code).toBe(1);
    expect(out).toMatch(/^ok +upstream one +\S+ answers \(HTTP 404\) in \d+ ms$/m);
    expect(out).toMatch(
      /^FAIL upstream two +\S+ does not answer: nobody listens\n +to mend it: start it, or mend url/m,
    );
  });

  it('asks it at the port for operators where there is one', async () => {
    readiness = { ready: true };
    configure(0);
    writeFileSync(file, readFileSync(file, 'utf8').replace('port: 0', `port: 1, admin_port: ${port}`));
    expect(await examined(['gateway'], { inUse: true })).toEqual(['ok: takes calls', 0]);
    configure(0);
  });

  it('fails where others may read the master secret, also only those of its group', async () => {
    for (const mode of [0o640, 0o604]) {
      chmodSync(MASTER, mode);
      expect(await examined(['master secret'])).toEqual([
        `failed: ${MASTER} can be read by others (mode ${mode.toString(8)})`,
        1,
      ]);
    }
    configure(0);
    chmodSync(MASTER, 0o600);
    expect(await examined(['master secret'])).toEqual([`ok: ${MASTER}, mode 600`, 0]);
  });

  it('warns where a backup beside the store has no room, and of no room that is enough', async () => {
    const store = join(folder, 'data', 'store.db');
    writeFileSync(store, '');
    const { bavail, bsize } = statfsSync(folder);
    const words = /GiB free under /;
    expect(await examined(['disk'])).toEqual([expect.stringMatching(words), 0]);
    // Without its content it takes no room here.
    truncateSync(store, bavail * bsize + 1024 ** 3);
    expect(await examined(['disk'])).toEqual([expect.stringMatching(/^warning: .* GiB free under /), 0]);
    rmSync(store);
  });

  it.each([
    [64 * 1024 ** 2 - 4096, /^failed: 0\.1 GiB free under /, 1],
    [64 * 1024 ** 2, /^warning: 0\.1 GiB free under /, 0],
    [1024 ** 3 - 4096, /^warning: 1\.0 GiB free under /, 0],
    [1024 ** 3, /^ok: 1\.0 GiB free under /, 0],
  ])('of %i bytes that are free it says so', async (bytes, line, code) => {
    free.bytes = bytes;
    expect(await examined(['disk'])).toEqual([expect.stringMatching(line), code]);
    free.bytes = null;
  });

  it('fails where the clock shows a time before the product was made', async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: Date.UTC(2025, 11, 31) });
    try {
      expect(await examined(['clock'])).toEqual(['failed: the clock says 2025-12-31T00:00:00.000Z', 1]);
    } finally {
      vi.useRealTimers();
    }
  });

  it('warns of a clock that is half a minute from that of any upstream', async () => {
    const now = Date.now();
    expect(await examined(['clock'], {}, [now - 20_000, now + 20_000])).toEqual(['ok: agrees with the upstreams', 0]);
    for (const off of [-40_000, 40_000])
      expect(await examined(['clock'], {}, [now, now + off])).toEqual([
        expect.stringMatching(/^warning: (39|40|41) s away/),
        0,
      ]);
    expect(await examined(['clock'])).toEqual(['ok: plausible', 0]);
  });
});
