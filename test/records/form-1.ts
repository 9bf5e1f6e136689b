import { expect } from 'vitest';
import type { ClaimRecord } from '../../src/effects/model/claim.ts';
import { INSTALLATION } from '../../src/effects/model/ledger.ts';
import { checkWorkspace } from '../../src/effects/upkeep/fsck.ts';
import { createEffectStore } from '../../src/records/effect-store.ts';
import { createStepRunner } from '../../src/records/runner.ts';
import type { OpenRows } from '../../src/stores/open-rows.ts';
import type { Place } from '../../src/stores/port.ts';
import { claimRequest, reservationRequest, WORKSPACE } from '../contract/requests.ts';
import { RETENTION } from '../contract/fixture.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

const AGENT = 'support-bot';
const KEY = 'key_agent0000001';
const NEVER = Number.MAX_SAFE_INTEGER;
const HOUR_MS = 3_600_000;

/** Writes what a gateway left that kept records in form 1: 19 claims that run, one that is over, one of a call. */
async function writeForm1(store: OpenRows): Promise<void> {
  const runner = createStepRunner(store);
  const put = (workspace: string, kind: string, id: string, stored: unknown, places: readonly Place[] = []) =>
    runner.run(workspace, (draft) => {
      const text = typeof stored === 'string' ? stored : JSON.stringify(stored);
      draft.put(kind, id, text, places, []);
    });
  const { now } = await store.read(WORKSPACE, [], []);
  await put(INSTALLATION, 'entered', WORKSPACE, WORKSPACE, [{ list: 'entered', at: 0 }]);
  const ends: Record<string, number> = {};
  const claim = async (n: number, more: Partial<ClaimRecord>, until: number): Promise<void> => {
    const target = `there:${n}`;
    const record: ClaimRecord = {
      id: `clm_${n}`,
      workspace: WORKSPACE,
      target,
      agentId: AGENT,
      createdAt: now - 10,
      expiresAt: now + HOUR_MS,
      runningEffects: [],
      extendedUntil: 0,
      keyId: KEY,
      ...more,
    };
    ends[target] = until;
    await put(WORKSPACE, 'claim', target, record, [{ list: 'claims', at: until }]);
    await put(WORKSPACE, 'claim_target', record.id, target);
  };
  for (let n = 0; n < 19; n += 1) await claim(n, {}, now + HOUR_MS);
  await claim(19, { expiresAt: now - 5 }, now - 5);
  await claim(20, { expiresAt: now - 5, runningEffects: ['eff_gone'] }, NEVER);
  await put(WORKSPACE, 'claims_of_agent', AGENT, ends);
  await put(WORKSPACE, 'claims_of_key', KEY, ends);
  const reservation = {
    id: 'rsv_1',
    workspace: WORKSPACE,
    pool: 'gpu',
    agentId: AGENT,
    units: 1,
    keyId: KEY,
    createdAt: now,
    expiresAt: now + HOUR_MS,
  };
  await put(WORKSPACE, 'reservation', 'rsv_1', reservation, [{ list: 'reservations', at: reservation.expiresAt }]);
  await put(WORKSPACE, 'pool', 'gpu', { reservations: [reservation], uses: [] }, [{ list: 'pools', at: 0 }]);
  await put(WORKSPACE, 'reservations_of_key', KEY, { rsv_1: reservation.expiresAt });
  await runner.close();
}

const OF_FORM_1 = [
  ['claims_of_agent', AGENT],
  ['claims_of_key', KEY],
  ['reservations_of_key', KEY],
] as const;

/** What a gateway of today makes of it. @param open the same store each time */
export async function expectBroughtForward(open: () => Promise<OpenRows>): Promise<void> {
  const before = await open();
  await writeForm1(before);
  await before.close();
  for (const start of ['first', 'second']) {
    const rows = await open();
    const store = createEffectStore(rows, { retention: RETENTION, keySeals: KEY_SEALS, maxFreezeMs: 0 });
    // The first takes the one place that is left.
    expect(await store.takeClaim(claimRequest(`new:${start}`))).toMatchObject(
      start === 'first' ? { kind: 'made' } : { kind: 'too_many', of: 'agent' },
    );
    expect(await store.makeReservation(reservationRequest({ units: 1 }))).toMatchObject({ kind: 'made' });
    const counts = await store.capCounts(WORKSPACE);
    expect(counts.find(({ cap }) => cap === `claims_of_agent ${AGENT}`)?.figure).toBe(20);
    expect(counts.find(({ cap }) => cap === `reservations_of_key ${KEY}`)?.figure).toBe(start === 'first' ? 2 : 3);
    expect(await checkWorkspace(store, WORKSPACE)).toEqual([]);
    const { rows: old } = await rows.read(
      WORKSPACE,
      OF_FORM_1.map(([kind, id]) => ({ kind, id })),
      [],
    );
    expect(old.map(({ row }) => row)).toEqual([null, null, null]);
    await store.close();
  }
}
