import type { KeySeals } from '../effects/model/key.ts';
import type { LedgerDraft } from '../effects/model/ledger.ts';
import { MOST_PAUSES, type PauseRecord, type PauseStore } from '../effects/model/pause.ts';
import { pausesOf, putPauses } from './control-rows.ts';
import type { Draft } from './draft.ts';
import type { StepRunner } from './runner.ts';
import { appendEvents } from './view.ts';

/** What people have stopped. @param write runs a step in a workspace @param enter notes that a workspace is used */
export function createPauseStore(
  runner: StepRunner,
  write: <Result>(workspace: string, step: (draft: Draft) => Result) => Promise<Result>,
  enter: (workspace: string) => Promise<void>,
  seals: KeySeals,
): Omit<PauseStore, 'onPausesChanged'> {
  return {
    setPause({ id, workspace, scope, reason, until, by, actor }) {
      return write(workspace, (draft) => {
        const pause: PauseRecord = { id, workspace, scope, reason, by, createdAt: draft.now, until };
        const { version, pauses } = pausesOf(draft, workspace, seals);
        const others = pauses.filter((other) => other.id !== id);
        if (isTooMany(pause, others)) return null;
        putPauses(draft, workspace, seals, { version: version + 1, pauses: [...others, pause] });
        appendEvents(draft, [pauseSet(pause, actor)]);
        return pause;
      });
    },
    liftPause(workspace, id, by, actor) {
      return write(workspace, (draft) => {
        const { version, pauses } = pausesOf(draft, workspace, seals);
        const pause = pauses.find((other) => other.id === id);
        if (pause === undefined) return { kind: 'absent' };
        if (pause.by.keyKind === 'administrative' && by !== 'administrative')
          return { kind: 'administrative_only', pause };
        const others = pauses.filter((other) => other.id !== id);
        putPauses(draft, workspace, seals, { version: version + 1, pauses: others });
        appendEvents(draft, [{ kind: 'pause.lifted', effectId: null, actor, data: { pause_id: id } }]);
        return { kind: 'lifted', pause };
      });
    },
    async pauses(workspace) {
      await enter(workspace);
      return runner.peek(workspace, (draft) => pausesOf(draft, workspace, seals));
    },
  };
}

/** Administrators, and whoever stops the whole workspace first, are kept from it by no number of other pauses. */
function isTooMany({ scope, by }: PauseRecord, others: readonly PauseRecord[]): boolean {
  if (by.keyKind === 'administrative') return false;
  if (scope.kind === 'workspace' && others.every((other) => other.scope.kind !== 'workspace')) return false;
  return others.filter((other) => other.by.keyKind !== 'administrative').length >= MOST_PAUSES;
}

function pauseSet({ id, scope, reason, until }: PauseRecord, actor: LedgerDraft['actor']): LedgerDraft {
  return {
    kind: 'pause.set',
    effectId: null,
    actor,
    data: {
      pause_id: id,
      scope: { ...scope },
      reason,
      until: until === null ? null : new Date(until).toISOString(),
    },
  };
}
