import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { svc } from './run.ts';

/* What `svc status` makes of what a gateway says: what needs somebody, since when, and with which exit code. */

const MINUTE = 60_000;
const ago = (ms: number): string => new Date(Date.now() - ms).toISOString();

/** What the gateway answers, by the path and the part of the query that tells it apart. */
let answers: Record<string, { readonly status?: number; readonly body: object }> = {};
let asked: string[] = [];
const gateway = createServer((request, response) => {
  const url = decodeURIComponent(request.url ?? '');
  asked.push(url);
  const [, said] = Object.entries(answers).find(([part]) => url.includes(part)) ?? [];
  response.statusCode = said?.status ?? 200;
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify(said?.body ?? NOTHING));
});
const NOTHING = { ready: true, effects: [], approvals: [], pauses: [], budgets: [], next_cursor: null };

beforeAll(() => once(gateway.listen(0, '127.0.0.1'), 'listening'));
afterAll(() => gateway.close());
beforeEach(() => {
  answers = {};
  asked = [];
  vi.stubEnv('SVC_API_KEY', 'svc_acct_7hQ2mZx0PbKdAAAABBBBCCCCDDDD');
});
afterEach(() => vi.unstubAllEnvs());

const url = () => `http://127.0.0.1:${(gateway.address() as AddressInfo).port}`;
const status = (...more: readonly string[]) => svc('status', '--workspace', 'w', '--url', url(), ...more);
/** The line of a part. */
async function line(part: string): Promise<string> {
  const { out } = await status();
  return out.split('\n').find((one) => one.startsWith(part)) ?? '';
}

const effect = (more: object = {}) => ({
  effect_id: 'eff_1',
  tool: 't',
  target: 'x',
  upstream: 'u',
  idempotency_key: 'k',
  agent_id: 'bot',
  created_at: ago(0),
  links: {},
  ...more,
});
const effects = (state: string, ...of: readonly object[]) => ({
  [state]: { body: { ...NOTHING, effects: of } },
});
const approvals = (state: string, ...of: readonly object[]) => ({
  [`status=${state}`]: { body: { ...NOTHING, approvals: of } },
});
const approval = (more: object = {}) => ({
  id: 'apr_1',
  tool: 't',
  target: 'x',
  requested_by: { agent_id: 'bot' },
  expires_at: ago(0),
  decided_at: null,
  requirements: [],
  ...more,
});
const pause = (until: string | null) => ({
  id: 'pau_1',
  scope: { all: true },
  by: { user: 'maria' },
  created_at: ago(0),
  until,
  reason: 'r',
});
const budget = (level: string) => ({ budget: 'b', bucket: null, unit: 'calls', level });
const unknown = { state: 'unknown', evidence: { message: 'no answer' }, started_at: ago(0), quiesce_until: ago(0) };
const executing = (ms: number) => effect({ state: 'executing', started_at: ago(ms), created_at: ago(ms) });

test.each<[string, () => typeof answers, number]>([
  ['nothing', () => ({}), 0],
  ['a note of /readyz', () => ({ readyz: { body: { ready: true, notes: [{ part: 'fsck', message: 'm' }] } } }), 1],
  ['a gateway that is not ready', () => ({ readyz: { status: 503, body: { ready: false, parts: [] } } }), 1],
  ['an unknown outcome', () => effects('state=unknown', effect(unknown)), 1],
  ['a call that runs for less than two minutes', () => effects('state=executing', executing(1.9 * MINUTE)), 0],
  ['a call that runs for longer than two minutes', () => effects('state=executing', executing(2.1 * MINUTE)), 1],
  ['a request for approval', () => approvals('pending', approval()), 1],
  ['an approved call that is about to be sent', () => approvals('granted', approval()), 0],
  [
    'an approved call that something stops',
    () => approvals('granted', approval({ stopped: { at: ago(0), code: 'budget_exceeded', message: 'm' } })),
    1,
  ],
  ['a request that nobody decided on', () => approvals('expired', approval()), 0],
  ['a pause with an end', () => ({ pauses: { body: { ...NOTHING, pauses: [pause(ago(-MINUTE))] } } }), 0],
  ['a pause without an end', () => ({ pauses: { body: { ...NOTHING, pauses: [pause(null)] } } }), 1],
  ['a budget that is low', () => ({ budgets: { body: { ...NOTHING, budgets: [budget('low')] } } }), 0],
  ['a budget that is used up', () => ({ budgets: { body: { ...NOTHING, budgets: [budget('exhausted')] } } }), 1],
  ['a call that was refused for a budget', () => effects('denied_budget', effect({ reason: { message: 'm' } })), 1],
  ['a part that the key may not see', () => ({ budgets: { status: 403, body: { code: 'wrong_workspace' } } }), 2],
  [
    'a part that the key may not see, beside what needs somebody',
    () => ({ budgets: { status: 403, body: { code: 'wrong_workspace' } }, ...approvals('pending', approval()) }),
    1,
  ],
])('svc status: with %s', async (_, said, code) => {
  answers = said();
  expect((await status()).code).toBe(code);
  expect((await status('--json')).code).toBe(code);
});

