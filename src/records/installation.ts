import type { KeyRecord } from '../effects/model/key.ts';
import { keyCreated, keyEnded } from '../effects/steps/key-events.ts';
import { INSTALLATION, type LedgerActor } from '../effects/model/ledger.ts';
import type { Agent } from '../effects/model/principal.ts';
import type { EffectStore } from '../effects/store.ts';
import type { RowStore } from '../stores/port.ts';
import { ONLY } from './control-rows.ts';
import type { Draft } from './draft.ts';
import { jsonKind, stock, textKind } from './kind.ts';
import { recordsOf } from './lists.ts';
import { appendTo, emptyOutbox } from './outbox.ts';
import { readRecord, type StepRunner } from './runner.ts';

/** `lastUsedAt` of a key is written at most this often, ms. */
const TOUCH_EVERY_MS = 60_000;

const KEYS = 'keys';
const keysOfUser = (user: string): string => `keys:${user}`;
export const apiKeyRows = stock(
  jsonKind<KeyRecord>('api_key', ({ createdAt, user }) => [
    { list: KEYS, at: createdAt },
    ...(user === null ? [] : [{ list: keysOfUser(user), at: createdAt }]),
  ]),
);
/** Id of a key by its handle. */
export const handleRows = stock(textKind('key_handle'));

/** The key that was put where there was none. */
const firstKeyRows = stock(textKind('first_key'));

const WORKSPACES = 'workspaces';
export const workspaceRows = stock(textKind('workspace', () => [{ list: WORKSPACES, at: 0 }]));
/** Workspaces in which anything was ever written, by name. */
export const ENTERED = 'entered';
export const enteredRows = stock(textKind('entered', () => [{ list: ENTERED, at: 0 }]));

const AGENTS = 'agents';
export const agentRows = stock(jsonKind<Agent>('agent', () => [{ list: AGENTS, at: 0 }]));

export const userRows = stock(jsonKind<number>('user', () => []));
/** Says that somebody has looked at users. */
const LOOKED = '';

export const secretRows = stock(textKind('secret'));

type Installation = Pick<
  EffectStore,
  | 'putKey'
  | 'putFirstKey'
  | 'key'
  | 'keys'
  | 'endKey'
  | 'touchKeys'
  | 'secretMark'
  | 'bindSecret'
  | 'seeUsers'
  | 'userSince'
  | 'putWorkspace'
  | 'workspaces'
  | 'putAgent'
  | 'agents'
>;

/** What belongs to no workspace: keys, users, workspaces, agents, the mark of the master secret. */
export function createInstallation(store: RowStore, runner: StepRunner, newId: () => string): Installation {
  /** Runs a step of the installation, and brings the events that it left for other ledgers there. */
  async function run<Said>(step: (draft: Draft) => Said): Promise<Said> {
    const { said } = await runner.run(INSTALLATION, step);
    await emptyOutbox(store, runner);
    return said;
  }

  function put(draft: Draft, key: KeyRecord, actor: LedgerActor, event: string): void {
    const there = apiKeyRows.get(draft, key.id);
    apiKeyRows.put(draft, key.id, key);
    handleRows.get(draft, key.handle);
    handleRows.put(draft, key.handle, key.id);
    if (there === null) appendTo(draft, key.workspace ?? INSTALLATION, event, [keyCreated(key, actor)]);
  }

  return {
    async putKey(key, actor) {
      const event = newId();
      await run((draft) => put(draft, key, actor, event));
    },
    async putFirstKey(key, actor) {
      const event = newId();
      const some = await store.list({
        workspace: INSTALLATION,
        list: KEYS,
        kind: apiKeyRows.kind,
        order: 'up',
        from: null,
        to: null,
        after: null,
        limit: 1,
        characters: 1,
      });
      if (some.entries.length > 0) return false;
      return run((draft) => {
        // Of several gateways at once the first one takes this row.
        if (firstKeyRows.get(draft, ONLY) !== null) return false;
        firstKeyRows.put(draft, ONLY, key.id);
        put(draft, key, actor, event);
        return true;
      });
    },
    async key(handle) {
      const id = await readRecord(runner, handleRows, INSTALLATION, handle);
      return id === null ? null : readRecord(runner, apiKeyRows, INSTALLATION, id);
    },
    keys: (user) => recordsOf(store, apiKeyRows, INSTALLATION, user === null ? KEYS : keysOfUser(user)),
    endKey(id, end, actor) {
      const event = newId();
      return run((draft) => {
        const key = apiKeyRows.get(draft, id);
        if (key === null || key.revokedAt !== null || (end.kind === 'replaced' && key.replacedBy !== null)) return key;
        const ended: KeyRecord =
          end.kind === 'revoked'
            ? { ...key, revokedAt: draft.now }
            : { ...key, replacedBy: end.by, expiresAt: Math.min(key.expiresAt ?? Infinity, draft.now + end.overlapMs) };
        apiKeyRows.put(draft, id, ended);
        appendTo(draft, key.workspace ?? INSTALLATION, event, [keyEnded(id, end, actor)]);
        return ended;
      });
    },
    async touchKeys(ids, at) {
      for (const id of ids)
        await runner.run(INSTALLATION, (draft) => {
          const key = apiKeyRows.get(draft, id);
          if (key === null || (key.lastUsedAt !== null && at - key.lastUsedAt < TOUCH_EVERY_MS)) return;
          apiKeyRows.put(draft, id, { ...key, lastUsedAt: at });
        });
    },
    secretMark: () => readRecord(runner, secretRows, INSTALLATION, ONLY),
    async bindSecret(marks) {
      const { said } = await runner.run(INSTALLATION, (draft) => {
        const there = secretRows.get(draft, ONLY);
        if (there !== null && !marks.includes(there)) return false;
        if (there !== marks[0]) secretRows.put(draft, ONLY, marks[0]);
        return true;
      });
      return said;
    },
    async seeUsers(ids) {
      await runner.run(INSTALLATION, (draft) => {
        const isFirst = userRows.get(draft, LOOKED) === null;
        if (isFirst) userRows.put(draft, LOOKED, 0);
        for (const id of new Set(ids))
          if (id !== LOOKED && userRows.get(draft, id) === null) userRows.put(draft, id, isFirst ? 0 : draft.now);
      });
    },
    userSince: (id) => readRecord(runner, userRows, INSTALLATION, id),
    putWorkspace(id, actor) {
      const event = newId();
      return run((draft) => {
        if (workspaceRows.get(draft, id) !== null) return false;
        workspaceRows.put(draft, id, id);
        appendTo(draft, id, event, [{ kind: 'workspace.created', effectId: null, actor, data: { workspace: id } }]);
        return true;
      });
    },
    workspaces: () => recordsOf(store, workspaceRows, INSTALLATION, WORKSPACES),
    async putAgent(agent, actor) {
      const event = newId();
      const id = `${agent.workspace}\n${agent.id}`;
      await run((draft) => {
        const there = agentRows.get(draft, id);
        if (there !== null && JSON.stringify(there) === JSON.stringify(agent)) return;
        agentRows.put(draft, id, agent);
        const { disabled, team, owner } = agent;
        appendTo(draft, agent.workspace, event, [
          { kind: 'agent.registered', effectId: null, actor, data: { agent_id: agent.id, disabled, team, owner } },
        ]);
      });
    },
    agents: () => recordsOf(store, agentRows, INSTALLATION, AGENTS),
  };
}
