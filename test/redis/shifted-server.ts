import { execFileSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type RedisServer, startRedis } from './servers.ts';

/** A server whose wall clock a test sets. */
export interface ShiftedServer extends RedisServer {
  /** Sets it ahead of this machine's, ms; also while the server is down. */
  setAhead(ms: number): void;
}

/** Starts a server with a library before it that shifts its clock; a C compiler is needed. */
export async function startShifted(): Promise<ShiftedServer> {
  const folder = mkdtempSync(join(tmpdir(), 'svc-clock-'));
  const library = join(folder, 'shift-clock.so');
  const file = join(folder, 'ahead');
  const source = join(import.meta.dirname, 'shift-clock.c');
  execFileSync('cc', ['-shared', '-fPIC', '-O2', '-o', library, source, '-ldl'], { stdio: 'inherit' });
  const ahead = openSync(file, 'w');
  function setAhead(ms: number): void {
    const bytes = Buffer.alloc(8);
    bytes.writeBigInt64LE(BigInt(ms));
    writeSync(ahead, bytes, 0, 8, 0);
  }
  setAhead(0);
  const server = await startRedis([], false, { LD_PRELOAD: library, SVC_TEST_CLOCK: file });
  return Object.assign(server, {
    setAhead,
    stop: onceStopped(server, () => {
      closeSync(ahead);
      rmSync(folder, { recursive: true });
    }),
  });
}

function onceStopped({ stop }: RedisServer, then: () => void): () => Promise<void> {
  return async () => {
    await stop();
    then();
  };
}
