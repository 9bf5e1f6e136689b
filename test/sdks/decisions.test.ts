import { ApiException } from '@kubernetes/client-node';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { DECISIONS, type Decision } from '../../src/effects/model/decision.ts';
import { listenerOf, startGateway, type TestGateway } from '../system/gateway.ts';
import { type CountingDoor, openCountingDoor } from './counting-door.ts';
import { arrangeCases, CASES, casesPolicy } from './decision-cases.ts';
import { type FakeApi, type Said, type Seen, startFakeApi } from './fake-api.ts';
import { LIBRARIES, type Library, type TableCall } from './libraries.ts';

/**
 * Each library × each decision, as the library is by default: what a program that uses it is told, and how often it
 * came to the gateway and the API. Each library's tool makes its target of one param, so that one policy and one set of
 * pauses, claims, budgets and reservations decides for all of them.
 */

let gateway: TestGateway;
const fakes = new Map<string, FakeApi>();
/** The doors to the gateway's own listener and to those of libraries that take no path, by name of the route. */
const doors = new Map<string, CountingDoor>();
/** By agent. */
let keyOf: (name: string) => string = () => '';
/** Ends the call that is under way at the API. */
let release: () => void = () => {};

function answer(library: Library, seen: Seen): Said | Promise<Said> {
  switch (library.wordOf(seen)) {
    case 'refused':
      return library.refused;
    case 'lost':
      return { status: 500, json: { error: { message: 'oops' } } };
    case 'held':
      return new Promise((resolve) => {
        release = () => resolve({ json: library.done });
      });
    default:
      return { json: library.done };
  }
}

/** Routes of a library: to its API, to one that nobody listens at, and with a tool that takes bodies of another type. */
const SIDES = ['up', 'down', 'typed'] as const;

function ofOtherType(tool: string): string {
  return tool.includes('body_type: form')
    ? tool.replace(', body_type: form', '')
    : tool.replace('body: "*"', 'body: "*", body_type: form');
}

function config(): string {
  const rows = LIBRARIES.flatMap((library) => SIDES.map((side) => ({ library, side, id: `${library.name}-${side}` })));
  const upstreams = rows.map(({ library, side, id }) => {
    const url = side !== 'down' ? fakes.get(library.name)?.url : 'http://127.0.0.1:1';
    return `  - { id: ${id}, url: "${url}", timeout: 10s, credentials: { header: authorization, value: "Bearer of-the-api" } }`;
  });
  const tools = rows.map(({ library, side, id }) => {
    const tool = side === 'typed' ? ofOtherType(library.tool) : library.tool;
    return `  - { name: ${id}.act, upstream: ${id}, kind: write, ${tool} }`;
  });
  const routes = rows.map(({ library, id }, index) => {
    // Names of one address: the system chooses a port for each.
    const place = library.listens ? `prefix: /, listen: "127.0.0.${index + 1}:0"` : `prefix: /${id}`;
    const rule = `{ match: "${library.match}", tool: ${id}.act, idempotency: derive }`;
    return `  - { upstream: ${id}, ${place}, pending_status: 409, ${library.route}, rules: [ ${rule} ] }`;
  });
  return `${CASES}limits: { body: 8KiB }
upstreams:
${upstreams.join('\n')}
tools:
${tools.join('\n')}
routes:
${routes.join('\n')}
`;
}

beforeAll(async () => {
  for (const library of LIBRARIES) fakes.set(library.name, await startFakeApi((seen) => answer(library, seen)));
  gateway = await startGateway({ config: config(), policies: { 'table.yaml': casesPolicy('{ kinds: [write] }', 1) } });
  doors.set('', await openCountingDoor(gateway.url));
  for (const [index, library] of LIBRARIES.entries()) {
    for (const [half, side] of library.listens ? SIDES.entries() : []) {
      const at = `127.0.0.${index * SIDES.length + half + 1}:0`;
      const { origin } = await listenerOf(gateway, at);
      doors.set(`${library.name}-${side}`, await openCountingDoor(origin));
    }
  }
  keyOf = await arrangeCases(gateway, 'nothing.*');
  const purse = await fetch(`${gateway.url}/fetch-up/things/costly`, {
    method: 'POST',
    headers: { 'x-api-key': keyOf('bot') },
  });
  expect(purse.status).toBe(200);
});
afterAll(async () => {
  release();
  await gateway.dispose();
  for (const door of doors.values()) await door.close();
  for (const fake of fakes.values()) await fake.close();
});
beforeEach(() => {
  release = () => {};
});

