import { createPrivateKey } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CompactSign } from 'jose';
import { createAuthenticator } from '../src/identity/authenticate.ts';
import { type Issuer, receiptPayload } from '../src/receipts/sign.ts';
import { receiptView } from '../src/receipts/view.ts';
import { openSecrets } from '../src/secrets/vault.ts';
import { keyShelf, PEPPER, shelve } from '../test/identity/key-shelf.ts';
import { keyBench, receiptInput } from '../test/receipts/facts.ts';
import type { BenchResult } from './result.ts';

const ROUNDS = 15;
const CALLS = 1_000;

/** Microseconds of what each governed write pays for its receipt, its seal and its key, beside jose. */
export async function run(): Promise<BenchResult[]> {
  const bench = await keyBench();
  try {
    const signer = await bench.open();
    const [name = ''] = await readdir(bench.folder);
    const key = createPrivateKey(await readFile(join(bench.folder, name), 'utf8'));
    const secrets = await openSecrets({ masterFile: join(bench.folder, 'master'), previous: [] });
    const input = receiptInput();
    const { jws } = signer.issue(input);
    const issuer: Issuer = { iss: 'urn:x', version: '0', node: '0', params: 'together', durability: () => 'fsync' };
    const header = { alg: 'Ed25519', kid: signer.kid(), typ: 'svc-receipt+jws' };
    const params = { payment_id: 'pay_77', amount: 5000, currency: 'EUR' };
    const plain = { params, salts: secrets.newSalts(), stateCheck: null, claimId: null, reservationId: null };
    const bound = { workspace: 'demo', effectId: 'eff_1', fingerprint: 'f' };
    const sealed = secrets.seal(plain, bound);
    const shelf = keyShelf();
    const agent = shelve(shelf, 'agent');
    const authenticator = createAuthenticator({ store: shelf, users: shelf, peppers: [PEPPER], elapsed: () => 0 });
    await authenticator.authenticate(agent.key);

    const times = { issue: [0], jose: [0], view: [0], seal: [0], open: [0], key: [0] };
    for (const list of Object.values(times)) list.length = 0;
    // In turns, so that whatever else the machine does falls on all.
    for (let round = 0; round < ROUNDS; round += 1) {
      times.issue.push(timeOf(() => signer.issue(input)));
      times.jose.push(
        await timeOfAsync(() =>
          new CompactSign(Buffer.from(receiptPayload(input, issuer))).setProtectedHeader(header).sign(key),
        ),
      );
      times.view.push(timeOf(() => receiptView(jws)));
      times.seal.push(timeOf(() => secrets.seal({ ...plain, salts: secrets.newSalts() }, bound)));
      times.open.push(timeOf(() => secrets.open(sealed, bound)));
      times.key.push(timeOf(() => authenticator.authenticate(agent.key)));
    }
    await authenticator.close();
    const issue = median(times.issue);
    const jose = median(times.jose);
    const alone = (title: string, value: number): BenchResult => ({
      name: title,
      value,
      unit: 'µs',
      peer: null,
      ratio: null,
      target: null,
    });
    return [
      {
        ...alone('receipt: built, committed and signed', issue),
        peer: `the same payload signed by jose: ${jose} µs`,
        ratio: Number((issue / jose).toFixed(2)),
        target: 'at most 60 µs',
      },
      alone('receipt: view of a stored one', median(times.view)),
      alone('params sealed, with new salts', median(times.seal)),
      alone('params opened', median(times.open)),
      alone('key authenticated from the cache', median(times.key)),
    ];
  } finally {
    await bench.close();
  }
}

/** Microseconds per call. */
function timeOf(call: () => unknown): number {
  const begun = performance.now();
  for (let index = 0; index < CALLS; index += 1) call();
  return ((performance.now() - begun) * 1000) / CALLS;
}

async function timeOfAsync(call: () => Promise<unknown>): Promise<number> {
  const begun = performance.now();
  for (let index = 0; index < CALLS; index += 1) await call();
  return ((performance.now() - begun) * 1000) / CALLS;
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return Number((sorted[Math.floor(sorted.length / 2)] ?? 0).toFixed(1));
}
