import { parentPort, workerData } from 'node:worker_threads';
import { during, load, requestOf } from './load.ts';

/** The listers' load, in a thread of its own: reading large pages must not hold up the load whose calls are counted. */

export interface ListerData {
  readonly url: string;
  readonly key: string;
  readonly listers: number;
  readonly ms: number;
}

/** What people ask for: large pages, filters that few or no effects fit, and what is computed from other records. */
const LISTS: readonly string[] = [
  'effects?limit=200',
  'effects?tool=payments.get',
  'effects?decision=denied_budget&limit=200',
  'effects?state=committed&limit=200',
  'observed-reads',
  'approvals?status=used',
  'budgets',
];

const { url, key, listers, ms }: ListerData = workerData;
let asked = 0;
const next = during(ms, () => {
  asked += 1;
  const list = LISTS[asked % LISTS.length] ?? '';
  return requestOf('GET', `/v1/workspaces/bench/${list}`, { 'x-api-key': key }, null);
});
const { calls } = await load({ url, connections: listers, next, expected: [200, 429] });
parentPort?.postMessage(calls);
