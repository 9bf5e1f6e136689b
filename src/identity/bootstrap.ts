import type { KeyObject } from 'node:crypto';
import type { EffectStore } from '../effects/store.ts';
import { makeKey, parseKey } from './key-format.ts';
import { recordOf } from './key-record.ts';

/**
 * Puts the first administrative key into an empty store. There is no default key.
 * @param options.provided reads the file that `SVC_BOOTSTRAP_ADMIN_KEY_FILE` names, where a key is needed; `null` makes one
 * @throws Error when the text is not an administrative key; the message does not contain the text
 */
export async function bootstrapAdministrativeKey(options: {
  readonly store: Pick<EffectStore, 'keys' | 'putFirstKey' | 'now' | 'health'>;
  readonly pepper: KeyObject;
  readonly provided: () => Promise<string | null>;
}): Promise<
  /** The store has keys already, or must not get any (an "empty" store next to existing data). */
  | { readonly made: false; readonly key: null }
  /** `key`: to be shown once; `null` where the operator provided the key. */
  | { readonly made: true; readonly key: string | null }
> {
  const { store, pepper } = options;
  if (!store.health().ready || (await store.keys(null)).length > 0) return { made: false, key: null };
  const text = await options.provided();
  const provided = text === null ? null : providedKey(text);
  const key = provided ?? makeKey('administrative');
  const record = recordOf(
    key,
    {
      kind: 'administrative',
      name: 'First administrative key',
      user: null,
      madeBy: null,
      workspace: null,
      agentId: null,
      profile: null,
      scopes: [],
      allowedTools: null,
      readOnly: false,
    },
    null,
    { pepper, now: store.now() },
  );
  // Gateways that start at the same time all see an empty store. `putFirstKey` lets only one of them put its key.
  if (!(await store.putFirstKey(record, { type: 'gateway', id: 'bootstrap' }))) return { made: false, key: null };
  return { made: true, key: provided === null ? key.key : null };
}

function providedKey(text: string): { readonly key: string; readonly handle: string } {
  const key = text.trim();
  const parsed = parseKey(key);
  if (parsed === null || parsed.kind !== 'administrative')
    throw new Error(
      'The file that SVC_BOOTSTRAP_ADMIN_KEY_FILE names does not hold an administrative key (svc_admin_…, 60 characters). ' +
        'Leave the variable out once and the gateway makes one.',
    );
  return { key, handle: parsed.handle };
}
