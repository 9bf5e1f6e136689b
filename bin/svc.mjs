#!/usr/bin/env node
/**
 * Launcher. In a clone it builds first where `dist/` is absent or older than the sources, so that `npx svc …` works
 * right after `npm ci --ignore-scripts`; installed without sources it only runs. Its own words go to standard error:
 * standard output belongs to the command.
 */
import { spawn } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath, pathToFileURL } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const entry = join(root, 'dist', 'bundle', 'main.js');
const stamp = join(root, 'dist', '.built');
const sources = [
  'src',
  'packages',
  'client/src',
  'tsconfig.json',
  'tsconfig.build.json',
  'client/tsconfig.json',
  'client/tsconfig.cjs.json',
  'console',
];

const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < 20 || (major === 20 && minor < 19)) fail(`needs Node.js 20.19 or later; this is ${process.versions.node}`);
if (existsSync(join(root, 'src')) && !isFresh()) await buildOnce().catch((error) => fail(error.message));

const { main } = await import(pathToFileURL(entry).href);
process.exitCode = await main(process.argv.slice(2));
// A command that failed half-way may leave a handle open; nothing may keep the process from ending.
setTimeout(() => process.exit(), 1000).unref();

/** Whether the last build began after the newest change of a source. */
function isFresh() {
  const built = modified(stamp);
  return built > 0 && existsSync(entry) && sources.every((path) => newest(join(root, path)) <= built);
}

/** Newest modification under a path, folders included (a file that went away shows in its folder). */
function newest(path) {
  const at = modified(path);
  if (at === 0 || !statSync(path).isDirectory()) return at;
  let latest = at;
  for (const item of readdirSync(path)) latest = Math.max(latest, newest(join(path, item)));
  return latest;
}

function modified(path) {
  return statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;
}

/** Builds under a lock; whoever comes meanwhile waits and takes what was built. */
async function buildOnce() {
  const lock = join(root, 'node_modules', '.cache', 'svc-build');
  for (let waited = 0; !take(lock); waited += 1) {
    if (waited === 0) say('another process is building; waiting for it');
    await sleep(100);
  }
  try {
    if (isFresh()) return;
    const tsc = compiler();
    const began = new Date();
    say(existsSync(stamp) ? 'sources have changed; building' : 'first start; building');
    await run(process.execPath, join(root, 'client', 'build.mjs'));
    await Promise.all([
      run(process.execPath, tsc, '-p', join(root, 'tsconfig.build.json')),
      existsSync(join(root, 'console')) ? run(process.execPath, join(root, 'console', 'build.mjs')) : undefined,
    ]);
    await run(process.execPath, join(root, 'src', 'copy-assets.mjs'));
    await run(process.execPath, join(root, 'src', 'bundle.mjs'));
    writeFileSync(stamp, '');
    utimesSync(stamp, began, began);
    say(`built in ${((Date.now() - began.getTime()) / 1000).toFixed(1)} s`);
  } finally {
    giveBack(lock);
  }
}

/** Out of the way in one step: while it is emptied, another process may take the lock, and would not be removed with it. */
function giveBack(lock) {
  const over = `${lock}.over.${process.pid}`;
  renameSync(lock, over);
  rmSync(over, { recursive: true, force: true });
}

/** Takes the lock: a folder that holds its owner's process id, moved into place whole. A dead owner's is put away. */
function take(lock) {
  const mine = `${lock}.${process.pid}`;
  mkdirSync(mine, { recursive: true });
  writeFileSync(join(mine, 'pid'), String(process.pid));
  try {
    renameSync(mine, lock);
    return true;
  } catch (error) {
    rmSync(mine, { recursive: true, force: true });
    if (!['EEXIST', 'ENOTEMPTY', 'EPERM'].includes(error.code)) throw error;
  }
  const owner = ownerOf(lock);
  // An owner with this process's own id is an earlier life of it (ids repeat in containers).
  if (owner === null || (owner !== process.pid && isAlive(owner))) return false;
  const away = `${lock}.stale.${process.pid}`;
  try {
    renameSync(lock, away);
    // Between the look and the move a new owner may have come: then it is moved back, and waited for.
    if (ownerOf(away) === owner) rmSync(away, { recursive: true, force: true });
    else renameSync(away, lock);
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
  }
  return false;
}

function ownerOf(lock) {
  try {
    return Number(readFileSync(join(lock, 'pid'), 'utf8')) || null;
  } catch {
    return null;
  }
}

function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === 'EPERM';
  }
}

function compiler() {
  try {
    return join(dirname(createRequire(import.meta.url).resolve('typescript/package.json')), 'bin', 'tsc');
  } catch {
    throw new Error('there is no build, and no compiler to make one; run `npm ci` in the folder of the package first');
  }
}

/** Runs a child whose output goes to standard error; rejects when it fails. */
function run(command, ...args) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd: root, stdio: ['ignore', 2, 2] });
    child.on('error', (error) => reject(new Error(`cannot run ${command}: ${error.message}`)));
    child.on('exit', (code) =>
      code === 0 ? resolve() : reject(new Error('the build failed; what is wrong stands above')),
    );
  });
}

function say(words) {
  process.stderr.write(`svc: ${words}\n`);
}

function fail(words) {
  say(words);
  process.exit(2);
}
