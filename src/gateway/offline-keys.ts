import type { Configuration } from '../config/configuration.ts';
import { loadConfiguration, OF_STORE } from '../config/load.ts';
import { type CliPorts, CommandFailure, type StoreOptions } from '../cli/ports.ts';
import type { LedgerActor } from '../effects/model/ledger.ts';
import { type EffectStore, StoreUnavailable } from '../effects/store.ts';
import { createKeyRecord, keyToWire, successorOf, rotateKey as rotate } from '../identity/key-record.ts';
import { allProfiles } from '../identity/profiles.ts';
import { KeyFileFault } from '../secrets/key-file.ts';
import type { Secrets } from '../secrets/vault.ts';
import { openKeyStore } from './embedded-store.ts';
import { placeOf } from './store-place.ts';
import { openForCommand } from './redis-for-commands.ts';
import { createLateKeySeals, type LateKeySeals } from './key-seals.ts';
import { bindToStore, openSecretsFor } from './master-secret.ts';

const COMMAND_LINE: LedgerActor = { type: 'gateway', id: 'command-line' };

/** Makes a key directly in the store, even while a gateway runs on it. The gateway soon notices. */
export const createKey: CliPorts['createKey'] = (options) =>
  withShelf(options, async (shelf, configuration) => {
    const secrets = await secretsOf(shelf, configuration);
    const workspaces = configuration.workspaces.map(({ id }) => id);
    const needsWorkspace = options.kind === 'account' || options.kind === 'agent';
    const only = workspaces.length === 1 ? (workspaces[0] ?? null) : null;
    const made = createKeyRecord(
      {
        user: options.user,
        madeBy: null,
        name: options.name ?? `${options.kind} key`,
        kind: options.kind,
        profile: options.profile,
        workspace: options.workspace ?? (needsWorkspace ? only : null),
        agentId: options.agent,
        scopes: null,
        allowedTools: null,
        expiresInMs: null,
      },
      {
        pepper: secrets.keyPepper,
        now: Date.now(),
        profiles: allProfiles(configuration.auth.profiles),
        workspaces,
        defaultExpiryMs: configuration.auth.defaultExpiryMs,
      },
    );
    if (made.kind === 'refused')
      throw new CommandFailure(made.faults.map(({ path, message }) => `--${flagOf(path)}: ${message}`).join('\n'));
    await shelf.putKey(made.record, COMMAND_LINE);
    return { record: keyToWire(made.record), key: made.key, notice: noticeFor(options, configuration) };
  });

/** The keys in the store, oldest first. */
export const listKeys: CliPorts['listKeys'] = (options) =>
  withShelf(options, async (shelf, configuration) => {
    // Only looking at an unused store must not create a secret for it.
    if (!(await shelf.hasKeys())) return [];
    await secretsOf(shelf, configuration);
    return (await shelf.keys(null)).map(keyToWire);
  });

export const revokeKey: CliPorts['revokeKey'] = (options, id) =>
  withShelf(options, async (shelf, configuration) => {
    if (!(await shelf.hasKeys())) return null;
    await secretsOf(shelf, configuration);
    const ended = await shelf.endKey(id, { kind: 'revoked' }, COMMAND_LINE);
    return ended === null ? null : keyToWire(ended);
  });

export const rotateKey: CliPorts['rotateKey'] = (options, id, overlapMs) =>
  withShelf(options, async (shelf, configuration) => {
    if (!(await shelf.hasKeys())) return { kind: 'absent' };
    const secrets = await secretsOf(shelf, configuration);
    const key = (await shelf.keys(null)).find((one) => one.id === id);
    if (key === undefined) return { kind: 'absent' };
    const made = successorOf(key, null, { pepper: secrets.keyPepper, now: Date.now() });
    if (!(await rotate(shelf, key, made.record, overlapMs, COMMAND_LINE))) return { kind: 'ended' };
    return { kind: 'rotated', record: { ...keyToWire(made.record), replaces: id }, key: made.key };
  });

/** Works with the keys of a configuration's store. Errors that a person can fix get a message that says so. */
async function withShelf<T>(
  { configFile, environment }: StoreOptions,
  work: (shelf: Shelf, configuration: Configuration) => Promise<T>,
): Promise<T> {
  const { configuration } = await loadConfiguration(configFile, { environment, sections: OF_STORE });
  try {
    const shelf = await openShelf(configuration);
    try {
      return await work(shelf, configuration);
    } finally {
      await shelf.close();
    }
  } catch (error) {
    throw error instanceof StoreUnavailable || error instanceof KeyFileFault
      ? new CommandFailure(error.message)
      : error;
  }
}

async function secretsOf(shelf: Shelf, { secrets: files }: Configuration): Promise<Secrets> {
  const secrets = await openSecretsFor(shelf, files);
  shelf.keySeals.use(secrets.keySeals);
  await bindToStore(shelf, secrets, files);
  return secrets;
}

interface Shelf
  extends Pick<EffectStore, 'secretMark' | 'bindSecret' | 'hasKeys' | 'keys' | 'putKey' | 'endKey' | 'close'> {
  /** They wait for the secrets. */
  readonly keySeals: LateKeySeals;
}

async function openShelf({ store, retention }: Configuration): Promise<Shelf> {
  const keySeals = createLateKeySeals(() => undefined);
  switch (store.kind) {
    case 'embedded':
      return { ...(await openKeyStore(placeOf(store), keySeals, store.maxClockJumpMs)), keySeals };
    case 'redis':
      return { ...(await openForCommand(store, retention, keySeals, true)), keySeals };
  }
}

/** A key may name a user who is not in the configuration. Such a key has no roles. */
function noticeFor(
  { kind, user, agent }: Parameters<CliPorts['createKey']>[0],
  { users, workspaces }: Configuration,
): string | null {
  const hasOwner = workspaces.some(({ agents }) => agents.some(({ id, owner }) => id === agent && owner !== null));
  if (user === null && (kind === 'account' || (kind === 'agent' && !hasOwner)))
    return 'The key belongs to no user: its calls that need approval are refused (key_without_user). Make it with --user, or give the agent an owner.';
  if (user !== null && users.every(({ id }) => id !== user))
    return `The configuration names no user '${user}': the key cannot decide approvals that ask for a role.`;
  if (agent !== null && workspaces.every(({ agents }) => agents.every(({ id }) => id !== agent)))
    return `The configuration names no agent '${agent}': unless it was registered otherwise, its calls are refused.`;
  return null;
}

function flagOf(path: string): string {
  const name = path.slice(1);
  return name === 'agent_id' ? 'agent' : name === 'user_id' ? 'user' : name;
}
