import { createHmac, type KeyObject, timingSafeEqual } from 'node:crypto';
import type { KeyRecord, KeySeals } from '../effects/model/key.ts';

/** Part of what is sealed. A later form must use another text, so that no seal is valid in both. */
const FORM = 'key/1';
const ROW_FORM = 'row/1';

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
  judgeRow(row: string, text: string, seal: string | undefined): SealJudgement;
}

/**
 * Seals records of keys: HMAC-SHA-256 under a key that the store never sees.
 * @param keys the one to seal with, then those whose seals are still accepted
 */
export function createKeySeals(keys: readonly [SealingKey, ...SealingKey[]]): JudgingSeals {
  const [current] = keys;

  function judge(content: string, seal: string | undefined): SealJudgement {
    const [id, mac = ''] = (seal ?? '').split('.');
    if (seal === undefined || mac === '') return 'forged';
    const sealing = keys.find((key) => key.id === id);
    if (sealing === undefined) return 'unknown_secret';
    const [there, right] = [Buffer.from(mac, 'base64url'), macOf(sealing, content)];
    return there.length === right.length && timingSafeEqual(there, right) ? 'sound' : 'forged';
  }

  const sealed = (content: string): string => `${current.id}.${macOf(current, content).toString('base64url')}`;

  return {
    seal: (record) => sealed(contentOf(record)),
    judge: (record, seal) => judge(contentOf(record), seal),
    fits: (record, seal) => judge(contentOf(record), seal) === 'sound',
    sealRow: (row, text) => sealed(rowContent(row, text)),
    judgeRow: (row, text, seal) => judge(rowContent(row, text), seal),
    fitsRow: (row, text, seal) => judge(rowContent(row, text), seal) === 'sound',
  };
}

/**
 * Covers what a key may do, and whether it is still valid. It covers all fields by name, so an added field breaks the
 * seal too. The time of last use is left out: it changes often and decides nothing.
 */
function contentOf(record: KeyRecord): string {
  const fields = Object.entries(record)
    .filter(([name]) => name !== 'lastUsedAt')
    .toSorted(([one], [other]) => (one < other ? -1 : 1));
  return `${FORM}\n${JSON.stringify(Object.fromEntries(fields))}`;
}

function rowContent(row: string, text: string): string {
  return `${ROW_FORM}\n${JSON.stringify([row, text])}`;
}

function macOf({ key }: SealingKey, content: string): Buffer {
  return createHmac('sha256', key).update(content).digest();
}
