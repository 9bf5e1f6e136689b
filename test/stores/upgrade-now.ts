import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';

/*
 * Brings a store forward in a process of its own: `upgrade-now.js FOLDER [N]`. With N the process kills itself before the
 * Nth point: a call that changes the folder or syncs, or the end of a slice.
 */
const [, , path = '', at] = process.argv;
let points = 0;

function point(): void {
  if (at !== undefined && points === Number(at)) process.kill(process.pid, 'SIGKILL');
  points += 1;
}

/** Before and after it: between two calls only the database is written. */
function watched<Args extends readonly unknown[], Answer>(call: (...args: Args) => Answer): (...args: Args) => Answer {
  return (...args) => {
    point();
    return call(...args);
  };
}

fs.renameSync = watched(fs.renameSync);
fs.linkSync = watched(fs.linkSync);
fs.rmSync = watched(fs.rmSync);
fs.fsyncSync = watched(fs.fsyncSync);
syncBuiltinESMExports();
const later = globalThis.setImmediate;
Object.assign(globalThis, {
  setImmediate(callback: () => void) {
    point();
    return later(callback);
  },
});

const { upgradeStore } = await import('../../src/upgrade/upgrade-store.ts');
try {
  await upgradeStore(path, 2000);
  process.exit(0);
} catch (error) {
  process.stderr.write(error instanceof Error ? error.message : String(error));
  process.exit(1);
}
