import { createHmac, type KeyObject, timingSafeEqual } from 'node:crypto';
import type { KeyRecord, KeySeals } from '../effects/model/key.ts';

/** What a seal of another form would begin with something else than. */
const FORM = 'key/1';

/** The key of one master secret's seals, and how they name it. */
export interface SealingKey {
  readonly id: string;
  readonly key: KeyObject;
}

/** `unknown_secret`: whoever sealed it had another master secret, or says so. */
export type SealJudgement = 'sound' | 'forged' | 'unknown_secret';

export interface JudgingSeals extends KeySeals {
  /** What {@link KeySeals.fits} says, with the reason. */
  judge(key: KeyRecord, seal: string | undefined): SealJudgement;
}

/**
 * Seals of records of keys: HMAC-SHA-256 under a key that the store never sees.
 * @param keys the one to seal with, then those whose seals still hold
 */
export function createKeySeals(keys: readonly [SealingKey, ...SealingKey[]]): JudgingSeals {
  const [current] = keys;

  function judge(record: KeyRecord, seal: string | undefined): SealJudgement {
    const [id, mac = ''] = (seal ?? '').split('.');
    if (seal === undefined || mac === '') return 'forged';
    const sealing = keys.find((key) => key.id === id);
    if (sealing === undefined) return 'unknown_secret';
    const [there, right] = [Buffer.from(mac, 'base64url'), macOf(sealing, record)];
    return there.length === right.length && timingSafeEqual(there, right) ? 'sound' : 'forged';
  }

  return {
    seal: (record) => `${current.id}.${macOf(current, record).toString('base64url')}`,
    judge,
    fits: (record, seal) => judge(record, seal) === 'sound',
  };
}

/**
 * Covers everything that a key may do, and whether it still may; by name, so that a field that a record has too much is
 * seen as well. When it was last used is written often, and decides nothing.
 */
function macOf({ key }: SealingKey, record: KeyRecord): Buffer {
  const fields = Object.entries(record)
    .filter(([name]) => name !== 'lastUsedAt')
    .toSorted(([one], [other]) => (one < other ? -1 : 1));
  return createHmac('sha256', key)
    .update(`${FORM}\n${JSON.stringify(Object.fromEntries(fields))}`)
    .digest();
}
