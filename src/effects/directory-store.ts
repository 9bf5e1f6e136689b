import type { LedgerActor } from './model/ledger.ts';
import type { Agent } from './model/principal.ts';

/** Workspaces, agents, and since when users are known. */
export interface DirectoryStore {
  /**
   * Records the users that the configuration names, with the time when each was first seen. The users of the very first
   * call get the time 0, because nobody knows how long they existed before. The ledger has who came, who is named no more,
   * and which roles were given and taken.
   */
  seeUsers(rolesOf: ReadonlyMap<string, readonly string[]>, actor: LedgerActor): Promise<void>;
  /** When a configuration in force first named a user, ms; `null` where that is not recorded yet. */
  userSince(id: string): Promise<number | null>;
  putWorkspace(id: string, actor: LedgerActor): Promise<boolean>;
  workspaces(): Promise<readonly string[]>;
  /**
   * Registers an agent. `taken`: there is another of this id; it stays. `too_many`: the user has registered
   * {@link MOST_AGENTS_OF_USER} agents.
   */
  putAgent(agent: Agent, actor: LedgerActor): Promise<'put' | 'taken' | 'too_many'>;
  agents(): Promise<readonly Agent[]>;
}