test('calls that were refused are those of the last 15 minutes', async () => {
  await status();
  const [query = ''] = asked.filter((one) => one.includes('denied_budget'));
  const since = Date.parse(new URL(query, url()).searchParams.get('since') ?? '');
  expect(Math.abs(Date.now() - since - 15 * MINUTE)).toBeLessThan(MINUTE);
});

test('requests that expired undecided are those of the last 24 hours, without those in whose place people were asked anew', async () => {
  const at = (hours: number) => ago(hours * 60 * MINUTE);
  answers = approvals(
    'expired',
    approval({ id: 'apr_late', expires_at: at(23) }),
    approval({ id: 'apr_long_ago', expires_at: at(25) }),
    // Asked anew: it ended before its time.
    approval({ id: 'apr_renewed', expires_at: at(-1), decided_at: at(1) }),
    approval({
      id: 'apr_unsent',
      expires_at: at(2),
      decided_at: at(2),
      stopped: { at: at(3), code: 'paused', message: 'm' },
    }),
  );
  expect(await line('expired')).toMatch(
    /^expired +1 request ended without a decision in the last 24 h, 1 approved and not sent$/,
  );
  const { parts } = JSON.parse((await status('--json')).out);
  const rows: readonly { readonly approval: string }[] = parts[5].rows;
  expect(rows.map((row) => row.approval)).toEqual(['apr_late', 'apr_unsent']);
});

test('of a request for approval it names who may decide now, each once', async () => {
  const requirement = (hours: number) => ({
    approvers: { roles: ['lead'], users: ['maria'] },
    escalates: { at: ago(hours * 60 * MINUTE), to: { roles: ['boss'], users: [] } },
  });
  const decidedBy = async (...requirements: readonly object[]) => {
    answers = approvals('pending', approval({ requirements }));
    return JSON.parse((await status('--json')).out).parts[3].rows[0].may_decide;
  };
  expect(await decidedBy(requirement(-1), requirement(-1))).toEqual(['role lead', 'user maria']);
  expect(await decidedBy(requirement(1))).toEqual(['role lead', 'user maria', 'role boss']);
});

test('an approved call that something stops says since when, until when it is tried, and why; the way on is that of the reason', async () => {
  const [since, until] = [ago(2 * MINUTE), ago(-MINUTE)];
  const stopped = (code: string) =>
    approval({ expires_at: until, summary: 'Refund 9', stopped: { at: since, code, message: `stopped: ${code}` } });
  answers = approvals('granted', stopped('budget_exceeded'));
  const { parts } = JSON.parse((await status('--json')).out);
  expect(parts[4]).toMatchObject({
    name: 'approved',
    rows: [{ approval: 'apr_1', what: 'Refund 9', by: 'bot', since, until, why: 'stopped: budget_exceeded' }],
    next: expect.stringContaining('svc approvals show'),
  });
  answers = approvals('granted', stopped('paused'));
  expect(JSON.parse((await status('--json')).out).parts[4].next).toContain('svc resume');
});

