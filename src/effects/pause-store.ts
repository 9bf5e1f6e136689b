import type { LedgerActor } from './model/ledger.ts';
import type { PauseRecord, PauseScope } from './model/pause.ts';
import type { KeyKind } from './model/principal.ts';

/** Pauses: what people have stopped. */
export interface PauseStore {
  /** Sets a pause; `null`: {@link MOST_PAUSES} are in force. */
  setPause(request: {
    readonly id: string;
    readonly workspace: string;
    readonly scope: PauseScope;
    readonly reason: string;
    readonly until: number | null;
    readonly by: PauseRecord['by'];
    readonly actor: LedgerActor;
  }): Promise<PauseRecord | null>;
  liftPause(
    workspace: string,
    id: string,
    by: KeyKind,
    actor: LedgerActor,
  ): Promise<
    | { readonly kind: 'lifted'; readonly pause: PauseRecord }
    | { readonly kind: 'administrative_only'; readonly pause: PauseRecord }
    | { readonly kind: 'absent' }
  >;
  /** The pauses in force, and the version for {@link SeenVersions.pauses}. */
  pauses(workspace: string): Promise<{ readonly version: number; readonly pauses: readonly PauseRecord[] }>;
  onPausesChanged(listener: (workspace: string) => void): void;
}
