import { type CliPorts, CommandFailure, type StoreDifference } from '../cli/ports.ts';
import { loadConfiguration, OF_STORE } from '../config/load.ts';
import { storeFolder } from '../config/resolve-store.ts';
import type { KeyRecord } from '../effects/model/key.ts';
import { checkWorkspace, allAllowances } from '../effects/upkeep/fsck.ts';
import { INSTALLATION } from '../effects/model/ledger.ts';
import { type EffectStore, StoreUnavailable } from '../effects/store.ts';
import { faultOfKey } from '../identity/authenticate.ts';
import { keyState } from '../identity/key-record.ts';
import { acceptRolledBack, acceptTime, acknowledgeLoss } from './embedded-store.ts';
import { placeOf } from './store-place.ts';
import { noteUpkeep, readUpkeep } from './upkeep.ts';
import { openForCommand } from './redis-for-commands.ts';
import { createLateKeySeals, UNJUDGED } from './key-seals.ts';
import { sealedStore } from './sealed-store.ts';
import { findSecret } from './master-secret.ts';
import { openOnRedis, openStore } from './open-store.ts';

/** Continues, in a new epoch, with a store that was emptied or set back. */
export const acceptLoss: CliPorts['acceptLoss'] = async ({ configFile, environment }) => {
  const { configuration } = await loadConfiguration(configFile, { environment, sections: OF_STORE });
  const { store: settings, retention } = configuration;
  if (settings.kind === 'redis')
    return using(openOnRedis(settings, retention, UNJUDGED), (store) => store.acceptLoss());
  const place = placeOf(settings);
  const { restore } = await readUpkeep(settings.path);
  const isNoted = restore?.clean === false;
  const accepted = await (isNoted ? acknowledgeLoss(place, restore.at) : acceptRolledBack(place)).catch(explain);
  if (isNoted) await noteUpkeep(settings.path, 'restore', { at: Date.now(), clean: true });
  if (accepted) return [];
  throw new CommandFailure(
    `The store in ${settings.path} is as new as it was ever seen: there is no loss to accept. Start the gateway.`,
  );
};

/** Accepts the clock of this machine, or of the Redis servers, as right. Running gateways continue from there. */
export const acceptClock: CliPorts['acceptClock'] = async ({ configFile, environment }) => {
  const { configuration } = await loadConfiguration(configFile, { environment, sections: OF_STORE });
  const { store, retention } = configuration;
  if (store.kind === 'redis') {
    const accepted = await using(openForCommand(store, retention), (opened) => opened.acceptTime());
    if (accepted !== null) return accepted;
    throw new CommandFailure('The clock of the Redis server is believed as it is: there is nothing to accept.');
  }
  const accepted = await acceptTime(placeOf(store)).catch(explain);
  if (accepted !== null) return accepted;
  throw new CommandFailure("The store's time is not behind the clock of this machine: there is nothing to accept.");
};

/** Declares that the journal of a gateway is lost. */
export const recoverLost: CliPorts['recoverLost'] = async ({ configFile, environment }, gateway) => {
  const { store: settings, retention } = (await loadConfiguration(configFile, { environment, sections: OF_STORE }))
    .configuration;
  if (settings.kind !== 'redis')
    throw new CommandFailure(
      'svc store recover is for a store on Redis; this one is embedded, and has no journals of other gateways.',
    );
  await using(openForCommand(settings, retention), async (store) => {
    await store.recoverLost(gateway).catch((error: unknown) => {
      throw error instanceof Error && !(error instanceof StoreUnavailable) ? new CommandFailure(error.message) : error;
    });
  });
};

/** Texts about records of keys that let nobody in. */
const UNFIT = {
  forged: 'it was put there or changed by something else than a gateway',
  unknown_secret: 'it was sealed under a master secret that is not named here',
} as const;

