import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { EffectStore } from '../../src/effects/store.ts';
import type { EmbeddedOptions } from '../../src/gateway/embedded-store.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import type { OpenStore } from './fixture.ts';
import { reopening } from './reopening.ts';

/** Where fsync costs nothing: what a promise says does not depend on the medium. */
const MEMORY = '/dev/shm';

/** A folder for a store that the test removes. */
export function storeFolder(): string {
  return mkdtempSync(join(existsSync(MEMORY) ? MEMORY : tmpdir(), 'svc-store-'));
}

/** Opens embedded stores for the contract, each in a folder of its own. */
export function embeddedIn(
  open: (options: EmbeddedOptions) => Promise<EffectStore>,
  worker: EmbeddedOptions['worker'],
): OpenStore {
  return async ({ retention, clock }) => {
    const path = storeFolder();
    const options: EmbeddedOptions = {
      path,
      lockWaitMs: 0,
      worker,
      retention,
      keySeals: KEY_SEALS,
      ...(worker === 'never' ? { clock } : {}),
    };
    return reopening(
      () => open(options),
      () => rmSync(path, { recursive: true }),
    );
  };
}
