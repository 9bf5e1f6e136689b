import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { until } from '../redis/servers.ts';
import { startGateway, type TestFiles, type TestGateway } from '../system/gateway.ts';
import { type Disk, makeDisk } from './disk.ts';

/** Named points at which a gateway can be made to die or freeze; see `torture-gateway.mjs`. */
const DYING_POINTS = [
  'before_admit',
  'after_admit',
  'before_write',
  'during_send',
  'after_send',
  'before_settle',
  'after_settle',
  'before_resolve',
  'after_resolve',
] as const;
const FREEZING_POINTS = ['after_admit', 'before_write', 'during_send', 'before_settle'] as const;

/** How long a point is waited for; at a point that nobody passes the gateway is killed instead, ms. */
const POINT_MS = 1500;

/** How far its clock is set forward or back, ms. */
const JUMP_MS = 3_600_000;

/** A gateway process that is broken in every way and always comes back, at the same address, on the same disk. */
export interface Victim {
  readonly url: string;
  readonly disk: Disk;
  /** The process as it is now. */
  gateway(): TestGateway;
  /** Times that a process was killed. */
  kills(): number;
  kill(): Promise<void>;
  freeze(ms: number): Promise<void>;
  /** Killed, started again, and ended by itself at one of the named points. */
  dieAtPoint(random: () => number): Promise<void>;
  /** Killed, started again, and stopped at one of the named points for so long. */
  freezeAtPoint(random: () => number, ms: number): Promise<void>;
  /** Its wall clock jumps, by up to an hour forward or back. */
  shiftClock(random: () => number): Promise<void>;
  /** What it logged at level error, all its lives through, but for answers 502 to 504. */
  complaints(): readonly string[];
  /** Runs a command of `svc` where and as the gateway runs. */
  command(...words: readonly string[]): Promise<{ readonly code: number; readonly out: string }>;
  dispose(): Promise<void>;
}

/** Starts one on a disk of its own, which stands for `SVC_TEST_DATA` in the configuration. */
export async function startVictim(files: TestFiles, shared: string): Promise<Victim> {
  const disk = await makeDisk();
  const clock = join(disk.folder, 'clock');
  await writeFile(clock, '0');
  // Read anew at each start: a point is armed for one life.
  const env: Record<string, string> = {
    SVC_TEST_SHARED: shared,
    SVC_TORTURE_CLOCK: clock,
    NODE_OPTIONS: `--import ${pathToFileURL(join(process.cwd(), 'test', 'torture', 'shift-clock.mjs')).href}`,
  };
  const config = files.config.replaceAll('${SVC_TEST_DATA}', join(disk.folder, 'data'));
  let gateway = await startGateway(
    { ...files, config },
    { env, entry: join(process.cwd(), 'test', 'torture', 'torture-gateway.mjs') },
  );
  let kills = 0;
  let logs = '';
  // A run that is broken off leaves none behind.
  const killNow = (): void => gateway.kill('SIGKILL');
  process.once('exit', killNow);

  async function restart(): Promise<void> {
    logs += gateway.log();
    gateway = await gateway.restart();
  }

  async function end(): Promise<void> {
    kills += 1;
    gateway.kill('SIGKILL');
    await until(() => stateOf(gateway.pid) === null);
  }

  /** Starts it with a point armed, and waits until the process is in `state`. @returns whether it came to that */
  async function armed(point: string, state: 'T' | null): Promise<boolean> {
    await end();
    env['SVC_FAILPOINT'] = point;
    await restart();
    delete env['SVC_FAILPOINT'];
    return until(() => stateOf(gateway.pid) === state, POINT_MS).then(
      () => true,
      () => false,
    );
  }

  const victim: Omit<Victim, 'url'> = {
    disk,
    gateway: () => gateway,
    kills: () => kills,
    async kill() {
      await end();
      await restart();
    },
    async freeze(ms) {
      gateway.kill('SIGSTOP');
      await pause(ms);
      gateway.kill('SIGCONT');
    },
    async dieAtPoint(random) {
      const died = await armed(`die@${pick(DYING_POINTS, random)}:${1 + Math.floor(random() * 20)}`, null);
      if (died) kills += 1;
      else await end();
      await restart();
    },
    async freezeAtPoint(random, ms) {
      const frozen = await armed(`freeze@${pick(FREEZING_POINTS, random)}:${1 + Math.floor(random() * 20)}`, 'T');
      if (frozen) {
        await pause(ms);
        gateway.kill('SIGCONT');
      } else await victim.kill();
    },
    async shiftClock(random) {
      await writeFile(clock, String(Math.round((random() * 2 - 1) * JUMP_MS)));
    },
    // 502, 503 and 504 are what the harness provokes.
    complaints: () =>
      (logs + gateway.log())
        .split('\n')
        .filter((line) => line !== '' && !/"status":50[234],.*"msg":"request"/.test(line)),
    async command(...words) {
      const { configFile, folder, policyFolder } = gateway;
      const launcher = join(process.cwd(), 'bin', 'svc.mjs');
      const options = {
        cwd: folder,
        env: { ...process.env, SVC_TEST_POLICIES: policyFolder, SVC_TEST_SHARED: shared },
      };
      try {
        const { stdout } = await promisify(execFile)(
          process.execPath,
          [launcher, ...words, '--config', configFile],
          options,
        );
        return { code: 0, out: stdout };
      } catch (error) {
        const { code, stdout } = error as { readonly code: number; readonly stdout: string };
        return { code, out: stdout };
      }
    },
    async dispose() {
      process.off('exit', killNow);
      await gateway.dispose();
      await disk.remove();
    },
  };
  return { ...victim, url: gateway.url };
}

function pick(points: readonly string[], random: () => number): string {
  return points[Math.floor(random() * points.length)] ?? '';
}

/** The letter by which Linux says what a process does (`T`: stopped); `null` when there is none any more. */
export function stateOf(pid: number): string | null {
  try {
    return /^\d+ \(.*\) (\w)/s.exec(readFileSync(`/proc/${pid}/stat`, 'utf8'))?.[1] ?? null;
  } catch {
    return null;
  }
}