test('a pause stands with what was refused for it lately, and with the approved calls that wait for its end alone', async () => {
  const stopped = (code: string) => approval({ stopped: { at: ago(0), code, message: 'm' } });
  answers = {
    pauses: { body: { ...NOTHING, pauses: [pause(null), pause(ago(-MINUTE)), pause(ago(-MINUTE))] } },
    'status=granted': { body: { ...NOTHING, approvals: [stopped('paused'), stopped('budget_exceeded'), approval()] } },
    denied_paused: { body: { ...NOTHING, effects: [effect(), effect()], next_cursor: 'more' } },
  };
  expect(await line('pauses')).toMatch(
    /3 in force, 1 until somebody lifts it; 2 calls or more refused for a pause in the last 15 minutes, and 1 approved that waits for its end$/,
  );
});

test('what needs somebody first stands first: the oldest call that runs, the request that ends first', async () => {
  answers = {
    ...effects('state=executing', executing(MINUTE), { ...executing(3 * MINUTE), effect_id: 'eff_0' }),
    ...approvals('pending', approval({ id: 'apr_late', expires_at: ago(-9) }), approval({ expires_at: ago(9) })),
  };
  const { parts } = JSON.parse((await status('--json')).out);
  const ids = (part: number, name: string) => parts[part].rows.map((row: Record<string, string>) => row[name]);
  expect([ids(2, 'effect'), ids(3, 'approval')]).toEqual([
    ['eff_0', 'eff_1'],
    ['apr_1', 'apr_late'],
  ]);
});

test('people see five of many and how many more there are, scripts see all; a command has the id where there is one', async () => {
  answers = approvals('pending', approval());
  expect((await status()).out).toContain('svc approvals show apr_1, then');
  const many = Array.from({ length: 7 }, (_, index) => approval({ id: `apr_${index}` }));
  answers = { 'status=pending': { body: { ...NOTHING, approvals: many, next_cursor: 'more' } } };
  const { out } = await status();
  expect(out).toMatch(/^approvals +7 requests or more for a decision$/m);
  expect(out.match(/apr_\d/g)).toHaveLength(5);
  expect(out).toMatch(/^ {2}… and 2 more\n {2}svc approvals show APPROVAL, then/m);
  expect(JSON.parse((await status('--json')).out).parts[3].rows).toHaveLength(7);
});

test('what the gateway says of itself stands there with what, since when and why', async () => {
  const since = ago(MINUTE);
  answers = {
    readyz: {
      body: { ready: true, notes: [{ part: 'upstream', message: 'payments is silent', since }] },
    },
  };
  expect((await status()).out).toContain(`upstream, since ${since}\n    payments is silent\n`);
  answers = {
    readyz: {
      status: 503,
      body: { ready: false, parts: [{ part: 'store', code: 'store_full', message: 'no room' }] },
    },
  };
  const { out } = await status();
  expect(out).toMatch(/^gateway +takes no calls\n {2}store, store_full\n {4}no room$/m);
});

test.each([
  [-MINUTE, '0 min'],
  [119 * MINUTE, '119 min'],
  [120 * MINUTE, '2 h'],
  [239 * MINUTE, '3 h'],
])('an outcome that is unknown for %i ms is so for %s', async (ms, text) => {
  answers = effects('state=unknown', effect({ ...unknown, created_at: ago(ms) }));
  expect(await line('unknown')).toBe(`unknown    1 call with an outcome that is unknown, the oldest for ${text}`);
});

test('a call that runs for long says when it ends, and what not to do meanwhile; one that does not says nothing', async () => {
  const next = 'Each ends with the time-out of its tool, and is unknown then. Do not send it under another key.';
  answers = effects('state=executing', executing(3 * MINUTE));
  expect((await status()).out).toContain(`1 call under way, 1 of them for longer than 2 minutes\n`);
  expect((await status()).out).toContain(`\n  ${next}\n`);
  answers = effects('state=executing', executing(MINUTE));
  expect((await status()).out).not.toContain(next);
});

test('a pause says who set it, by the key where that has no user, and several approved calls wait', async () => {
  const stopped = approval({ stopped: { at: ago(0), code: 'paused', message: 'm' } });
  const bySomebody = (by: object) => ({ ...pause(ago(-MINUTE)), by });
  answers = {
    pauses: {
      body: {
        ...NOTHING,
        pauses: [bySomebody({ user: 'maria', key_id: 'key_1' }), bySomebody({ user: null, key_id: 'key_2' })],
      },
    },
    ...approvals('granted', stopped, stopped),
  };
  expect(await line('pauses')).toMatch(/^pauses +2 in force; .*, and 2 approved that wait for its end$/);
  const { parts } = JSON.parse((await status('--json')).out);
  expect(parts[6].rows.map((row: { readonly by: string }) => row.by)).toEqual(['maria', 'key_2']);
});

