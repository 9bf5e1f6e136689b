import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it, vi } from 'vitest';
import { StoreUnavailable } from '../../src/effects/store.ts';
import { RETENTION } from '../contract/fixture.ts';
import { dispatched, WORKSPACE } from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import { compileStore } from './compiled.ts';

/*
 * A thread of the store that dies, and whose next ones die too: each takes the first letter of a file beside the store.
 * r: it says that it cannot; e: it ends before it has said anything; o: it ends with the store open, before it says so.
 */

const compiled = compileStore([]);
const WORKER = 'src/stores/threads/worker.ts';
const BEGINS = `if (data.kind === 'write') {`;
compiled.alter(
  WORKER,
  BEGINS,
  `${BEGINS}
   const { existsSync, readFileSync, writeFileSync } = await import('node:fs');
   const file = data.path + '.ways';
   const ways = existsSync(file) ? readFileSync(file, 'utf8') : '';
   var way = ways[0];
   if (way === 'd') setInterval(() => { if (readFileSync(file, 'utf8') !== 'd') process.exit(5); }, 2);
   else if (way !== undefined) writeFileSync(file, ways.slice(1));
   if (way === 'r') throw new Error('no disk');
   if (way === 'e') process.exit(3);`,
);
compiled.alter(
  WORKER,
  `serve(engine.handlers, {`,
  `if (way === 'o') { await new Promise((go) => setTimeout(go, 300)); process.exit(4); }
   serve(engine.handlers, {`,
);
const open = await compiled.openEmbeddedStore();
const folders: string[] = [];
afterAll(() => {
  compiled.remove();
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

it.each(['', 'rr', 'ee', 'oo', 'reo', 'rrrr'])(
  'a thread that dies is followed by one that works, after others that die (%s)',
  async (ways) => {
    const folder = mkdtempSync(join(tmpdir(), 'restarts-'));
    folders.push(folder);
    const path = join(folder, 'store');
    writeFileSync(`${path}.ways`, 'd');
    const store = await open({ path, lockWaitMs: 0, worker: 'auto', retention: RETENTION, keySeals: KEY_SEALS });
    const { effect } = await dispatched(store);
    writeFileSync(`${path}.ways`, ways);
    await vi.waitFor(() => expect(store.health().ready).toBe(false), { interval: 1 });
    const refusedWhile: boolean[] = [];
    const reasons = new Set<string | undefined>();
    await vi.waitFor(
      async () => {
        const { ready, problem } = store.health();
        reasons.add(problem?.message);
        await store.effect(WORKSPACE, effect.id).catch((error: unknown) => {
          refusedWhile.push(ready);
          expect(error).toBeInstanceOf(StoreUnavailable);
          throw error;
        });
      },
      { timeout: 20_000, interval: 5 },
    );
    // What /readyz says is what becomes of calls.
    expect(new Set(refusedWhile)).toEqual(new Set([false]));
    if (ways.includes('r')) expect([...reasons].join('; ')).toContain('no disk');
    expect(store.health()).toMatchObject({ ready: true, problem: null });
    await store.close();
    // Closed on purpose: nothing is wrong with it, and whoever still asks is told why there is no answer.
    expect(store.health().problem).toBeNull();
    await expect(dispatched(store)).rejects.toThrow('The store is closed.');
    await store.close();
  },
);
