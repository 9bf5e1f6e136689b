import { INSTALLATION } from '../effects/model/ledger.ts';
import type { SessionStore } from '../effects/session-store.ts';
import type { RowStore } from '../stores/port.ts';
import { jsonKind, repository } from './kind.ts';
import { firstOf } from './lists.ts';
import { readRecord, type StepRunner } from './runner.ts';

const SESSIONS = 'sessions';
const sessionsOf = (keyId: string): string => `sessions:${keyId}`;

export const sessionRows = repository(
  jsonKind<Parameters<SessionStore['putSession']>[1]>('session', ({ until, keyId }) => [
    { list: SESSIONS, at: until },
    { list: sessionsOf(keyId), at: until },
  ]),
);

/** Sessions and links of one key that are kept. Whoever signs in once more ends the one that would end first. */
const MOST_OF_KEY = 20;
/** Whoever puts a session removes so many that are over. */
const SWEPT = 10;

export function createSessionStore(store: RowStore, runner: StepRunner): SessionStore {
  async function remove(ids: readonly string[]): Promise<void> {
    if (ids.length === 0) return;
    await runner.run(INSTALLATION, (draft) => {
      for (const id of ids) if (sessionRows.get(draft, id) !== null) sessionRows.put(draft, id, null);
    });
  }

  return {
    async putSession(id, session) {
      const asked = { workspace: INSTALLATION, kind: sessionRows.kind };
      const over = await firstOf(store, { ...asked, list: SESSIONS, to: store.now() }, SWEPT);
      const ofKey = await firstOf(store, { ...asked, list: sessionsOf(session.keyId) }, MOST_OF_KEY + SWEPT);
      const tooMany = ofKey.slice(0, Math.max(0, ofKey.length + 1 - MOST_OF_KEY));
      await remove([...new Set([...over, ...tooMany].map((entry) => entry.id))]);
      await runner.run(INSTALLATION, (draft) => {
        sessionRows.get(draft, id);
        sessionRows.put(draft, id, session);
      });
    },
    async session(id) {
      const kept = await readRecord(runner, sessionRows, INSTALLATION, id);
      return kept === null || kept.until <= store.now() ? null : kept.text;
    },
    async takeSession(id) {
      const { result } = await runner.run(INSTALLATION, (draft) => {
        const kept = sessionRows.get(draft, id);
        if (kept === null) return null;
        sessionRows.put(draft, id, null);
        return kept.until <= draft.now ? null : kept.text;
      });
      return result;
    },
  };
}
