import { once } from 'node:events';
import { request } from 'node:http';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type ProxiedWorld, startProxiedWorld } from './gateway.ts';

let world: ProxiedWorld;
beforeAll(async () => {
  world = await startProxiedWorld();
});
afterAll(() => world.close());

let counter = 0;

/** A request whose path goes on the wire as it is written: `fetch` would resolve its dot segments. */
async function send(method: string, path: string): Promise<{ status: number; target: string | null }> {
  counter += 1;
  const { hostname, port } = new URL(world.url);
  const headers = {
    'x-api-key': world.keys.bot,
    'content-type': 'application/json',
    'idempotency-key': `s-${counter}`,
  };
  const sent = request({ hostname, port, method, path: `/shop${path}`, headers });
  sent.end(method === 'PUT' ? '{"content":"x"}' : undefined);
  const [answer] = await once(sent, 'response');
  answer.resume();
  await once(answer, 'end');
  const id = answer.headers['svc-effect-id'];
  const effect = typeof id === 'string' ? await world.store.effect('demo', id) : null;
  return { status: answer.statusCode, target: effect !== null && 'action' in effect ? effect.action.target : null };
}

async function lastUrl(): Promise<string | undefined> {
  return (await world.upstream.ledger()).requests.at(-1)?.url;
}

// docs/upstreams/rest.md: "Policies, targets and fingerprints have the decoded value, `src/a.ts`; the upstream gets the
// bytes of the caller."
test('the rest of a path: the decoded value names the target, the upstream gets the bytes of the caller', async () => {
  for (const path of ['/v1/files/src/a.ts', '/v1/files/src%2Fa.ts', '/v1/files/src%2fa.ts']) {
    expect(await send('PUT', path), path).toEqual({ status: 201, target: 'file:src/a.ts' });
    expect(await lastUrl()).toBe(path);
  }
  for (const path of ['/v1/files/.github/ci.yml', '/v1/files/.github%2Fci.yml', '/v1/files/%2Egithub/ci.yml'])
    expect((await send('PUT', path)).status, path).toBe(path.includes('%2E') ? 400 : 403);
  expect(await lastUrl()).toBe('/v1/files/src%2fa.ts');
});

test('an encoded slash in the middle: policy sees it decoded, the upstream encoded', async () => {
  expect((await send('GET', '/v1/projects/group%2Fshop/raw')).status).toBe(200);
  expect(await lastUrl()).toBe('/v1/projects/group%2Fshop/raw');
  for (const id of ['group%2Fsecret', 'group%2fsecret', 'gr%6Fup%2Fsecret'])
    expect((await send('GET', `/v1/projects/${id}/raw`)).status, id).toBe(403);
  expect(await lastUrl()).toBe('/v1/projects/group%2Fshop/raw');
});

// docs/upstreams/rest.md: "Between slashes there must be a name that all servers read alike: `..`, `.` and nothing are
// refused in every spelling and at every place, so are names with `;`, with a dot or white space at the end, and those
// that are encoded twice."
const UNLIKE = '.. . %2e%2e .%2E %2e a;b a%3Bb a. a%2E a%20 %09 %252e%252e %255c ..%5c \\ %00 ..;x %EF%BC%8E%EF%BC%8E';
test.each(['', ...UNLIKE.split(' ')])('%j is no name between slashes, at no place', async (name) => {
  const before = (await world.upstream.counts()).requests;
  const paths = ['/', '%2F', '%2f'].flatMap((slash) => [
    `/v1/files/${name}${slash}b`,
    `/v1/files/a${slash}${name}${slash}b`,
    `/v1/files/a${slash}b${slash}${name}`,
    ...(slash === '/' ? [] : [`/v1/projects/a${slash}${name}/raw`, `/v1/projects/${name}${slash}a/raw`]),
  ]);
  for (const path of paths) {
    const { status } = await send(path.includes('projects') ? 'GET' : 'PUT', path);
    expect(status, path).toBeGreaterThanOrEqual(400);
    expect(status, path).toBeLessThan(500);
  }
  expect((await world.upstream.counts()).requests).toBe(before);
});

// docs/upstreams/rest.md: "A path that is another rule's once it is decoded (`/projects/1%2Fraw`, beside a rule
// `GET /projects/:id`) is refused." "An encoded slash that no rule takes is refused with 400."
test('a path that is another rule’s once it is decoded, and an encoded slash that no rule takes', async () => {
  const before = (await world.upstream.counts()).requests;
  for (const path of ['/v1/projects/1%2Fraw', '/v1/projects/1%2fRAW', '/v1/orders/a%2Fb', '/v1/projects/a%2Fb'])
    expect((await send('GET', path)).status, path).toBe(400);
  expect((await world.upstream.counts()).requests).toBe(before);
});