/** A row of the table: how a call gets the decision, and what is told of it. */
interface Row {
  readonly word: string;
  readonly agent?: string;
  readonly side?: (typeof SIDES)[number];
  /** Code of the gateway's; the API's own where it refused itself. */
  readonly code: string | null;
  readonly message: RegExp;
  /** Requests at the API, of the call that is told of. */
  readonly sent: number;
}

const ROWS: Readonly<Record<Exclude<Decision, 'committed'> | 'failed: unreachable', Row>> = {
  duplicate_blocked: { word: 'fine', code: 'already_committed', message: /under this key/, sent: 0 },
  pending_approval: { word: 'ask', code: 'approval_required', message: /Waits for approval apr_\w+: It/, sent: 0 },
  in_progress: { word: 'held', code: 'executing', message: /running|under way|executing/i, sent: 0 },
  denied_permission: { word: 'fine', agent: 'narrow', code: 'tool_not_allowed', message: /tool/, sent: 0 },
  denied_policy: { word: 'no', code: 'rule_denied', message: /Not this one/, sent: 0 },
  denied_identity: { word: 'fine', agent: 'disabled', code: 'agent_disabled', message: /disabled/, sent: 0 },
  denied_budget: { word: 'costly', code: 'budget_exceeded', message: /budget/i, sent: 0 },
  denied_claim: { word: 'claimed', code: 'claim_held', message: /claim/, sent: 0 },
  idempotency_conflict: { word: 'fine', code: 'key_reused', message: /key/, sent: 0 },
  denied_reservation: { word: 'reserved', code: 'pool_exhausted', message: /slot/, sent: 0 },
  denied_paused: { word: 'fine', agent: 'stopped', code: 'paused', message: /Under repair/, sent: 0 },
  failed: { word: 'refused', code: null, message: /./, sent: 1 },
  'failed: unreachable': { word: 'fine', side: 'down', code: 'connect_failed', message: /connect|reach/i, sent: 0 },
  unknown_effect: { word: 'lost', code: 'outcome_unknown', message: /not known|unknown/i, sent: 1 },
};

it('the table has every decision', () => {
  expect(new Set(['committed', ...Object.keys(ROWS)])).toEqual(new Set([...DECISIONS, 'failed: unreachable']));
});

let calls = 0;

