import { writeSync } from 'node:fs';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { admitRequest, budgetOf, committed, permit, settleRequest } from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

/**
 * A gateway's load on a store, in a process that a test can kill: `load.js FOLDER PREFIX [ARCHIVE [CALLERS [CHARACTERS]]]`.
 * Each line on standard output is an acknowledgement: `ready`, `admitted KEY EFFECT`, `settled EFFECT JWS`. With an archive all
 * that is settled goes there at once: `swept EFFECTS`. The last word: receipts are padded to this length.
 */
const [path = '', prefix = '', archive = '', callers = '32', characters = '0'] = process.argv.slice(2);

const say = (...words: readonly string[]): void => {
  writeSync(1, `${words.join(' ')}\n`);
};

const store = await openEmbeddedStore({
  path,
  lockWaitMs: 10_000,
  retention: { keysMs: null, effectsMs: archive === '' ? 1e12 : 1, denialsMs: 1e12 },
  archive: archive === '' ? null : { kind: 'folder', path: archive },
  keySeals: KEY_SEALS,
  worker: 'auto',
});
say('ready');

let calls = 0;
async function caller(): Promise<void> {
  for (;;) {
    calls += 1;
    const idempotencyKey = `${prefix}-${calls}`;
    const effectId = `eff_${prefix}_${calls}`;
    const verdict = permit([budgetOf(Number.MAX_SAFE_INTEGER, 3)]);
    const admission = await store.admit(admitRequest({ idempotencyKey, effectId, verdict }));
    if (admission.kind !== 'dispatch') throw new Error(`not admitted: ${admission.kind}`);
    say('admitted', idempotencyKey, effectId);
    const jws = `receipt.of.${effectId}`;
    const settlement = await store.settle(
      settleRequest(admission.effect, committed(jws.padEnd(Number(characters), '.'))),
    );
    if (settlement.kind !== 'settled') throw new Error(`not settled: ${settlement.kind}`);
    say('settled', effectId, jws);
  }
}
async function sweeper(): Promise<void> {
  for (;;) {
    const { aged, archive: state } = await store.sweep(100);
    if (state !== null && state.failure !== null) throw new Error(state.failure);
    if (aged > 0) say('swept', String(aged));
  }
}

await Promise.all([...Array.from({ length: Number(callers) }, caller), ...(archive === '' ? [] : [sweeper()])]);
