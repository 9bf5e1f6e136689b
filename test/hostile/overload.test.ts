import { afterAll, beforeAll, expect, it } from 'vitest';
import { startWorld, type World, worldFiles } from '../system/world.ts';

const CALLS = 500;
/** What the upstream takes at once, and how long it takes for each: 64 calls in the time that an admitted one has. */
const CONNECTIONS = 16;
const LATENCY_MS = 500;

let world: World;
beforeAll(async () => {
  world = await startWorld({
    files: (url) => {
      const { config, policies } = worldFiles(url);
      return { config: config.replace('timeout: 10s }', `timeout: 10s, connections: ${CONNECTIONS} }`), policies };
    },
  });
});
afterAll(() => world.close());

it('many more calls at once than can be sent in time: admitted is what can be, the rest is told so before admission', async () => {
  const { bot, otherBot } = world.keys;
  await world.upstream.mode({ latency_ms: LATENCY_MS });
  const run = async (index: number): Promise<string> => {
    const answer = await fetch(`${world.gateway.url}/v1/workspaces/demo/effects`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': index % 2 === 0 ? bot : otherBot },
      body: JSON.stringify({ tool: 'notes.add', params: { text: `${index}` }, idempotency_key: `many-${index}` }),
    });
    const body: unknown = await answer.json();
    if (answer.status === 200) return 'committed';
    if (answer.status === 429 || answer.status === 503) {
      expect(answer.headers.get('retry-after')).toMatch(/^\d+$/);
      return 'told';
    }
    return JSON.stringify(body);
  };
  const ends = await Promise.all(Array.from({ length: CALLS }, (_, index) => run(index)));
  const count = (end: string): number => ends.filter((each) => each === end).length;
  const committed = count('committed');
  const rest = ends.filter((end) => end !== 'committed' && end !== 'told');
  expect(committed).toBeGreaterThanOrEqual(CONNECTIONS);
  expect(committed + count('told') + rest.length).toBe(CALLS);
  // A machine that stood still may have cost those that were admitted just then; nothing else is any of them.
  expect(rest.every((end) => end.includes('not_dispatched'))).toBe(true);
  expect(rest.length).toBeLessThanOrEqual(CONNECTIONS);
  // What was answered is what happened, and what was told so left nothing behind.
  expect((await world.upstream.counts()).effects).toBe(committed);
  await world.upstream.mode({ latency_ms: 0 });
  const again = await world.run(
    { tool: 'notes.add', params: { text: `${ends.indexOf('told')}` }, idempotency_key: `many-${ends.indexOf('told')}` },
    ends.indexOf('told') % 2 === 0 ? bot : otherBot,
  );
  expect([again.body.decision, again.body.attempt]).toEqual(['committed', 1]);
});
