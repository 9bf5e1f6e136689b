import { spawn } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeEach, describe, expect, test } from 'vitest';

/** The launcher, the compiler and the client are the real ones; what is launched is one small file. */
const root = process.cwd();
const folders: string[] = [];
let home: string;

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'svc-launcher-'));
  folders.push(home);
  mkdirSync(join(home, 'src'));
  mkdirSync(join(home, 'node_modules'));
  for (const name of [
    'typescript',
    '@typescript',
    '@types',
    'undici-types',
    '@scalar',
    'rolldown',
    '@rolldown',
    '@oxc-project',
  ])
    if (existsSync(join(root, 'node_modules', name)))
      symlinkSync(join(root, 'node_modules', name), join(home, 'node_modules', name));
  for (const path of ['bin', 'package.json', 'tsconfig.json', 'tsconfig.build.json'])
    cpSync(join(root, path), join(home, path), { recursive: true });
  for (const path of ['build.mjs', 'package.json', 'tsconfig.json', 'tsconfig.cjs.json', 'src'])
    cpSync(join(root, 'client', path), join(home, 'client', path), { recursive: true });
  // The build's last steps copy what the compiler leaves out, and bundle.
  for (const path of ['bundle.mjs', 'copy-assets.mjs', 'stores/redis/scripts'])
    cpSync(join(root, 'src', path), join(home, 'src', path), { recursive: true });
  // What the bundle begins with besides the entry that is launched.
  const entries = readFileSync(join(root, 'src', 'bundle.mjs'), 'utf8').matchAll(/'src\/([\w/-]+)\.js'/g);
  for (const [, name = ''] of entries) {
    if (name === 'main') continue;
    const entry = `${name}.ts`;
    mkdirSync(dirname(join(home, 'src', entry)), { recursive: true });
    writeFileSync(join(home, 'src', entry), 'export {};\n');
  }
  write('one');
});

afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

/** Has another process take the lock in the middle of its removal, when it is empty. */
const TAKER = `
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
const { rmSync } = fs;
fs.rmSync = (path, options) => {
  if (!path.includes('svc-build')) return rmSync(path, options);
  const lock = path.replace(/svc-build.*/, 'svc-build');
  fs.unlinkSync(path + '/pid');
  fs.mkdirSync(lock + '.next');
  fs.writeFileSync(lock + '.next/pid', '1');
  fs.renameSync(lock + '.next', lock);
  fs.rmdirSync(path);
};
syncBuiltinESMExports();
`;

function write(word: string, more = ''): void {
  const file = join(home, 'src', 'main.ts');
  writeFileSync(
    file,
    `export async function main(argv: readonly string[]): Promise<number> {\n  console.log('${word}', ...argv);\n  return argv.length;\n}\n${more}`,
  );
  const later = new Date(Date.now() + 1000);
  utimesSync(file, later, later);
}

interface Launched {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

function launch(...argv: readonly string[]): Promise<Launched> {
  return launchWith(process.env, ...argv);
}

function launchWith(env: NodeJS.ProcessEnv, ...argv: readonly string[]): Promise<Launched> {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, [join(home, 'bin', 'svc.mjs'), ...argv], { cwd: tmpdir(), env });
    let out = '';
    let err = '';
    child.stdout.on('data', (chunk: Buffer) => {
      out += chunk.toString();
    });
    child.stderr.on('data', (chunk: Buffer) => {
      err += chunk.toString();
    });
    child.on('close', (code) => resolve({ code, out, err }));
  });
}

/** As if the sources had been there for a while: the next build is newer than they are. */
function age(): void {
  const earlier = new Date(Date.now() - 60_000);
  utimesSync(join(home, 'src', 'main.ts'), earlier, earlier);
}

