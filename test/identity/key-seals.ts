import { createSecretKey } from 'node:crypto';
import { createKeySeals } from '../../src/secrets/key-seals.ts';

/** Seals of keys for a store that no gateway with a master secret of its own opens. */
export const KEY_SEALS = createKeySeals([{ id: 'tests', key: createSecretKey(Buffer.alloc(32, 7)) }]);
