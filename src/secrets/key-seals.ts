import { createHmac, type KeyObject, timingSafeEqual } from 'node:crypto';
import type { KeyRecord, KeySeals } from '../effects/model/key.ts';

/** Part of what is sealed. A later form must use another text, so that no seal is valid in both. */
const FORM = 'key/1';

/** The key for the seals of one master secret, and the id that these seals carry. */
export interface SealingKey {
  readonly id: string;
  readonly key: KeyObject;
}

/** `unknown_secret`: the seal names a master secret that this gateway does not have. That name can be a lie. */
export type SealJudgement = 'sound' | 'forged' | 'unknown_secret';

export interface JudgingSeals extends KeySeals {
  /** Like {@link KeySeals.fits}, with the reason. */
  judge(key: KeyRecord, seal: string | undefined): SealJudgement;
}

/**
 * Seals records of keys: HMAC-SHA-256 under a key that the store never sees.
 * @param keys the one to seal with, then those whose seals are still accepted
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
 * Covers what a key may do, and whether it is still valid. It covers all fields by name, so an added field breaks the
 * seal too. The time of last use is left out: it changes often and decides nothing.
 */
function macOf({ key }: SealingKey, record: KeyRecord): Buffer {
  const fields = Object.entries(record)
    .filter(([name]) => name !== 'lastUsedAt')
    .toSorted(([one], [other]) => (one < other ? -1 : 1));
  return createHmac('sha256', key)
    .update(`${FORM}\n${JSON.stringify(Object.fromEntries(fields))}`)
    .digest();
}
