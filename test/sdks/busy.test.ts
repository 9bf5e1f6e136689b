import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { listenerOf, makeApiKey, send, startGateway, type TestGateway } from '../system/gateway.ts';
import { CASES } from './decision-cases.ts';
import { type FakeApi, type Said, type Seen, startFakeApi } from './fake-api.ts';
import { LIBRARIES, type Library } from './libraries.ts';

/**
 * An API that is busy twice and then does it. Libraries that succeed without the gateway succeed with it, as they are,
 * and whatever they send, it is done once.
 */

const STATUSES = [429, 503, 529] as const;
/** Words that the API is busy for. */
const isBusy = (word: string): number => Number(/^busy_(\d+)/.exec(word)?.[1] ?? 0);

let gateway: TestGateway;
let key: string;
let operator: string;
const fakes = new Map<string, FakeApi>();
const listeners = new Map<string, URL>();
/** Requests for a library and a word. */
const counts = new Map<string, number>();

function answer(library: Library, seen: Seen): Said {
  const word = library.wordOf(seen);
  const place = `${library.name} ${word}`;
  const count = (counts.get(place) ?? 0) + 1;
  counts.set(place, count);
  const status = isBusy(word);
  if (status === 0 || count > 2) return { json: library.done };
  const hint: Record<string, string> = word.endsWith('_final') ? { 'x-should-retry': 'false' } : {};
  return {
    status,
    headers: { 'retry-after': '1', ...hint },
    json: { error: { message: 'Not now' }, message: 'Not now' },
  };
}

/** The tool with what its API says about 503 and 529. */
function toolOf({ tool }: Library): string {
  const failed = 'outcomes: { failed: [503, 529]';
  return tool.includes('outcomes: { ') ? tool.replace('outcomes: { ', `${failed}, `) : `${tool}, ${failed} }`;
}

const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: busy
owner: team
rules: [ { id: all, effect: allow, match: { kinds: [write] } } ]
`;

beforeAll(async () => {
  for (const library of LIBRARIES) fakes.set(library.name, await startFakeApi((seen) => answer(library, seen)));
  const lines = LIBRARIES.map((library, index) => ({
    upstream: `  - { id: ${library.name}, url: "${fakes.get(library.name)?.url}", timeout: 10s }`,
    tool: `  - { name: ${library.name}.act, upstream: ${library.name}, kind: write, ${toolOf(library)} }`,
    route: `  - { upstream: ${library.name}, ${library.listens ? `prefix: /, listen: "127.0.0.${index + 1}:0"` : `prefix: /${library.name}`}, ${library.route}, rules: [ { match: "${library.match}", tool: ${library.name}.act, idempotency: derive } ] }`,
  }));
  const all = (name: 'upstream' | 'tool' | 'route'): string => lines.map((line) => line[name]).join('\n');
  const config = `${CASES}upstreams:\n${all('upstream')}\ntools:\n${all('tool')}\nroutes:\n${all('route')}\n`;
  gateway = await startGateway({ config, policies: { 'busy.yaml': POLICY } });
  for (const [index, { name, listens }] of LIBRARIES.entries())
    if (listens) listeners.set(name, await listenerOf(gateway, `127.0.0.${index + 1}:0`));
  key = await makeApiKey(gateway, 'olga', { kind: 'agent', workspace: 'demo', agent_id: 'bot' });
  operator = await makeApiKey(gateway, 'maria', { kind: 'account', workspace: 'demo' });
});
afterAll(async () => {
  await gateway.dispose();
  for (const fake of fakes.values()) await fake.close();
});

/** @returns whether the library's program got what it asked for, and how often the API was asked */
async function tried(library: Library, side: 'direct' | 'through', word: string): Promise<readonly [boolean, number]> {
  const [origin, prefix] =
    side === 'direct'
      ? [fakes.get(library.name)?.url ?? '', '']
      : library.listens
        ? [listeners.get(library.name)?.origin ?? '', '']
        : [gateway.url, `/${library.name}`];
  const named = `${word}_${side}`.replace(/_final_\w+$/, '_final');
  const call = { origin, prefix, key, word: named, note: 1, idempotencyKey: `${library.name}-${named}`, retries: true };
  const done = await library.call(call).then(
    () => true,
    () => false,
  );
  return [done, counts.get(`${library.name} ${named}`) ?? 0];
}

describe.each(STATUSES)('busy twice with %s', (status) => {
  it.concurrent.each(LIBRARIES.map((library) => [library.name, library] as const))('%s', async (_name, library) => {
    const direct = await tried(library, 'direct', `busy_${status}`);
    const [done, sent] = await tried(library, 'through', `busy_${status}`);
    // Stripe's library asks again after 429 only where it is told to.
    if (direct[0] || library.name !== 'stripe') expect([done, sent]).toEqual(direct);
    const { effects } = (
      await send(gateway.url, operator, 'GET', `/v1/workspaces/demo/effects?tool=${library.name}.act`)
    ).body;
    const ofThis = effects.filter(({ target }: { target: string }) => target === `case:busy_${status}_through`);
    expect(ofThis).toMatchObject([{ decision: done ? 'committed' : 'failed', attempt: sent }]);
    if (done) {
      // What was done in the third attempt is not done again.
      expect(await tried(library, 'through', `busy_${status}`)).toEqual([false, sent]);
    }
  });
});

it('most libraries ask again by themselves', () => {
  const asked = LIBRARIES.filter(({ name }) => (counts.get(`${name} busy_429_through`) ?? 0) > 2).map(
    ({ name }) => name,
  );
  expect(asked).toEqual(expect.arrayContaining(['openai', 'anthropic', 'stripe', 'octokit', 'slack', 'got']));
});

const [library = expect.unreachable()] = LIBRARIES;

it('an API that says itself that nobody should ask again is believed', async () => {
  expect(await tried(library, 'through', 'busy_429_final')).toEqual([false, 1]);
});

it('the effects API says when, and the same key is the next attempt', async () => {
  const body = {
    tool: 'openai.act',
    params: { model: 'busy_503_api', messages: [] },
    idempotency_key: 'busy-api',
  };
  const run = () => send(gateway.url, key, 'POST', '/v1/workspaces/demo/effects', body);
  const first = await run();
  expect(first).toMatchObject({
    status: 502,
    body: { decision: 'failed', attempt: 1, reason: { code: 'upstream_busy' }, next: 'retry', retry_after_ms: 1000 },
  });
  expect([first.headers.get('x-should-retry'), first.headers.get('retry-after')]).toEqual(['true', '1']);
  expect((await run()).body).toMatchObject({ decision: 'failed', attempt: 2 });
  expect((await run()).body).toMatchObject({ decision: 'committed', attempt: 3, effect_id: first.body.effect_id });
  expect((await run()).body).toMatchObject({ decision: 'duplicate_blocked' });
  expect(counts.get('openai busy_503_api')).toBe(3);
});
