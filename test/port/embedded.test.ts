import { rmSync } from 'node:fs';
import { afterAll } from 'vitest';
import { type EmbeddedRowsOptions, openEmbeddedRows } from '../../src/stores/embedded/rows/open.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import { reopening } from '../contract/reopening.ts';
import { compileStore } from '../stores/compiled.ts';
import type { PortFixture } from './changes.ts';
import { describePort } from './port-contract.ts';

const compiled = compileStore([]);
afterAll(() => compiled.remove());

async function fixture(
  open: typeof openEmbeddedRows,
  parts: Pick<EmbeddedRowsOptions, 'worker' | 'clock'>,
): Promise<Omit<PortFixture, 'setClock'>> {
  const path = storeFolder();
  const options: EmbeddedRowsOptions = { path, lockWaitMs: 0, ...parts };
  return reopening(
    () => open(options),
    () => rmSync(path, { recursive: true }),
  );
}

describePort(
  'the embedded store in this thread',
  async () => {
    let now = 1_750_000_000_000;
    const opened = await fixture(openEmbeddedRows, { worker: 'never', clock: () => now });
    return Object.assign(opened, {
      setClock(at: number) {
        now = Math.max(now, at);
      },
    });
  },
  null,
);

describePort(
  'the embedded store in a thread of its own',
  async () => Object.assign(await fixture(await compiled.openEmbeddedRows(), { worker: 'auto' }), { setClock: null }),
  'the thread runs by the machine’s clock',
);
