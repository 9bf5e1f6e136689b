import { once } from 'node:events';
import { access, constants, stat, statfs } from 'node:fs/promises';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import type { Command } from 'commander';
import type { Configuration } from '../config/configuration.ts';
import { storeFolder } from '../config/resolve-store.ts';
import { type CliContext, namingConfig } from './command.ts';
import { type Check, type CliPorts, CommandFailure, type StoreInspection } from './ports.ts';
import { readiness } from './status.ts';
import { json, styled, type Terminal } from './terminal.ts';

const REACH_MS = 3000;
const ROOM_BYTES = 1024 ** 3;
/** With less, a burst of calls is refused before the write-ahead log is brought into the file of the store. */
const LEAST_BYTES = 64 * 1024 ** 2;
const SKEW_MS = 30_000;
/** A clock that shows an earlier time is wrong: the product did not exist then. */
const EARLIEST = Date.UTC(2026, 0, 1);

/** `svc doctor`: checks everything that a start depends on. Changes nothing. */
export function addDoctor(program: Command, { ports, terminal, exit }: CliContext): void {
  program
    .command('doctor')
    .description('check configuration, upstreams, store, clock, port and keys; every failure says how to mend it')
    .argument('[file]', 'the configuration', 'gateway.yaml')
    .option('--json', 'print JSON')
    .action(async (file: string, options: { readonly json?: true }) => {
      const checks = await diagnose(file, ports);
      if (options.json) terminal.out(json({ checks }));
      else for (const check of checks) show(terminal, check);
      if (checks.some((check) => check.status === 'failed')) exit(1);
    });
}

async function diagnose(file: string, ports: CliPorts): Promise<readonly Check[]> {
  const { checkFiles, usablePart } = await import('./check-files.ts');
  const { configuration: whole, exit, findings, text } = await checkFiles(file, { environment: {}, color: false });
  // A variable that is not set here says nothing against the store.
  const configuration = whole ?? (await usablePart(file));
  const remedy = `mend the file; svc config check ${file} says the same`;
  const summary = sumFirst(text);
  const files: Check =
    exit !== 0
      ? failed('configuration', summary, remedy)
      : findings.length > 0
        ? warning('configuration', summary, remedy)
        : ok('configuration', summary);
  if (configuration === null) return [ok('node', `Node.js ${process.versions.node}`), files];
  const store = await ports.inspectStore({ configFile: file, environment: {} });
  const answers = await Promise.all(configuration.upstreams.map((upstream) => reach(upstream, ports)));
  return [
    ok('node', `Node.js ${process.versions.node}`),
    files,
    storeCheck(file, store),
    await folderCheck(storeFolder(configuration.store), store),
    await secretCheck(configuration.secrets.masterFile, store),
    keyCheck(file, store),
    await portCheck(configuration, store),
    await gatewayCheck(configuration, store),
    ...(whole === null && answers.length === 0 ? [skipped('upstreams', 'not asked: see the configuration')] : []),
    ...answers.map((answer) => answer.check),
    clockCheck(answers.flatMap((answer) => (answer.date === null ? [] : [answer.date]))),
  ];
}

/** The result of a check of files, with its last line, the summary, first. */
function sumFirst(text: string): string {
  const lines = text.trimEnd().split('\n');
  return [lines.at(-1) ?? '', ...lines.slice(0, -1)].join('\n').trimEnd();
}

function storeCheck(file: string, { state, problem, durability, inUse }: StoreInspection): Check {
  if (problem !== null) return failed('store', namingConfig(problem.message, file), problem.remedy);
  if (state === 'absent') return ok('store', 'not there yet; the first start makes it');
  return ok('store', `durability ${durability ?? 'unknown'}${inUse ? ', in use by a gateway' : ''}`);
}

