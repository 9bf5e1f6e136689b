import type { AllowanceStore } from '../effects/model/allowance.ts';
import { PAGE_BYTES } from '../effects/model/page.ts';
import type { RowStore } from '../stores/port.ts';
import { alikeRows, allowanceRows, ALLOWANCES, ENDING } from './allowance-rows.ts';
import { firstOf, type Readable } from './lists.ts';
import { pageOf } from './pages.ts';
import { readRecord, type StepRunner } from './runner.ts';
import type { Steps } from './steps.ts';

/** How long an allowance whose time is over is still listed, ms. */
const KEPT_MS = 24 * 60 * 60 * 1000;

/** Removes allowances that ended long ago, at most `limit`. */
export async function forgetAllowances(
  store: RowStore,
  runner: StepRunner,
  workspace: string,
  limit: number,
): Promise<void> {
  const asked = { workspace, list: ENDING, kind: allowanceRows.kind, to: store.now() - KEPT_MS };
  for (const { id } of await firstOf(store, asked, limit))
    await runner.run(workspace, (draft) => {
      const allowance = allowanceRows.get(draft, id);
      if (allowance === null) return;
      allowanceRows.put(draft, id, null);
      if (alikeRows.get(draft, allowance.likeness) === id) alikeRows.put(draft, allowance.likeness, null);
    });
}

export function createAllowanceStore(readable: Readable, runner: StepRunner, run: Steps['run']): AllowanceStore {
  return {
    allowances: (workspace, { agentId, limit, cursor }) =>
      pageOf(
        readable,
        { workspace, list: ALLOWANCES, kind: allowanceRows.kind },
        cursor,
        { items: limit, characters: PAGE_BYTES },
        (row) => {
          const allowance = allowanceRows.of(row);
          return agentId === null || allowance.agentId === agentId ? allowance : null;
        },
      ),
    allowance: (workspace, id) => readRecord(runner, allowanceRows, workspace, id),
    revokeAllowance: (request) => run('revoke_allowance', request.workspace, request),
  };
}
