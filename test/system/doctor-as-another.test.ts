import { execFile } from 'node:child_process';
import { chmod, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect, it } from 'vitest';
import { startWorld } from './world.ts';

/** What the command writes where it runs as a user who owns nothing. */
function asNobody(...words: readonly string[]): Promise<string> {
  return new Promise((done) => {
    execFile(process.execPath, ['bin/svc.mjs', ...words], { uid: 65_534, gid: 65_534 }, (_, text) => done(text));
  });
}

it.skipIf(process.getuid?.() !== 0)(
  'doctor says of a store that belongs to somebody else what is wrong, and what to do',
  async (context) => {
    if (!(await asNobody('--version')).startsWith('0.')) return context.skip('nobody else may read this folder');
    const world = await startWorld();
    try {
      await world.gateway.stop();
      const folder = world.gateway.dataFolder;
      const file = join(folder, 'doctor.yaml');
      for (const open of [dirname(folder), folder, world.gateway.policyFolder]) await chmod(open, 0o755);
      await chmod(join(world.gateway.policyFolder, 'world.yaml'), 0o644);
      await writeFile(
        file,
        `store: { kind: embedded, path: "${folder}" }\nworkspaces: [ { id: demo } ]\npolicies: { paths: ["${world.gateway.policyFolder}"] }\nupstreams: [ { id: payments, url: "http://127.0.0.1:9" } ]\n`,
      );
      const out = await asNobody('doctor', file);
      expect(out).toMatch(/FAIL store .*lock of the store cannot be taken.*has to own the folder/);
      // A backup in its place would lose what happened since, and another folder would send it again.
      expect(out).toContain(`Run this as the user that owns ${folder}`);
      expect(out).not.toMatch(/svc restore|store\.path/);
      expect(out).toMatch(/-  +gateway +whether one runs on this store cannot be told/);
    } finally {
      await world.close();
    }
  },
);
