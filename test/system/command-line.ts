import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Fleet } from './fleet.ts';

const run = promisify(execFile);
const launcher = join(process.cwd(), 'bin', 'svc.mjs');

/** What a command said. */
export interface Said {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** Runs the command line as a process, where and as a gateway of a fleet runs. */
export async function svc(folder: string, env: Record<string, string>, ...words: readonly string[]): Promise<Said> {
  try {
    const { stdout, stderr } = await run(
      process.execPath,
      [launcher, ...words, '--config', join(folder, 'gateway.yaml')],
      {
        cwd: folder,
        env: {
          ...process.env,
          SVC_TEST_DATA: join(folder, 'data'),
          SVC_TEST_POLICIES: join(folder, 'policies'),
          ...env,
        },
      },
    );
    return { code: 0, out: stdout, err: stderr };
  } catch (error) {
    const { code, stdout, stderr } = error as {
      readonly code: number;
      readonly stdout: string;
      readonly stderr: string;
    };
    return { code, out: stdout, err: stderr };
  }
}

/** Runs a command in the place of a gateway of a fleet. */
export function svcBeside(fleet: Fleet, gateway: number, ...words: readonly string[]): Promise<Said> {
  const beside = fleet.gateways[gateway];
  if (beside === undefined) throw new Error(`there is no gateway ${gateway}`);
  return svc(beside.folder, { SVC_TEST_SHARED: fleet.shared }, ...words);
}
