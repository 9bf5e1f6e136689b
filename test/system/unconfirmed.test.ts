import { afterAll, beforeAll, expect, it } from 'vitest';
import { startReplicated, until } from '../redis/servers.ts';
import { type Fleet, startFleet } from './fleet.ts';
import { shortest } from '../shortest.ts';
import { refund } from './world.ts';

/** More than the attempts that a key has. */
const TRIES = 15;

let replicated: Awaited<ReturnType<typeof startReplicated>>;
let fleet: Fleet;
beforeAll(async () => {
  replicated = await startReplicated(1, ['--appendfsync', 'everysec']);
  fleet = await startFleet({ gateways: 1, store: `url: "${replicated.primary.url}", durability: replica` });
});
afterAll(async () => {
  await fleet.close();
  await replicated.stop();
});

it('while nothing is confirmed calls are refused at once, and use up none of their key’s attempts', async () => {
  const [replica] = replicated.replicas;
  expect((await fleet.run(0, refund())).body.decision).toBe('committed');
  const before = await fleet.upstream.counts();
  replica!.signal('SIGSTOP');
  const call = refund();
  await fleet.run(0, call);
  const refusals = async (): Promise<number> => {
    const began = performance.now();
    for (let n = 0; n < TRIES; n += 1) expect((await fleet.run(0, call)).status).toBe(503);
    return performance.now() - began;
  };
  expect(await shortest(900 * 2, refusals)).toBeLessThan(900 * 2);
  expect(await fleet.upstream.counts()).toEqual(before);
  replica!.signal('SIGCONT');
  let answer = await fleet.run(0, call);
  await until(async () => {
    if (answer.status === 503) answer = await fleet.run(0, call);
    return answer.status !== 503;
  });
  expect(answer.body.decision).toBe('committed');
  expect(answer.body.attempt).toBeLessThanOrEqual(5);
});