/** Free space and write permission in the folder of the store. */
async function folderCheck(path: string, { state }: StoreInspection): Promise<Check> {
  let folder = path;
  for (;;) {
    try {
      await access(folder, constants.W_OK | constants.X_OK);
      break;
    } catch (error) {
      const absent = error instanceof Error && 'code' in error && error.code === 'ENOENT';
      if (!absent || dirname(folder) === folder)
        return failed(
          'disk',
          `${folder} cannot be written by this user`,
          state === 'absent'
            ? 'give the folder to the user of the gateway, or name another in store.path (Redis: store.journal)'
            : 'give the folder to the user of the gateway, and see that its disk is mounted for writing; in another folder calls that ran would be sent again',
        );
      folder = dirname(folder);
    }
  }
  const { bavail, bsize } = await statfs(folder);
  const free = bavail * bsize;
  const words = `${(free / 1024 ** 3).toFixed(1)} GiB free under ${folder}`;
  if (free < LEAST_BYTES)
    return failed('disk', words, 'make room: without it writes are refused (503), and nothing is sent');
  const { size } = await stat(join(path, 'store.db')).catch(() => ({ size: 0 }));
  const much = 'a full disk stops all writes, and a backup beside the store needs as much as it has; make room';
  return free < Math.max(ROOM_BYTES, size) ? warning('disk', words, much) : ok('disk', words);
}

async function secretCheck(file: string, { keys }: StoreInspection): Promise<Check> {
  const found = await stat(file).catch(() => null);
  // A store with keys was used with a master secret, and does not start with another one.
  if (found === null && keys !== null && Object.values(keys).some((count) => count > 0))
    return failed(
      'master secret',
      `${file} is missing, and the store was used with one`,
      'put it back from your copy, and the signing keys with it; without it no key is accepted, and no params can be read',
    );
  if (found === null) return ok('master secret', `${file} is not there yet; the first start makes it`);
  const mode = found.mode & 0o777;
  if ((mode & 0o077) === 0) return ok('master secret', `${file}, mode ${mode.toString(8)}`);
  return failed(
    'master secret',
    `${file} can be read by others (mode ${mode.toString(8)})`,
    `chmod 600 ${file}; if others may have read it, rotate it`,
  );
}

function keyCheck(file: string, { state, keys }: StoreInspection): Check {
  if (state === 'absent') return skipped('keys', 'made on the first start');
  if (keys === null) return skipped('keys', state === 'ready' ? 'not counted on Redis' : 'the store cannot be read');
  const words = `${keys.administrative} administrative, ${keys.account} account, ${keys.agent} agent, ${keys.profile} profile`;
  const make = (kind: string): string => `svc keys create --config ${file} --kind ${kind}`;
  if (keys.administrative === 0)
    return warning('keys', `${words}: nobody can make keys over HTTP`, make('administrative'));
  if (keys.agent + keys.account + keys.profile === 0)
    return warning('keys', `${words}: no caller has a key`, `${make('agent')} --agent <id>`);
  return ok('keys', words);
}

async function portCheck({ server }: Configuration, { inUse }: StoreInspection): Promise<Check> {
  const where = `${server.host}:${server.port}`;
  const probe = createServer();
  try {
    probe.listen(server.port, server.host);
    await once(probe, 'listening');
    return ok('port', server.port === 0 ? 'chosen by the system' : `${where} is free`);
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
    if (code === 'EADDRINUSE' && inUse) return ok('port', `${where} is taken, and a gateway runs on this store`);
    if (code === 'EADDRINUSE' && inUse === null)
      return warning(
        'port',
        `${where} is taken; whether by the gateway of this store cannot be told`,
        'let the store be read first (above), and stop nothing before',
      );
    if (code === 'EADDRINUSE')
      return failed('port', `${where} is taken by another program`, 'stop it, or choose another server.port');
    if (code === 'EACCES') return failed('port', `${where} needs more rights`, 'choose a server.port above 1023');
    return failed('port', `${where} cannot be bound (${code})`, 'name an address of this machine in server.host');
  } finally {
    probe.close();
  }
}

