import type { KeySeals } from '../effects/model/key.ts';
import { INSTALLATION, type LedgerActor } from '../effects/model/ledger.ts';
import { type Answered, MOST_PASSKEYS, type Passkey, passkeyAdded, passkeyRemoved } from '../effects/model/passkey.ts';
import type { PasskeyStore } from '../effects/passkey-store.ts';
import type { RowStore } from '../stores/port.ts';
import type { Draft } from './draft.ts';
import { jsonKind, repository, textKind } from './kind.ts';
import { appendTo, runInstalling } from './outbox.ts';
import { readRecord, type StepRunner } from './runner.ts';

/** All passkeys of a user, and which challenges they have answered lately: one row, so that one step sees both. */
interface OfUser {
  readonly passkeys: readonly Passkey[];
  readonly answered: readonly Answered[];
}

const passkeyRows = repository(jsonKind<OfUser & { readonly seal?: string }>('passkeys', () => []));
/** Whose a passkey is. It only says where to look. */
const ownerRows = repository(textKind('passkey_owner'));

const NONE: OfUser = { passkeys: [], answered: [] };
/** Challenges of one user that are remembered. Nobody answers as many in the minutes that they are good. */
const MOST_ANSWERED = 100;

/** Passkeys in the installation. Their events are in the ledger of the key that they belong to. */
export function createPasskeyStore(
  store: RowStore,
  runner: StepRunner,
  seals: KeySeals,
  newId: () => string,
): PasskeyStore {
  async function of(user: string): Promise<readonly Passkey[]> {
    return sound(seals, user, await readRecord(runner, passkeyRows, INSTALLATION, user)).passkeys;
  }

  const run = <Result>(step: (draft: Draft) => Result): Promise<Result> => runInstalling(store, runner, step);

  return {
    passkeys: of,
    async passkey(id) {
      const user = await readRecord(runner, ownerRows, INSTALLATION, id);
      return user === null ? null : ((await of(user)).find((one) => one.id === id) ?? null);
    },
    addPasskey(passkey, one, actor) {
      const { id, user } = passkey;
      const event = newId();
      return run((draft) => {
        const { passkeys, answered } = sound(seals, user, passkeyRows.get(draft, user));
        const after = answeredWith(draft, answered, one);
        if (ownerRows.get(draft, id) !== null || after === null) return 'taken';
        if (passkeys.length >= MOST_PASSKEYS) return 'too_many';
        ownerRows.put(draft, id, user);
        put(seals, draft, user, { passkeys: [...passkeys, passkey], answered: after });
        appendTo(draft, passkey.workspace ?? INSTALLATION, event, [passkeyAdded(passkey, actor)]);
        return 'added';
      });
    },
    async usePasskey({ id, user }, { counter, isBackedUp }, one) {
      const { result } = await runner.run(INSTALLATION, (draft) => {
        const { passkeys, answered } = sound(seals, user, passkeyRows.get(draft, user));
        const passkey = passkeys.find((other) => other.id === id);
        const after = answeredWith(draft, answered, one);
        if (passkey === undefined || after === null) return false;
        // An authenticator that does not count says zero each time.
        if ((counter > 0 || passkey.counter > 0) && counter <= passkey.counter) return false;
        const used: Passkey = { ...passkey, counter, isBackedUp, lastUsedAt: draft.now };
        put(seals, draft, user, {
          passkeys: passkeys.map((other) => (other.id === id ? used : other)),
          answered: after,
        });
        return true;
      });
      return result;
    },
    removePasskey(user, id, actor: LedgerActor) {
      const event = newId();
      return run((draft) => {
        const { passkeys, answered } = sound(seals, user, passkeyRows.get(draft, user));
        const passkey = passkeys.find((other) => other.id === id);
        if (passkey === undefined) return null;
        if (ownerRows.get(draft, id) !== null) ownerRows.put(draft, id, null);
        put(seals, draft, user, { passkeys: passkeys.filter((other) => other.id !== id), answered });
        appendTo(draft, passkey.workspace ?? INSTALLATION, event, [passkeyRemoved(passkey, actor)]);
        return passkey;
      });
    },
  };
}

const sealOf = (user: string): string => `passkeys ${user}`;

function sound(seals: KeySeals, user: string, stored: (OfUser & { readonly seal?: string }) | null): OfUser {
  if (stored === null) return NONE;
  const { seal, passkeys, answered } = stored;
  return seals.fitsRow(sealOf(user), JSON.stringify({ passkeys, answered }), seal) ? { passkeys, answered } : NONE;
}

function put(seals: KeySeals, draft: Draft, user: string, { passkeys, answered }: OfUser): void {
  const kept = { passkeys, answered: answered.filter(({ until }) => until > draft.now) };
  passkeyRows.put(draft, user, { ...kept, seal: seals.sealRow(sealOf(user), JSON.stringify(kept)) });
}

/** What is remembered with one answer more; `null` where that was given before, is too late, or one too many. */
function answeredWith(draft: Draft, before: readonly Answered[], one: Answered): readonly Answered[] | null {
  const open = before.filter(({ until }) => until > draft.now);
  if (one.until <= draft.now || open.length >= MOST_ANSWERED) return null;
  return open.some(({ challenge }) => challenge === one.challenge) ? null : [...open, one];
}
