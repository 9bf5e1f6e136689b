import type { PauseRecord } from '../effects/model/pause.ts';
import type { SeenVersions } from '../effects/store.ts';
import { type Draft, MOSTLY_ABSENT } from './draft.ts';
import { jsonKind, stock, textKind } from './kind.ts';

/** The id of a row that is the only one of its kind. */
export const ONLY = '';

/**
 * The policy in force: one row for the installation and, because admissions look at it there, one in each workspace.
 */
export const policyRows = stock(textKind('policy'));

interface Pauses {
  /** Grows whenever a pause is set or lifted. */
  readonly version: number;
  readonly pauses: readonly PauseRecord[];
}

/** The pauses of a workspace. */
export const pauseRows = stock(jsonKind<Pauses>('pauses', () => []));

const NONE: Pauses = { version: 0, pauses: [] };

/** Pauses that have not ended, with the version that admissions see. */
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
