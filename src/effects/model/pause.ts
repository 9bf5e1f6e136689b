import type { KeyKind } from './principal.ts';
import type { LedgerActor } from './ledger.ts';

export type PauseScope =
  | { readonly kind: 'workspace' }
  | { readonly kind: 'tool'; readonly glob: string }
  | { readonly kind: 'agent'; readonly id: string }
  | { readonly kind: 'upstream'; readonly id: string }
  | { readonly kind: 'key'; readonly id: string };

/** Pauses in force in one workspace that other than administrative keys have set, at most. */
export const MOST_PAUSES = 200;

export interface PauseRecord {
  readonly id: string;
  readonly workspace: string;
  readonly scope: PauseScope;
  readonly reason: string;
  /**
   * The key that set the pause, its kind and its user. Only an administrative key lifts a pause that such a key set.
   */
  readonly by: { readonly keyId: string; readonly keyKind: KeyKind; readonly user: string | null };
  readonly createdAt: number;
  readonly until: number | null;
}

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
