import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { startWorld } from './world.ts';

it('the heap of a gateway grows less than V8 would let it: 2.8 times what it held before, not 3.8', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'svc-grows-'));
  const file = join(folder, 'grew.json');
  const grows = join(import.meta.dirname, 'grows.mjs');
  const world = await startWorld({ env: { GROWS_FILE: file, NODE_OPTIONS: `--import=${grows}` } });
  try {
    await expect.poll(() => existsSync(file), { timeout: 60_000, interval: 250 }).toBe(true);
    expect(JSON.parse(readFileSync(file, 'utf8')).ratio).toBeLessThan(3.3);
  } finally {
    await world.close();
    await rm(folder, { recursive: true });
  }
});
