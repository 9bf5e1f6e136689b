import { execFile } from 'node:child_process';
import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { startWorld } from './world.ts';

/** Root may write everywhere, unless it goes without its capabilities. */
const WITHOUT_RIGHTS = process.getuid?.() === 0 ? ['setpriv', '--bounding-set=-all', '--inh-caps=-all'] : [];

/** What the command writes where the system does not let it write. */
function withoutRights(...words: readonly string[]): Promise<string> {
  const [command = '', ...rest] = [...WITHOUT_RIGHTS, process.execPath, 'bin/svc.mjs', ...words];
  return new Promise((done) => {
    execFile(command, rest, (_, out, err) => done(out + err));
  });
}

it('doctor says of a store that it may not write what is wrong, and what to do', async () => {
  const world = await startWorld();
  const folder = world.gateway.dataFolder;
  try {
    await world.gateway.stop();
    const file = join(folder, 'doctor.yaml');
    await writeFile(
      file,
      `store: { kind: embedded, path: "${folder}" }\nworkspaces: [ { id: demo } ]\npolicies: { paths: ["${world.gateway.policyFolder}"] }\nupstreams: [ { id: payments, url: "http://127.0.0.1:9" } ]\n`,
    );
    await chmod(folder, 0o555);
    const out = await withoutRights('doctor', file);
    expect(out).toMatch(/FAIL store .*lock of the store cannot be taken.*has to own the folder/);
    // A backup in its place would lose what happened since, and another folder would send it again.
    expect(out).toContain(`Run this as the user that owns ${folder}`);
    expect(out).not.toMatch(/svc restore|store\.path/);
    expect(out).toMatch(/-  +gateway +whether one runs on this store cannot be told/);
  } finally {
    await chmod(folder, 0o700);
    await world.close();
  }
});