/** What the gateway that runs on the store says of itself: only it knows what it cannot write. */
async function gatewayCheck({ server }: Configuration, { inUse }: StoreInspection): Promise<Check> {
  if (inUse === null) return skipped('gateway', 'whether one runs on this store cannot be told; svc status asks it');
  if (!inUse) return skipped('gateway', 'none runs on this store');
  const port = server.adminPort ?? server.port;
  if (port === 0 || (server.tls !== null && server.adminPort === null))
    return skipped('gateway', 'runs; svc status asks it how it is');
  const host = { '0.0.0.0': '127.0.0.1', '::': '::1' }[server.host] ?? server.host;
  try {
    const address = `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
    const { ready, parts = [], notes = [] } = await readiness(address);
    const said = [...parts, ...notes].map(({ message }) => message).join('\n');
    if (!ready) return failed('gateway', `takes no calls: ${said}`, 'mend what it names; it goes on by itself');
    return notes.length === 0 ? ok('gateway', 'takes calls') : warning('gateway', `takes calls: ${said}`, 'svc status');
  } catch (error) {
    if (!(error instanceof CommandFailure)) throw error;
    return failed('gateway', error.message, 'look at its log; it may listen elsewhere, by svc start --port');
  }
}

/** Sends HEAD without credentials, to see whether the upstream answers at all. */
async function reach(
  upstream: Configuration['upstreams'][number],
  ports: CliPorts,
): Promise<{ readonly check: Check; readonly date: number | null }> {
  const { id, url } = upstream;
  const name = `upstream ${id}`;
  const child = upstream.mcp?.child ?? null;
  if (child !== null) return { check: ok(name, `runs ${child.command}, once for each session`), date: null };
  const sent = performance.now();
  const probed = await ports.probeUpstream(upstream, REACH_MS);
  if (probed.kind === 'answered') {
    const ms = Math.round(performance.now() - sent);
    return { check: ok(name, `${url} answers (HTTP ${probed.status}) in ${ms} ms`), date: probed.date };
  }
  const remedy = 'start it, or mend url or tls of the upstream; calls to it fail and change nothing';
  return { check: failed(name, `${url} does not answer: ${probed.why}`, remedy), date: null };
}

function clockCheck(dates: readonly number[]): Check {
  const now = Date.now();
  if (now < EARLIEST)
    return failed('clock', `the clock says ${new Date(now).toISOString()}`, 'set it, and keep it with NTP');
  const off = dates.find((date) => Math.abs(date - now) > SKEW_MS);
  if (off === undefined) return ok('clock', dates.length > 0 ? 'agrees with the upstreams' : 'plausible');
  const seconds = Math.round(Math.abs(off - now) / 1000);
  return warning(
    'clock',
    `${seconds} s away from an upstream's`,
    'keep both with NTP; receipts and schedules show this clock',
  );
}

function show(terminal: Terminal, { name, status, detail, remedy }: Check): void {
  const marks = {
    ok: ['green', 'ok  '],
    warning: ['yellow', 'warn'],
    failed: ['red', 'FAIL'],
    skipped: ['dim', '-   '],
  } as const;
  const [style, mark] = marks[status];
  const [first = '', ...more] = detail.split('\n');
  terminal.out(`${styled(terminal, style, mark)} ${name.padEnd(18)} ${styled(terminal, 'bold', first)}`);
  for (const line of more) terminal.out(`     ${styled(terminal, 'dim', line)}`);
  if (remedy !== null) terminal.out(`     to mend it: ${styled(terminal, 'bold', remedy)}`);
}

/** Makes checks of a status that needs nobody. */
function quiet(status: 'ok' | 'skipped') {
  return (name: string, detail: string): Check => ({ name, status, detail, remedy: null });
}

/** Makes checks of a status that somebody has to do something about. */
function loud(status: 'warning' | 'failed') {
  return (name: string, detail: string, remedy: string): Check => ({ name, status, detail, remedy });
}

const [ok, skipped, warning, failed] = [quiet('ok'), quiet('skipped'), loud('warning'), loud('failed')];