/** Recomputes every workspace from its ledger. On Redis, gateways may keep running. */
export const checkStore: CliPorts['checkStore'] = async ({ configFile, environment }) => {
  const { configuration } = await loadConfiguration(configFile, { environment, sections: OF_STORE });
  const { store: settings, retention, workspaces, secrets, users } = configuration;
  const unfit = new Map<string, { readonly key: KeyRecord; readonly store: string }>();
  const forged = new Map<string, string>();
  const note = (of: KeyRecord | { readonly row: string }, why: keyof typeof UNFIT): void => {
    if ('row' in of) forged.set(of.row, UNFIT[why]);
    else unfit.set(of.id, { key: of, store: UNFIT[why] });
  };
  const keySeals = createLateKeySeals(note);
  const opening: Promise<EffectStore> =
    settings.kind === 'redis' ? openForCommand(settings, retention, keySeals) : openStore(configuration, keySeals);
  return using(opening, async (store) => {
    const { ready, problem } = store.health();
    if (!ready) throw new CommandFailure(problem?.message ?? 'The store is not ready.');
    const found: StoreDifference[] = [];
    const secret = await findSecret(store, secrets);
    // Without the secret, nothing can be said about seals.
    if (secret.kind !== 'right') keySeals.use(UNJUDGED);
    else {
      const { keySeals: seals } = secret.secrets;
      keySeals.use({
        ...seals,
        judge(key, seal) {
          const judgement = seals.judge(key, seal);
          if (judgement !== 'unknown_secret') return judgement;
          // Keys that were replaced before their secret was lost stay in the store and are no fault.
          if (keyState(key, store.now()) === 'active') note(key, judgement);
          return 'sound';
        },
      });
    }
    if (secret.kind === 'fault')
      found.push({
        workspace: INSTALLATION,
        what: 'secret',
        where: secrets.masterFile,
        ledger: 'the secret of this store',
        store: secret.fault,
      });
    const keys = await store.keys(null);
    for (const { key, store: is } of [...unfit.values(), ...keys.map((key) => ({ key, store: faultOfKey(key) }))])
      if (is !== null)
        found.push({ workspace: key.workspace ?? '', what: 'key', where: key.id, ledger: 'a key', store: is });
    await store.agents();
    await readUsers(store, [...users.map(({ id }) => id), ...keys.flatMap(({ user }) => user ?? [])]);
    const known = [INSTALLATION, ...workspaces.map(({ id }) => id), ...(await store.workspaces())];
    for (const workspace of new Set(known)) {
      const differences = await checkWorkspace(store, workspace, retention.effectsMs);
      if (differences === null)
        throw new CommandFailure(
          `Workspace ${workspace} is written to all the time, so it cannot be read as of one moment. Pause it (svc pause --all), or try again.`,
        );
      found.push(...differences.map((difference) => ({ ...difference, workspace })));
      // Without the secret no seal is judged, and nothing may be taken in that only its seal vouches for.
      if (secret.kind !== 'right') continue;
      await store.pauses(workspace);
      const sealed = sealedStore(store, secret.secrets, undefined, (row) => note({ row }, 'forged'));
      await readApprovals(sealed, workspace);
      await allAllowances(sealed, workspace);
    }
    for (const [where, is] of forged)
      found.push({ workspace: INSTALLATION, what: 'seal', where, ledger: 'a record of a gateway', store: is });
    await noteUpkeep(storeFolder(settings), 'fsck', { at: Date.now(), clean: found.length === 0 });
    return found;
  });
};

/** Reads what is sealed of users: their seals are judged by that. The date of the first look at users has no name. */
async function readUsers(store: EffectStore, users: readonly string[]): Promise<void> {
  for (const user of new Set(['', ...users])) await Promise.all([store.userSince(user), store.passkeys(user)]);
}

/** Reads all requests for approval: their seals are judged by that. */
async function readApprovals(store: EffectStore, workspace: string): Promise<void> {
  let cursor: string | null = null;
  do {
    const page: Awaited<ReturnType<EffectStore['approvals']>> = await store.approvals(workspace, {
      status: null,
      agentId: null,
      limit: 100,
      cursor,
    });
    cursor = page.next;
  } while (cursor !== null);
}

/** Works with a store and closes it. If it cannot be reached, the error is one for people. */
async function using<Store extends EffectStore, T>(
  opening: Promise<Store>,
  work: (store: Store) => Promise<T>,
): Promise<T> {
  try {
    const store = await opening;
    try {
      return await work(store);
    } finally {
      await store.close();
    }
  } catch (error) {
    return explain(error);
  }
}

/** Why a store cannot be used is for people. @throws it */
function explain(error: unknown): never {
  throw error instanceof StoreUnavailable ? new CommandFailure(error.message) : error;
}