test('no name that an agent chose steers the terminal of whoever looks at night', async () => {
  const odd = 'x\u202e\u001b[2K';
  answers = {
    ...effects('state=unknown', effect({ ...unknown, target: odd, idempotency_key: odd })),
    ...approvals('pending', approval({ target: odd })),
    readyz: { body: { ready: true, notes: [{ part: 'p', message: odd }] } },
  };
  const { out } = await status();
  expect(out.match(/x\\u\{202e\}/g)).toHaveLength(4);
  for (const control of ['\u202e', '\u001b']) expect(out).not.toContain(control);
});

test('a key of another workspace is told how to name its own', async () => {
  answers = { budgets: { status: 403, body: { code: 'wrong_workspace', detail: 'not of w' } } };
  expect((await status()).out).toMatch(
    /^budgets +cannot be told: .*\n {2}Name the workspace of the key with --workspace/m,
  );
});

test('what a key may not see of several parts is said of the key, and sends nobody to the store', async () => {
  const refused = { status: 403, body: { code: 'insufficient_scope', detail: 'no' } };
  answers = { budgets: refused, pauses: refused };
  const { out } = await status();
  expect(out).toMatch(/^key +cannot be told of pauses, budgets: no/m);
  expect(out).not.toContain('svc doctor');
});

test('of an unknown outcome it says which upstream, since when, why, and what settles it', async () => {
  const probed = { probe: '/v1/workspaces/w/effects/eff_1/probe' };
  answers = effects(
    'state=unknown',
    effect({ ...unknown, links: probed, quiesce_until: ago(-MINUTE) }),
    effect({ ...unknown, effect_id: 'eff_0', started_at: ago(3 * MINUTE), created_at: ago(3 * MINUTE) }),
  );
  const { out } = await status();
  expect(out).toMatch(/^unknown +2 calls with an outcome that is unknown, the oldest for 3 min$/m);
  expect(out).toMatch(/eff_0 t on x, upstream u, key k\n +sent at \S+: no answer; it cannot arrive any more\n +eff_1/);
  expect(out).toMatch(/eff_1 .*\n +sent at .* it may arrive until .*\n +its tool .* svc effects probe eff_1$/m);
});

test('a budget that is used up stands with whose it is, and its money as money', async () => {
  const row = {
    ...budget('exhausted'),
    bucket: '["bot","EUR"]',
    unit: 'EUR-cent',
    limit: 1_050,
    remaining: 0,
    held: 0,
  };
  answers = { budgets: { body: { ...NOTHING, budgets: [row] } } };
  const { out } = await status();
  expect(out).toMatch(/^ +budget .* for$/m);
  expect(out).toMatch(/^ +b +exhausted .*€10\.50.* \["bot","EUR"\]$/m);
  // What is held is said apart, and what becomes of it.
  expect(JSON.parse((await status('--json')).out).parts[7].rows).toMatchObject([{ left: 0, held: 0, of: 1_050 }]);
  expect(out).toContain('given back when they do not');
});

test('what keeps one part from being told stands at that part', async () => {
  answers = { budgets: { status: 403, body: { code: 'insufficient_scope', detail: 'The key may not read budgets.' } } };
  const { code, out } = await status();
  expect(code).toBe(2);
  expect(out).toMatch(/^budgets +.*may not read budgets/m);
  expect(out).not.toContain('cannot be told of');
});

test('what one cause keeps from being told is one line with the way out', async () => {
  const full = { status: 503, body: { code: 'store_unavailable', detail: 'no room' } };
  answers = { effects: full, approvals: full, pauses: full, budgets: full };
  const { code, out } = await status();
  expect(code).toBe(2);
  expect(out).toMatch(
    /^store +cannot be told of unknown, running, approvals, approved, expired, pauses, budgets, refused: .*\n  svc doctor/m,
  );
  expect(out.match(/cannot be told/g)).toHaveLength(1);
});
