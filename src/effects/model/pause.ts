import type { KeyKind } from './principal.ts';

export type PauseScope =
  | { readonly kind: 'workspace' }
  | { readonly kind: 'tool'; readonly glob: string }
  | { readonly kind: 'agent'; readonly id: string }
  | { readonly kind: 'upstream'; readonly id: string }
  | { readonly kind: 'key'; readonly id: string };

/** A stop switch. */
export interface PauseRecord {
  readonly id: string;
  readonly workspace: string;
  readonly scope: PauseScope;
  readonly reason: string;
  /** Key that set it, its kind and user. A pause set by an administrative key is lifted only by one. */
  readonly by: { readonly keyId: string; readonly keyKind: KeyKind; readonly user: string | null };
  readonly createdAt: number;
  readonly until: number | null;
}
