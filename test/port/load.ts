import { openSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { openEmbeddedRows } from '../../src/stores/embedded/open.ts';
import { changeOf, eventOf, putOf, sumOf } from './changes.ts';

/**
 * A load on a store of rows, in a process that a test can kill: `load.js FOLDER PREFIX CALLS`. Each line on standard output
 * (under the recorder of the power cuts: in the file `marks`) is an acknowledgement: `open`, `begun ID`, `ended ID`. As the
 * product, it ends by SIGKILL when a sync has failed.
 */
const [folder = '', prefix = '', callsText = ''] = process.argv.slice(2);

const CALLERS = 24;
const calls = Number(callsText);
const marks = process.env['SVC_POWER_ROOT'] === undefined ? 1 : openSync(join(folder, 'marks'), 'a');

const mark = (...words: readonly string[]): void => {
  const line = Buffer.from(`${words.join(' ')}\n`);
  for (let written = 0; written < line.length; )
    try {
      written += writeSync(marks, line, written);
    } catch (error) {
      // Whoever reads is slow, and what was acknowledged has to be said: the store waits as well.
      if (!(error instanceof Error && 'code' in error && error.code === 'EAGAIN')) throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
    }
};

const workspace = 'load';
const CLOSED = [{ list: 'closed', at: 1 }];
const store = await openEmbeddedRows({ path: join(folder, 'data', 'store'), lockWaitMs: 10_000, worker: 'auto' });
const { epoch } = await store.read(workspace, [], []);
mark('open');

let begun = 0;
async function caller(): Promise<void> {
  while (begun < calls) {
    begun += 1;
    const id = `${prefix}-${begun}`;
    const running = [{ list: 'running', at: begun }];
    const first = await store.commit(
      changeOf(workspace, epoch, {
        id: `${id}-a`,
        puts: [
          putOf('key', `key-${id}`, id),
          putOf('thing', id, 'x'.repeat(1_500), { enter: [{ list: 'all', at: begun }, ...running] }),
        ],
        sums: [sumOf('budget', { hold: 3, limit: 1e9 })],
        events: [eventOf('begun', id), eventOf('sent', id)],
      }),
    );
    if (first.kind !== 'done') throw new Error(`not begun: ${JSON.stringify(first)}`);
    mark('begun', id);
    const put = putOf('thing', id, 'y'.repeat(2_500), { version: `${id}-a`, leave: running, enter: CLOSED });
    const last = await store.commit(
      changeOf(workspace, epoch, {
        id: `${id}-b`,
        puts: [put],
        sums: [sumOf('budget', { hold: -3, spend: 3 })],
        events: [eventOf('answered', id), eventOf('signed', id), eventOf('ended', id)],
      }),
    );
    if (last.kind !== 'done') throw new Error(`not ended: ${JSON.stringify(last)}`);
    mark('ended', id);
  }
}

try {
  await Promise.all(Array.from({ length: CALLERS }, caller));
} catch (error) {
  if (store.health().problem?.code !== 'store_sync_failed') throw error;
  process.kill(process.pid, 'SIGKILL');
}
if (process.env['SVC_POWER_END'] === 'kill') process.kill(process.pid, 'SIGKILL');
await store.close();