describe('in a clone', () => {
  test('builds first, from any folder; its words are not on standard output; arguments and exit code pass through', async () => {
    age();
    const first = await launch('a', 'b');
    expect(first.err).toMatch(/^svc: first start; building\nsvc: built in /);
    expect(first).toMatchObject({ out: 'one a b\n', code: 2 });
    const second = await launch();
    expect(second).toEqual({ code: 0, out: 'one\n', err: '' });
  });

  test('builds again when a source is newer', async () => {
    age();
    await launch();
    write('two');
    const { out, err } = await launch();
    expect(err).toMatch(/sources have changed; building/);
    expect(out).toBe('two\n');
  });

  test('several at once build once', async () => {
    age();
    const all = await Promise.all([launch(), launch(), launch()]);
    expect(all.map(({ out }) => out)).toEqual(['one\n', 'one\n', 'one\n']);
    expect(all.filter(({ err }) => err.includes('building\n'))).toHaveLength(1);
  });

  test('a lock whose owner is dead is put away', async () => {
    age();
    const lock = join(home, 'node_modules', '.cache', 'svc-build');
    mkdirSync(lock, { recursive: true });
    const dead = spawn(process.execPath, ['-e', '']);
    await new Promise((resolve) => dead.on('close', resolve));
    writeFileSync(join(lock, 'pid'), String(dead.pid));
    expect(await launch()).toMatchObject({ out: 'one\n', code: 0 });
    expect(existsSync(lock)).toBe(false);
  });

  test('who takes the lock while it is given back has it, and its owner goes on', async () => {
    age();
    const taker = join(home, 'taker.mjs');
    writeFileSync(taker, TAKER);
    const env = { ...process.env, NODE_OPTIONS: `${process.env['NODE_OPTIONS'] ?? ''} --import=${taker}` };
    expect(await launchWith(env)).toMatchObject({ out: 'one\n', code: 0 });
    expect(readdirSync(join(home, 'node_modules', '.cache'))).toEqual(['svc-build']);
    expect(readFileSync(join(home, 'node_modules', '.cache', 'svc-build', 'pid'), 'utf8')).toBe('1');
  });

  test('what does not build is not run', async () => {
    write('three', 'const broken: number = "text";\n');
    const { code, out, err } = await launch();
    expect(err).toMatch(/src\/main\.ts\(5,7\): error TS/);
    expect(err).toMatch(/svc: the build failed/);
    expect({ code, out }).toEqual({ code: 2, out: '' });
  });

  test('without a compiler it says what to do', async () => {
    rmSync(join(home, 'node_modules'), { recursive: true });
    const { code, err } = await launch();
    expect(err).toMatch(/^svc: there is no build, and no compiler to make one; run `npm ci`/);
    expect(code).toBe(2);
  });
});

test('installed without sources it only runs', async () => {
  age();
  await launch();
  for (const name of ['src', 'node_modules', 'client/src']) rmSync(join(home, name), { recursive: true });
  expect(await launch('x')).toEqual({ code: 1, out: 'one x\n', err: '' });
});

test('a command that leaves something open ends all the same', async () => {
  write('open', 'setInterval(() => undefined, 1000);\n');
  age();
  expect(await launch('x')).toMatchObject({ code: 1, out: 'open x\n' });
});

test('npm start is the gateway’s own process in the end: who stops npm stops the gateway', async () => {
  writeFileSync(
    join(home, 'src', 'main.ts'),
    `export function main(): Promise<number> {\n  console.log('pid', process.pid);\n  setInterval(() => undefined, 1000);\n  return new Promise(() => undefined);\n}\n`,
  );
  age();
  const npm = spawn('npm', ['start'], { cwd: home, stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = new Promise((resolve) => npm.on('close', resolve));
  let out = '';
  for await (const chunk of npm.stdout) {
    out += String(chunk);
    if (/pid \d+\n/.test(out)) break;
  }
  const pid = Number(/pid (\d+)\n/.exec(out)?.[1]);
  expect(() => process.kill(pid, 0)).not.toThrow();
  npm.kill('SIGTERM');
  try {
    await ended;
    await expect.poll(() => isRunning(pid), { timeout: 40_000 }).toBe(false);
  } finally {
    if (isRunning(pid)) process.kill(pid, 'SIGKILL');
  }
});

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
