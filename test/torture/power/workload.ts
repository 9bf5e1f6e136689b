import { openSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { openEmbeddedStore } from '../../../src/gateway/embedded-store.ts';
import { settlementTexts } from '../../../src/records/settlement-text.ts';
import { openSpillJournal } from '../../../src/stores/journal/spill.ts';
import { openStepJournal } from '../../../src/stores/journal/step-journal.ts';
import { admitRequest, budgetOf, committed, permit, settleRequest, WORKSPACE } from '../../contract/requests.ts';
import { KEY_SEALS } from '../../identity/key-seals.ts';

/**
 * What a gateway does with its disk, under the recorder: `workload.js FOLDER PREFIX CALLS`. What it is told goes to the
 * file `marks`, a line each, once it is told: `admitted KEY EFFECT`, `settled EFFECT JWS` (by the store, or by the spill
 * journal), `step NUMBER`, `remembered NUMBER`. As the product, it ends by SIGKILL when a sync has failed.
 */
const [folder = '', prefix = '', callsText = ''] = process.argv.slice(2);

const CALLERS = 12;
const calls = Number(callsText);
const marks = openSync(join(folder, 'marks'), 'a');

const mark = (...words: readonly (string | number)[]): void => {
  writeSync(marks, `${words.join(' ')}\n`);
};

const store = await openEmbeddedStore({
  path: join(folder, 'data', 'store'),
  lockWaitMs: 10_000,
  retention: { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 },
  keySeals: KEY_SEALS,
  worker: 'auto',
});
const spill = await openSpillJournal(join(folder, 'data', 'spill'), settlementTexts);
const journal = await openStepJournal(join(folder, 'data', 'journal'));
mark('open', prefix);

let begun = 0;
let draining = Promise.resolve(0);
async function caller(): Promise<void> {
  while (begun < calls) {
    begun += 1;
    const n = begun;
    const idempotencyKey = `${prefix}-${n}`;
    const effectId = `eff_${prefix}_${n}`;
    const admission = await store.admit(
      admitRequest({ idempotencyKey, effectId, verdict: permit([budgetOf(Number.MAX_SAFE_INTEGER, 3)]) }),
    );
    if (admission.kind !== 'dispatch') throw new Error(`not admitted: ${admission.kind}`);
    mark('admitted', idempotencyKey, effectId);
    if (n % 10 === 0) continue;
    const jws = `receipt.of.${effectId}`;
    const settlement = settleRequest(admission.effect, committed(jws, `rcp_${prefix}_${n}`));
    if (n % 10 === 1) await spill.write(settlement);
    else await store.settle(settlement);
    mark('settled', effectId, jws);
    // As the product does: one round after the other.
    if (n % 25 === 5) await (draining = draining.then(() => spill.drain(store)));
  }
}

async function steps(): Promise<void> {
  const last = journal.heads().get(WORKSPACE)?.step ?? 0;
  for (let n = 1; n <= Math.ceil(calls / 10); n += 1) {
    const step = last + n;
    await journal.appended({
      workspace: WORKSPACE,
      step,
      at: step,
      redo: `redo ${step} ${'r'.repeat(3000)}`,
      batch: Buffer.alloc(0),
      epoch: 1,
    });
    mark('step', step);
    if (n % 5 !== 0) continue;
    await journal.remember({ installId: 'install', gatewayId: 'gateway', accepted: step });
    mark('remembered', step);
  }
}

try {
  await Promise.all([...Array.from({ length: CALLERS }, caller), steps()]);
} catch (error) {
  if (store.health().problem?.code !== 'store_sync_failed') throw error;
  process.kill(process.pid, 'SIGKILL');
}
if (process.env['SVC_POWER_END'] === 'kill') process.kill(process.pid, 'SIGKILL');
await journal.close();
await store.close();
