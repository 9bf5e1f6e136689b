import type { KeyRecord, KeySeals } from '../effects/model/key.ts';
import type { RowStore } from '../stores/port.ts';
import { keyCreated, keyEnded, type Roster, userEvents } from '../effects/steps/key-events.ts';
import { INSTALLATION, type LedgerActor } from '../effects/model/ledger.ts';
import { type Agent, MOST_AGENTS_OF_USER } from '../effects/model/principal.ts';
import type { EffectStore } from '../effects/store.ts';
import { ONLY } from './control-rows.ts';
import type { Draft } from './draft.ts';
import { jsonKind, repository, textKind } from './kind.ts';
import { firstOf, type Readable, recordsOf, shownOf } from './lists.ts';
import { appendTo, runInstalling } from './outbox.ts';
import { readRecord, type StepRunner } from './runner.ts';
import { appendEvents } from './view.ts';

/** `lastUsedAt` of a key is written at most this often, ms. */
const TOUCH_EVERY_MS = 60_000;

const KEYS = 'keys';
const keysOfUser = (user: string): string => `keys:${user}`;
/** A key as its row has it. Who writes to the store without the master secret can leave out the seal. */
type SealedKey = KeyRecord & { readonly seal?: string };

export const apiKeyRows = repository(
  jsonKind<SealedKey>('api_key', ({ createdAt, user }) => [
    { list: KEYS, at: createdAt },
    ...(user === null ? [] : [{ list: keysOfUser(user), at: createdAt }]),
  ]),
);
/** Id of a key by its handle. */
export const handleRows = repository(textKind('key_handle'));

/** The key that was put when there was none. */
const firstKeyRows = repository(textKind('first_key'));

const WORKSPACES = 'workspaces';
export const workspaceRows = repository(textKind('workspace', () => [{ list: WORKSPACES, at: 0 }]));
/** Workspaces in which anything was ever written. */
export const ENTERED = 'entered';
export const enteredRows = repository(textKind('entered', () => [{ list: ENTERED, at: 0 }]));

const AGENTS = 'agents';
/** An agent as its row has it. Its roles decide, and who owns it approves none of its calls. */
type SealedAgent = Agent & { readonly seal?: string };
export const agentRows = repository(jsonKind<SealedAgent>('agent', () => [{ list: AGENTS, at: 0 }]));

/** How many agents a user registered with keys other than administrative ones. */
const agentCountRows = repository(textKind('agent_count'));

/** Since when there is a user. */
type SealedUser = { readonly since: number; readonly seal?: string };
export const userRows = repository(jsonKind<SealedUser>('user', () => []));
/** The users whom the configuration named when it was last looked at. */
const rosterRows = repository(jsonKind<Roster>('user_roster', () => []));
/** Id of the row that is there once users were looked at for the first time. */
const CHECKED = '';

export const secretRows = repository(textKind('secret'));

