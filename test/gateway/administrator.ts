import type { Principal } from '../../src/effects/model/principal.ts';

/** An administrative key. @param user `null`: it belongs to nobody */
export function administrator(
  user: string | null,
  given: { readonly keyId?: string; readonly madeBy?: string | null; readonly keyCreatedAt?: number } = {},
): Principal {
  return {
    kind: 'administrative',
    keyId: `key_${user ?? 'nobody'}`,
    user,
    madeBy: null,
    keyCreatedAt: 1,
    readOnly: false,
    allowedTools: null,
    ...given,
  };
}
