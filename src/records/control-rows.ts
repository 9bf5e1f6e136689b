import type { KeySeals } from '../effects/model/key.ts';
import type { PauseRecord } from '../effects/model/pause.ts';
import type { SeenVersions } from '../effects/store.ts';
import { type Draft, MOSTLY_ABSENT } from './draft.ts';
import { jsonKind, repository, textKind } from './kind.ts';

/** The id of a row that is the only one of its kind. */
export const ONLY = '';

/**
 * The policy in force: one row for the installation and, because admissions look at it there, one in each workspace.
 */
export const policyRows = repository(textKind('policy'));

interface Pauses {
  /** Grows whenever a pause is set or lifted. */
  readonly version: number;
  readonly pauses: readonly PauseRecord[];
  readonly seal?: string;
}

export const pauseRows = repository(jsonKind<Pauses>('pauses', () => []));

const NONE: Pauses = { version: 0, pauses: [] };

/** The id of the pause of a workspace whose pauses are not as a gateway wrote them. */
export const UNSEALED = 'pau_unsealed';

/**
 * Pauses that have not ended, with the version that admissions see. Where something else than a gateway wrote them, the
 * whole workspace is paused until a person lifts that.
 */
export function pausesOf(draft: Draft, workspace: string, seals: KeySeals): Pauses {
  const stored = pauseRows.get(draft, ONLY, MOSTLY_ABSENT);
  if (stored === null) return NONE;
  const { version, pauses, seal } = stored;
  const there = pauses.filter(({ id, until }) => id !== UNSEALED && (until === null || until > draft.now));
  if (seals.fitsRow(`pauses ${workspace}`, textOf(stored), seal)) return { version, pauses: there };
  return { version, pauses: [...there, unsealed(workspace)] };
}

/** Puts the pauses of a workspace; unsealed as long as they hold the pause that says so. */
export function putPauses(draft: Draft, workspace: string, seals: KeySeals, next: Pauses): void {
  const isSound = next.pauses.every(({ id }) => id !== UNSEALED);
  const seal = isSound ? seals.sealRow(`pauses ${workspace}`, textOf(next)) : '';
  pauseRows.put(draft, ONLY, { version: next.version, pauses: next.pauses, seal });
}

function textOf({ version, pauses }: Pauses): string {
  return JSON.stringify([version, pauses]);
}

function unsealed(workspace: string): PauseRecord {
  return {
    id: UNSEALED,
    workspace,
    scope: { kind: 'workspace' },
    reason: 'Something else than a gateway wrote the pauses of this workspace. Look at them, then lift this one.',
    by: { keyId: '', keyKind: 'administrative', user: null },
    createdAt: 0,
    until: null,
  };
}

export function versionsOf(draft: Draft): SeenVersions {
  return {
    policy: policyRows.get(draft, ONLY, MOSTLY_ABSENT) ?? '',
    pauses: (pauseRows.get(draft, ONLY, MOSTLY_ABSENT) ?? NONE).version,
  };
}
