import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { expect, test, vi } from 'vitest';
import { readRequest } from '../../src/proxy/governed.ts';
import type { Identified } from '../../src/identity/identified.ts';
import { readQuery } from '../../src/proxy/arrival.ts';
import { type Catalog, createCatalog } from '../../src/upstreams/catalog.ts';
import { makeTool } from '../upstreams/tool.ts';
import { BOT } from './principal.ts';
import { NO_SPOOL, UPLOADS } from './uploads.ts';
import { createIdentities } from '../../src/proxy/arrival.ts';
import { planOf } from '../../src/upstreams/http/request-template.ts';

const SMALL = '{"amount":1}';
const LARGE = `{"amount":1,"note":"${'x'.repeat(70_000)}"}`;

const portsWith = (catalog: () => Catalog, spool = NO_SPOOL) => ({
  catalog,
  policyMode: () => 'enforce' as const,
  spool,
  settings: () => ({
    publicUrl: '',
    queryKey: 'allow' as const,
    bodyLimit: 100_000,
    jsonLimits: { depth: 10, values: 100 },
    uploads: UPLOADS,
  }),
});

/**
 * Reads a request by a tool. `meanwhile` is given what puts another configuration in force, and what brings the body.
 * `looked`: the configuration was looked at.
 */
function reading(
  body: string,
  meanwhile: (change: () => void, bring: () => void, request: IncomingMessage) => void,
  looked: () => void = () => undefined,
) {
  const tool = makeTool();
  let catalog = createCatalog([tool]);
  const request = new IncomingMessage(new Socket());
  request.headers = { 'content-type': 'application/json', 'content-length': String(body.length) };
  const read = readRequest(
    portsWith(() => {
      const seen = catalog;
      looked();
      return seen;
    }),
    { key: 'the key', principal: BOT, query: readQuery(null), workspace: 'demo' },
    { tool, plan: planOf(tool.call.request), pathParams: { payment_id: 'p1' }, route: { undeclaredQuery: null } },
    request,
  );
  meanwhile(
    () => {
      catalog = createCatalog([makeTool()]);
    },
    () => {
      request.push(body);
      request.push(null);
    },
    request,
  );
  return read;
}

test.each([SMALL, LARGE])('a body that came in under one configuration is read', async (body) => {
  expect(await reading(body, (_change, bring) => bring())).toMatchObject({ kind: 'read', params: { amount: 1 } });
});

test('a configuration that changed while the body came in: the old route runs nothing', async () => {
  const read = await reading(SMALL, (change, bring) => {
    change();
    bring();
  });
  expect(read).toMatchObject({ kind: 'problem', problem: { code: 'not_ready', retryAfterMs: 1000 } });
});

test('nor one that changed while others had their turn after a large body', async () => {
  const read = await reading(LARGE, (change, bring, request) => {
    // Comes after the body was read and before what waits behind it.
    request.prependListener('end', () => setImmediate(change));
    bring();
  });
  expect(read).toMatchObject({ kind: 'problem', problem: { code: 'not_ready' } });
});

test('nor one that changed after it was looked at for a large body, but for the last time', async () => {
  let looks = 0;
  const whole = await reading(
    LARGE,
    (_change, bring) => bring(),
    () => (looks += 1),
  );
  expect(whole).toMatchObject({ kind: 'read' });
  for (let last = 1; last < looks; last += 1) {
    let change = (): void => undefined;
    let looked = 0;
    const read = await reading(
      LARGE,
      (other, bring) => {
        change = other;
        bring();
      },
      () => {
        looked += 1;
        if (looked === last) change();
      },
    );
    expect([last, read]).toMatchObject([last, { kind: 'problem', problem: { code: 'not_ready' } }]);
  }
});

const WHO: Identified = {
  kind: 'principal',
  principal: BOT,
};

test.each([
  ['a key is verified once in a moment', false, 1],
  ['keys that change while one is verified: it is verified again', true, 2],
])('%s', async (_name, changes, times) => {
  vi.spyOn(performance, 'now').mockReturnValue(1000);
  try {
    let changed: () => void = () => undefined;
    let verified: (who: Identified) => void = () => undefined;
    let asked = 0;
    const identities = createIdentities({
      identify: () => {
        asked += 1;
        return new Promise<Identified>((resolve) => {
          verified = resolve;
        });
      },
      onAccessChanged: (listener) => {
        changed = listener;
        return () => undefined;
      },
    });
    const request = new IncomingMessage(new Socket());
    const first = identities.of(request, 'k', '127.0.0.1');
    if (changes) changed();
    verified(WHO);
    await first;
    void identities.of(request, 'k', '127.0.0.1');
    expect(asked).toBe(times);
  } finally {
    vi.restoreAllMocks();
  }
});

test('all keys of an agent have one room for files, and an agent of another workspace has its own', async () => {
  const tool = makeTool({
    request: { method: 'POST', path: '/v1/files', query: [], headers: {}, body: ['file'], bodyType: 'multipart' },
  });
  const catalog = createCatalog([tool]);
  const owners = new Set<string>();
  const begin = (_limits: unknown, owner: string): never => {
    owners.add(owner);
    throw new Error('no room');
  };
  for (const [keyId, workspace, rooms] of [
    ['key_1', 'demo', 1],
    ['key_2', 'demo', 1],
    ['key_3', 'other', 2],
  ] as const) {
    const request = new IncomingMessage(new Socket());
    request.headers = { 'content-type': 'multipart/form-data; boundary=x', 'content-length': '9' };
    const arrived = { key: 'k', principal: { ...BOT, keyId, workspace }, query: readQuery(null), workspace };
    const match = { tool, plan: planOf(tool.call.request), pathParams: {}, route: { undeclaredQuery: null } };
    const read = readRequest(
      portsWith(() => catalog, { begin, used: () => 0 }),
      arrived,
      match,
      request,
    );
    await expect(read).rejects.toThrow('no room');
    expect(owners.size).toBe(rooms);
  }
});