describe.each(LIBRARIES)('$name', (library) => {
  const fake = (): FakeApi => fakes.get(library.name) ?? expect.unreachable();
  const doorOf = (side: string): CountingDoor =>
    doors.get(library.listens ? `${library.name}-${side}` : '') ?? expect.unreachable();

  function callOf(row: { word: string; agent?: string; side?: string }, more: Partial<TableCall> = {}): TableCall {
    const side = row.side ?? 'up';
    return {
      origin: doorOf(side).url,
      prefix: library.listens ? '' : `/${library.name}-${side}`,
      key: keyOf(row.agent ?? 'bot'),
      word: row.word,
      note: (calls += 1),
      idempotencyKey: null,
      retries: true,
      ...more,
    };
  }

  it('committed', async () => {
    const before = [doorOf('up').count(), fake().seen.length];
    await library.call(callOf({ word: 'fine' }));
    expect([doorOf('up').count(), fake().seen.length]).toEqual(before.map((count) => count + 1));
    expect(fake().seen.at(-1)?.headers.authorization).toBe('Bearer of-the-api');
  });

  it('a key that is wrong', async () => {
    const before = doorOf('up').count();
    const error: unknown = await library
      .call(callOf({ word: 'fine' }, { key: 'svc_agent_wrong' }))
      .catch((thrown) => thrown);
    expect(doorOf('up').count()).toBe(before + 1);
    // The status is the transport's: what this library throws then has no errors of GraphQL.
    if (library.name === 'octokit-graphql') expect(error).toMatchObject({ status: 401 });
    // Of a 401 this library reads no body.
    else if (library.name === 'kubernetes') {
      expect(error).toBeInstanceOf(ApiException);
      expect(error).toMatchObject({ code: 401 });
    } else
      expect(library.told(error), String(error)).toMatchObject({
        code: 'invalid_key',
        message: expect.stringMatching(/^[^{]/),
      });
  });

  it('a request that is not accepted', async () => {
    const before = [doorOf('up').count(), fake().seen.length];
    const call = callOf({ word: 'fine' }, { idempotencyKey: 'k'.repeat(300) });
    const error: unknown = await library.call(call).catch((thrown) => thrown);
    expect([doorOf('up').count(), fake().seen.length]).toEqual([(before[0] ?? 0) + 1, before[1]]);
    const told = library.told(error);
    expect(told, String(error)).toMatchObject({
      code: 'invalid_request',
      message: expect.stringContaining('Idempotency-Key'),
    });
    // Not the whole document, which libraries show that cannot read it.
    expect(told?.message).toMatch(/^[^{]*The header/);
  });

  it.each([
    ['a body that is too large', 'up', 'x'.repeat(9_000), 'too_large', /larger|at most|too/i],
    ['a body of another type', 'typed', '', 'unsupported_media_type', /content-type|type/i],
  ] as const)('%s', async (_, side, padding, code, message) => {
    const before = [doorOf(side).count(), fake().seen.length];
    const error: unknown = await library
      .call(callOf({ word: 'fine', side }, { padding, retries: false }))
      .catch((thrown) => thrown);
    expect([doorOf(side).count(), fake().seen.length]).toEqual([(before[0] ?? 0) + 1, before[1]]);
    const told = library.told(error);
    expect(told, String(error)).toMatchObject({ code });
    expect(told?.message).toMatch(message);
    expect(told?.message).toMatch(/^[^{]/);
  });

  it.each(Object.entries(ROWS))('%s', async (decision, row) => {
    const idempotencyKey = ['duplicate_blocked', 'idempotency_conflict', 'in_progress'].includes(decision)
      ? `${library.name}-${decision}`
      : null;
    const call = callOf(row, { idempotencyKey, retries: decision !== 'in_progress' });
    const seen = fake().seen.length;
    const first = decision === 'in_progress' ? library.call(call) : null;
    if (first !== null) await expect.poll(() => fake().seen.length).toBe(seen + 1);
    else if (idempotencyKey !== null) await library.call(call);
    const before = [doorOf(row.side ?? 'up').count(), fake().seen.length] as const;
    const again = decision === 'idempotency_conflict' ? { ...call, note: (calls += 1) } : call;
    const error = await library.call(again).then(
      (returned) => expect.unreachable(`returned ${JSON.stringify(returned)}`),
      (thrown: unknown) => thrown,
    );
    expect([doorOf(row.side ?? 'up').count(), fake().seen.length]).toEqual([before[0] + 1, before[1] + row.sent]);
    const told = library.told(error);
    expect(told, String(error)).toMatchObject({ code: row.code ?? library.refused.code });
    expect(told?.message).toMatch(row.message);
    // An answer of the API has the API's headers.
    if (told !== null && 'requestId' in told && told.code !== library.refused.code)
      expect(told.requestId).toEqual(expect.stringMatching(/./));
    release();
    await first;
  });
});

it('too many requests are each library’s own error, with the sentence where it reads one', async () => {
  const wrong = async (origin: string): Promise<void> => {
    const answer = await fetch(`${origin}/fetch-up/things/fine`, {
      method: 'POST',
      headers: { 'x-api-key': 'svc_agent_wrong' },
    });
    await answer.arrayBuffer();
  };
  for (const library of LIBRARIES) {
    const origin = doors.get(library.listens ? `${library.name}-up` : '')?.url ?? '';
    const call = callTo(library, origin);
    let error: unknown;
    // Ten come back each second: a call that got one of them has to be made again.
    do {
      await Promise.all(Array.from({ length: 50 }, () => wrong(origin)));
      error = await call().catch((thrown) => thrown);
    } while (library.told(error)?.code === 'invalid_key' || /\b401\b|malformed, unknown/.test(String(error)));
    if (library.name === 'octokit-graphql') expect(error).toMatchObject({ status: 429 });
    // It says when to ask again, and nothing else.
    else if (library.name === 'slack') expect(error).toMatchObject({ code: 'slack_webapi_rate_limited_error' });
    else
      expect(library.told(error), `${library.name}: ${String(error)}`).toMatchObject({
        code: 'too_many_requests',
        message: expect.stringContaining('too many invalid keys'),
      });
  }
});

/** A call with a key that nobody has. */
function callTo(library: Library, origin: string): () => Promise<unknown> {
  const prefix = library.listens ? '' : `/${library.name}-up`;
  const call = { origin, prefix, key: 'svc_agent_wrong', word: 'fine', note: 0, idempotencyKey: null, retries: false };
  return () => library.call(call);
}
