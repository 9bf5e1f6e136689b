import type { PauseRecord } from '../effects/model/pause.ts';
import type { SeenVersions } from '../effects/store.ts';
import { type Draft, MOSTLY_ABSENT } from './draft.ts';
import { jsonKind, stock, textKind } from './kind.ts';

/** The one row of its kind. */
export const ONLY = '';

/** The policies in force, in the installation and, as admissions see them, in each workspace. */
export const policyRows = stock(textKind('policy'));

interface Pauses {
  /** Grows with each pause set or lifted. */
  readonly version: number;
  readonly pauses: readonly PauseRecord[];
}

/** The pauses of a workspace. */
export const pauseRows = stock(jsonKind<Pauses>('pauses', () => []));

const NONE: Pauses = { version: 0, pauses: [] };

/** Pauses that are not over, with the version that admissions see. */
export function pausesOf(draft: Draft): Pauses {
  const { version, pauses } = pauseRows.get(draft, ONLY, MOSTLY_ABSENT) ?? NONE;
  return { version, pauses: pauses.filter(({ until }) => until === null || until > draft.now) };
}

export function versionsOf(draft: Draft): SeenVersions {
  return {
    policy: policyRows.get(draft, ONLY, MOSTLY_ABSENT) ?? '',
    pauses: (pauseRows.get(draft, ONLY, MOSTLY_ABSENT) ?? NONE).version,
  };
}