type Installation = Pick<
  EffectStore,
  | 'putKey'
  | 'putFirstKey'
  | 'key'
  | 'keys'
  | 'endKey'
  | 'touchKeys'
  | 'hasKeys'
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
export function createInstallation(
  { store, turns }: Readable<RowStore>,
  runner: StepRunner,
  seals: KeySeals,
  newId: () => string,
): Installation {
  const run = <Result>(step: (draft: Draft) => Result): Promise<Result> => runInstalling(store, runner, step);

  const sealed = (key: KeyRecord): SealedKey => ({ ...key, seal: seals.seal(key) });

  /** The key of a row, if its seal is right. The seal covers the id: nobody could revoke a copy under another id. */
  function soundKey(id: string, stored: SealedKey | null): KeyRecord | null {
    if (stored === null) return null;
    const { seal, ...record } = stored;
    const key = { ...record, id };
    return seals.fits(key, seal) ? key : null;
  }

  /** The agent of a row, if its seal is right. */
  function soundAgent({ seal, ...agent }: SealedAgent): Agent | null {
    return seals.fitsRow(`agent ${agent.workspace} ${agent.id}`, JSON.stringify(agent), seal) ? agent : null;
  }

  const rowOfUser = (id: string): string => `user ${id}`;

  function soundUser(id: string, stored: SealedUser | null): number | null {
    if (stored === null) return null;
    return seals.fitsRow(rowOfUser(id), String(stored.since), stored.seal) ? stored.since : null;
  }

  async function hasKeys(): Promise<boolean> {
    const some = await firstOf(store, { workspace: INSTALLATION, list: KEYS, kind: apiKeyRows.kind }, 1);
    return some.length > 0;
  }

  function put(draft: Draft, key: KeyRecord, actor: LedgerActor, event: string): void {
    const there = apiKeyRows.get(draft, key.id);
    apiKeyRows.put(draft, key.id, sealed(key));
    handleRows.get(draft, key.handle);
    handleRows.put(draft, key.handle, key.id);
    if (there === null) appendTo(draft, key.workspace ?? INSTALLATION, event, [keyCreated(key, actor)]);
  }

  /** In turns: each has a seal to be checked. */
  async function agents(): Promise<readonly Agent[]> {
    const asked = { workspace: INSTALLATION, list: AGENTS, kind: agentRows.kind };
    const shown = await shownOf({ store, turns }, asked, ({ row }) => soundAgent(agentRows.of(row)));
    return shown.filter((agent) => agent !== null);
  }

  return {
    async putKey(key, actor) {
      const event = newId();
      await run((draft) => put(draft, key, actor, event));
    },
    async putFirstKey(key, actor) {
      const event = newId();
      if (await hasKeys()) return false;
      return run((draft) => {
        // If several gateways try at once, only the first one gets this row.
        if (firstKeyRows.get(draft, ONLY) !== null) return false;
        firstKeyRows.put(draft, ONLY, key.id);
        put(draft, key, actor, event);
        return true;
      });
    },
    async key(handle) {
      const id = await readRecord(runner, handleRows, INSTALLATION, handle);
      if (id === null) return null;
      const key = soundKey(id, await readRecord(runner, apiKeyRows, INSTALLATION, id));
      return key?.handle === handle ? key : null;
    },
    async keys(user) {
      const list = user === null ? KEYS : keysOfUser(user);
      const asked = { workspace: INSTALLATION, list, kind: apiKeyRows.kind };
      const shown = await shownOf({ store, turns }, asked, ({ id, row }) => soundKey(id, apiKeyRows.of(row)));
      return shown.filter((key) => key !== null);
    },
    hasKeys,
    endKey(id, end, actor) {
      const event = newId();
      return run((draft) => {
        const key = soundKey(id, apiKeyRows.get(draft, id));
        if (key === null || key.revokedAt !== null || (end.kind === 'replaced' && key.replacedBy !== null)) return key;
        const ended: KeyRecord =
          end.kind === 'revoked'
            ? { ...key, revokedAt: draft.now }
            : { ...key, replacedBy: end.by, expiresAt: Math.min(key.expiresAt ?? Infinity, draft.now + end.overlapMs) };
        apiKeyRows.put(draft, id, sealed(ended));
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
      const { result } = await runner.run(INSTALLATION, (draft) => {
        const there = secretRows.get(draft, ONLY);
        if (there !== null && !marks.includes(there)) return false;
        if (there !== marks[0]) secretRows.put(draft, ONLY, marks[0]);
        return true;
      });
      return result;
    },
    async seeUsers(rolesOf, actor) {
      const after: Roster = [...rolesOf];
      await runner.run(INSTALLATION, (draft) => {
        const isFirst = userRows.get(draft, CHECKED) === null;
        for (const id of new Set([CHECKED, ...rolesOf.keys()])) {
          const there = userRows.get(draft, id);
          const since = soundUser(id, there) ?? (isFirst || id === CHECKED ? 0 : draft.now);
          const seal = seals.sealRow(rowOfUser(id), String(since));
          // A right one of an earlier master secret, too: that may be gone at the next start.
          if (there?.seal !== seal) userRows.put(draft, id, { since, seal });
        }
        const events = userEvents(rosterRows.get(draft, ONLY) ?? [], after, actor);
        if (events.length === 0) return;
        rosterRows.put(draft, ONLY, after);
        appendEvents(draft, events);
      });
    },
    userSince: async (id) => soundUser(id, await readRecord(runner, userRows, INSTALLATION, id)),
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
      const maker = agent.isSelfMade === true ? (agent.registeredBy ?? null) : null;
      // Counts are in rows only since there is a limit.
      const before = maker === null ? [] : await agents();
      const counted = before.filter(({ isSelfMade, registeredBy }) => isSelfMade === true && registeredBy === maker);
      return run((draft) => {
        const stored = agentRows.get(draft, id);
        const there = stored === null ? null : soundAgent(stored);
        if (there !== null) return JSON.stringify(there) === JSON.stringify(agent) ? 'put' : 'taken';
        if (maker !== null) {
          const count = Math.max(Number(agentCountRows.get(draft, maker) ?? 0), counted.length);
          if (count >= MOST_AGENTS_OF_USER) return 'too_many';
          agentCountRows.put(draft, maker, String(count + 1));
        }
        const seal = seals.sealRow(`agent ${agent.workspace} ${agent.id}`, JSON.stringify(agent));
        agentRows.put(draft, id, { ...agent, seal });
        const { disabled, team, owner } = agent;
        appendTo(draft, agent.workspace, event, [
          { kind: 'agent.registered', effectId: null, actor, data: { agent_id: agent.id, disabled, team, owner } },
        ]);
        return 'put';
      });
    },
    agents,
  };
}
