import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { checkWorkspace } from '../src/effects/upkeep/fsck.ts';
import type { EffectStore } from '../src/effects/store.ts';
import { openEmbeddedStore } from '../src/gateway/embedded-store.ts';
import { UNJUDGED } from '../src/gateway/key-seals.ts';

/** At the end of a test, whatever it did: every workspace is as its ledger says. */
export async function expectSilentFsck(store: EffectStore): Promise<void> {
  for (const workspace of new Set(['demo', ...(await store.workspaces())]))
    expect({ workspace, fsck: await checkWorkspace(store, workspace) }).toEqual({ workspace, fsck: [] });
}

/** The same for the embedded store of a gateway that has ended; where it has none, nothing is looked at. */
export async function expectSilentFsckIn(dataFolder: string): Promise<void> {
  if (!existsSync(join(dataFolder, 'store.db'))) return;
  const retention = { keysMs: null, effectsMs: Number.MAX_SAFE_INTEGER, denialsMs: Number.MAX_SAFE_INTEGER };
  const store = await openEmbeddedStore({
    path: dataFolder,
    lockWaitMs: 0,
    worker: 'never',
    retention,
    keySeals: UNJUDGED,
  });
  try {
    await expectSilentFsck(store);
  } finally {
    await store.close();
  }
}
