import { Type } from 'typebox';
import type { Passkey } from '../effects/model/passkey.ts';
import { ledgerActor } from '../effects/model/principal.ts';
import { optionalTimeToWire, timeToWire } from '../effects/wire/time.ts';
import { type ApiApp, type Caller, guarded } from './app.ts';
import { callerOf } from './caller.ts';
import type { Lists } from './lists.ts';
import type { ApiPorts } from './ports.ts';
import { refuse } from './problem.ts';
import { answers, List, Nullable, record, Time } from './schema.ts';

const PASSKEYS = '/v1/beta/users/:user_id/passkeys';
const OfUser = Type.Object({ user_id: Type.String({ description: 'Whose they are.' }) });
const OneOfUser = Type.Object({ user_id: Type.String(), passkey_id: Type.String() });

const PasskeyOnWire = record('Passkey', 'A passkey of a user, without what it is checked by.', {
  id: Type.String({ examples: ['psk_Zk3c0vJr1wQ8sT5uX2yA4b'] }),
  name: Type.String(),
  user_id: Type.String(),
  key_id: Type.String({ description: 'Who signs in with it may do what this key, or its successor, may.' }),
  workspace: Nullable(Type.String()),
  synced: Type.Boolean({ description: 'Whether it can be on several devices.' }),
  backed_up: Type.Boolean(),
  created_at: Time,
  last_used_at: Nullable(Time),
});
const PasskeyList = Type.Object({ passkeys: List(PasskeyOnWire) });

export function passkeyToWire(passkey: Passkey) {
  return {
    id: passkey.id,
    name: passkey.name,
    user_id: passkey.user,
    key_id: passkey.keyId,
    workspace: passkey.workspace,
    synced: passkey.isSynced,
    backed_up: passkey.isBackedUp,
    created_at: timeToWire(passkey.createdAt),
    last_used_at: optionalTimeToWire(passkey.lastUsedAt),
  };
}

/** `/v1/beta/users/{user_id}/passkeys`: list and remove. One is added in a browser, on the console. */
export function addPasskeyRoutes(app: ApiApp, { store }: Pick<ApiPorts, 'store'>, lists: Lists): void {
  const listPasskeys = guarded('passkeys.read', {
    operationId: 'listPasskeys',
    summary: 'List the passkeys of a user',
    params: OfUser,
    response: answers({ 200: PasskeyList }),
  });
  app.get(PASSKEYS, listPasskeys, async (request, reply) => {
    const caller = callerOf(request);
    const user = userFor(caller, request.params.user_id);
    return lists.make(caller, async () =>
      lists.send(reply, PasskeyList, 'passkeys', await store.passkeys(user), passkeyToWire, {}),
    );
  });

  const removePasskey = guarded('passkeys.write', {
    operationId: 'removePasskey',
    summary: 'Remove a passkey of a user; it signs in no more, and its sessions end',
    params: OneOfUser,
    response: answers({ 200: PasskeyOnWire }),
  });
  app.delete(`${PASSKEYS}/:passkey_id`, removePasskey, async (request) => {
    const caller = callerOf(request);
    const { user_id: of, passkey_id: id } = request.params;
    const removed = await store.removePasskey(userFor(caller, of), id, ledgerActor(caller.principal));
    if (removed === null) throw refuse('not_found', 'This user has no such passkey.');
    return passkeyToWire(removed);
  });
}

/** The user whose passkeys are asked for. @throws Refused where they are another's, and the key is not administrative */
function userFor({ principal, view }: Caller, user: string): string {
  if (view.kind !== 'any' && principal.user !== user)
    throw refuse('wrong_key_kind', 'Passkeys of other users take an administrative key.');
  return user;
}
