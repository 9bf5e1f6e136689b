import type { Configuration } from '../config/configuration.ts';
import { loadConfiguration } from '../config/load.ts';
import { type CliPorts, CommandFailure } from '../cli/ports.ts';
import type { KeyRecord } from '../effects/controls.ts';
import type { LedgerActor } from '../effects/ledger.ts';
import { KEY_KINDS } from '../effects/principal.ts';
import { StoreUnavailable } from '../effects/store.ts';
import { createKeyRecord, keyState, keyToWire } from '../identity/key-record.ts';
import { allProfiles } from '../identity/profiles.ts';
import { KeyFileFault } from '../secrets/key-file.ts';
import { glanceAtStore, openKeyStore } from '../stores/embedded/key-store.ts';
import { inspectRedis, openBeside } from './beside-redis.ts';
import { bindToStore, openSecretsFor } from './master-secret.ts';

/** Makes a key directly in the store, also while a gateway runs on it; the gateway notices within a moment. */
export const createKey: CliPorts['createKey'] = async (options) => {
  const { configuration } = await loadConfiguration(options.configFile, { environment: options.environment });
  const shelf = await openShelf(configuration).catch((error: unknown) => {
    throw error instanceof StoreUnavailable ? new CommandFailure(error.message) : error;
  });
  try {
    const secrets = await openSecretsFor(shelf, configuration.secrets).catch((error: unknown) => {
      throw error instanceof KeyFileFault ? new CommandFailure(error.message) : error;
    });
    await bindToStore(shelf, secrets, configuration.secrets);
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
    await shelf.putKey(made.record, { type: 'gateway', id: 'command-line' });
    return { record: keyToWire(made.record), key: made.key, notice: noticeFor(options, configuration) };
  } finally {
    await shelf.close();
  }
};

/** Where a key is put. */
interface Shelf {
  secretMark(): string | null | Promise<string | null>;
  bindSecret(marks: readonly [string, ...string[]]): boolean | Promise<boolean>;
  keys(user: null): readonly KeyRecord[] | Promise<readonly KeyRecord[]>;
  putKey(key: KeyRecord, actor: LedgerActor): void | Promise<void>;
  close(): void | Promise<void>;
}

function openShelf({ store, retention }: Configuration): Promise<Shelf> {
  switch (store.kind) {
    case 'embedded':
      return openKeyStore(store.path);
    case 'redis':
      return openBeside(store, retention);
  }
}

/** A key may name somebody whom the configuration does not know; such a key can do less than one would think. */
function noticeFor(
  { user, agent }: Parameters<CliPorts['createKey']>[0],
  { users, workspaces }: Configuration,
): string | null {
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

/** Looks at a store without changing it, also while a gateway runs on it. */
export const inspectStore: CliPorts['inspectStore'] = async ({ configFile, environment }) => {
  const { configuration } = await loadConfiguration(configFile, { environment });
  if (configuration.store.kind === 'redis') return inspectRedis(configuration.store);
  const { path } = configuration.store;
  const glance = await glanceAtStore(path);
  switch (glance.state) {
    case 'absent':
      return { state: 'absent', problem: null, durability: null, inUse: false, keys: null };
    case 'broken':
      return {
        state: 'broken',
        problem: {
          message: glance.message,
          remedy: `Look at ${path}; restore a backup, or start with another store.path.`,
        },
        durability: null,
        inUse: glance.inUse,
        keys: null,
      };
    case 'ready': {
      const keys = { account: 0, agent: 0, administrative: 0, profile: 0 };
      for (const kind of KEY_KINDS)
        keys[kind] = glance.keys.filter((key) => key.kind === kind && keyState(key, Date.now()) === 'active').length;
      return { state: 'ready', problem: null, durability: glance.durability, inUse: glance.inUse, keys };
    }
  }
};
