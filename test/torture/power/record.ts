import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, mkdirSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** What is recorded: processes on one folder, one after the other. */
export interface Run {
  readonly prefix: string;
  readonly calls: number;
  /** `kill`: it dies by SIGKILL at its end, without closing anything. */
  readonly end: 'close' | 'kill';
  /** The sync of the store's journal that fails; `null`: none. */
  readonly failedSync: number | null;
}

export interface Recording {
  readonly log: Buffer;
  readonly root: string;
}

/** Compiles the recorder; a C compiler is needed. */
export function compileRecorder(folder: string): string {
  const library = join(folder, 'recorder.so');
  const source = join(fileURLToPath(new URL('../../..', import.meta.url)), 'test/torture/power/recorder.c');
  execFileSync('cc', ['-shared', '-fPIC', '-O2', '-o', library, source, '-ldl'], { stdio: 'inherit' });
  return library;
}

/**
 * Runs the workload and records its disk.
 * @param lie the disk says that it has synced files with this end of the name, and has not
 */
export function record(library: string, workload: string, runs: readonly Run[], lie: string | null = null): Recording {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'svc-power-')));
  const root = join(folder, 'disk');
  const log = join(folder, 'log');
  mkdirSync(root);
  try {
    for (const { prefix, calls, end, failedSync } of runs) {
      const env: NodeJS.ProcessEnv = {
        ...process.env,
        LD_PRELOAD: library,
        SVC_POWER_ROOT: root,
        SVC_POWER_LOG: log,
        SVC_POWER_END: end,
        // What Node writes for itself is no part of the disk.
        NODE_DISABLE_COMPILE_CACHE: '1',
      };
      if (failedSync !== null) env['SVC_POWER_FAIL'] = `${failedSync}:-wal`;
      if (lie !== null) env['SVC_POWER_LIE'] = lie;
      const { status, signal } = spawnSync(process.execPath, [workload, root, prefix, String(calls)], {
        env,
        stdio: ['ignore', 'inherit', 'inherit'],
        timeout: 120_000,
        killSignal: 'SIGABRT',
      });
      const killed = end === 'kill' || failedSync !== null;
      if (killed ? signal !== 'SIGKILL' : status !== 0)
        throw new Error(`the workload ${prefix} ended with ${signal ?? status}`);
    }
    return { log: readFileSync(log), root };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
