import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { svc, svcAnsweredWith } from './run.ts';

/** What the commands ask a gateway, and print of what it answers: each flag has to arrive, and each page to go on. */
let asked: string[] = [];
let answer: object = {};
/** In place of it, where what is answered depends on what is asked. */
let answerTo: ((url: string) => object) | null = null;
const gateway = createServer((request, response) => {
  let body = '';
  request.on('data', (piece) => (body += String(piece)));
  request.on('end', () => {
    asked.push([request.method, decodeURIComponent(request.url ?? ''), ...(body === '' ? [] : [body])].join(' '));
    response.setHeader('content-type', 'application/json').end(JSON.stringify(answerTo?.(request.url ?? '') ?? answer));
  });
});
let to: readonly string[] = [];
beforeAll(async () => {
  await once(gateway.listen(0, '127.0.0.1'), 'listening');
  to = ['--workspace', 'w', '--url', `http://127.0.0.1:${(gateway.address() as AddressInfo).port}`];
});
afterAll(() => gateway.close());
beforeEach(() => {
  asked = [];
  answerTo = null;
  vi.stubEnv('SVC_API_KEY', 'svc_acct_7hQ2mZx0PbKdAAAABBBBCCCCDDDD');
});
afterEach(() => vi.unstubAllEnvs());

const W = '/v1/workspaces/w';
const ABOUT = ['agent', 'tool', 'target', 'rule', 'user', 'key', 'since', 'until'].flatMap((one) => [`--${one}`, one]);
const ASKED_ABOUT = 'agent_id=agent&tool=tool&target=target&rule=rule&user=user&key_id=key&since=since&until=until';
const PAGE = ['--limit', '2', '--cursor', 'c'];

test.each<[string, readonly string[], object, string]>([
  [
    'effects list',
    ['--state', 'failed', '--decision', 'denied_claim', '--approver', 'maria', ...PAGE, ...ABOUT],
    { effects: [], next_cursor: null },
    `GET ${W}/effects?limit=2&state=failed&decision=denied_claim&approver=maria&cursor=c&${ASKED_ABOUT}`,
  ],
  [
    'ledger',
    ['--kind', 'kind', '--actor', 'actor', '--effect', 'effect', ...PAGE, ...ABOUT],
    { events: [], next_cursor: null },
    `GET ${W}/ledger?cursor=c&kind=kind&actor=actor&effect_id=effect&${ASKED_ABOUT}&limit=2`,
  ],
  [
    'ledger --installation',
    ['--kind', 'key', ...PAGE],
    { events: [], next_cursor: null },
    'GET /v1/beta/ledger?cursor=c&kind=key&limit=2',
  ],
  [
    'approvals list',
    ['--status', 'expired', ...PAGE],
    { approvals: [], next_cursor: null },
    `GET ${W}/approvals?status=expired&limit=2&cursor=c`,
  ],
  ['allowances list', PAGE, { allowances: [], next_cursor: null }, `GET ${W}/allowances?limit=2&cursor=c`],
  [
    'notifications list',
    ['--state', 'dead', ...PAGE],
    { notifications: [], next_cursor: null },
    'GET /v1/beta/notifications?limit=2&state=dead&cursor=c',
  ],
  // A date is the beginning of its day in UTC.
  [
    'effects list',
    ['--since', '2029-12-31', '--until', '2030-01-01'],
    { effects: [], next_cursor: null },
    `GET ${W}/effects?limit=50&since=2029-12-31T00:00:00Z&until=2030-01-01T00:00:00Z`,
  ],
  ['passkeys list maria', [], { passkeys: [] }, 'GET /v1/beta/users/maria/passkeys'],
  ['passkeys remove maria psk_1', [], { id: 'psk_1' }, 'DELETE /v1/beta/users/maria/passkeys/psk_1'],
  ['allowances revoke alw_1', [], { id: 'alw_1' }, `DELETE ${W}/allowances/alw_1`],
  [
    'approvals approve apr_1',
    ['--comment', 'c', '--digest', 'd', '--set', 'amount=5', '--set', 'note="5"', '--allow-next', '3'],
    { became: { message: 'm' }, effect: { effect_id: 'e', state: 's' } },
    `POST ${W}/approvals/apr_1/approve {"comment":"c","digest":"d","changes":{"amount":5,"note":"5"},"allow_alike":{"times":3}}`,
  ],
  [
    'approvals reject apr_1',
    ['--comment', 'c', '--digest', 'd'],
    { became: { message: 'm' }, effect: { effect_id: 'e', state: 's' } },
    `POST ${W}/approvals/apr_1/reject {"comment":"c","digest":"d"}`,
  ],
  [
    'pause --upstream u',
    ['--reason', 'r', '--until', '2030-01-01T00:00:00Z'],
    { id: 'pau_1', until: null, scope: {} },
    `POST ${W}/pauses {"scope":{"upstream":"u"},"reason":"r","until":"2030-01-01T00:00:00Z"}`,
  ],
  ['pause --key k', ['--reason', 'r'], { id: 'p', until: null }, `POST ${W}/pauses {"scope":{"key":"k"},"reason":"r"}`],
  ['policy activate v', ['--comment', 'c'], {}, 'POST /v1/beta/policies/activations {"comment":"c","version":"v"}'],
  ['policy rollback', ['--comment', 'c'], {}, 'POST /v1/beta/policies/rollback {"comment":"c"}'],
  // One digest in 64 begins like an option.
  [
    'approvals reject apr_1',
    ['--digest', `-${'a'.repeat(42)}`, '--comment', 'c'],
    { became: { kind: 'rejected', message: '' }, effect: {} },
    `POST ${W}/approvals/apr_1/reject {"comment":"c","digest":"-${'a'.repeat(42)}"}`,
  ],
  [
    'approvals reject apr_1',
    ['--digest', `-V${'a'.repeat(41)}`, '--comment', 'c'],
    { became: { kind: 'rejected', message: '' }, effect: {} },
    `POST ${W}/approvals/apr_1/reject {"comment":"c","digest":"-V${'a'.repeat(41)}"}`,
  ],
  [
    'approvals reject apr_1',
    ['--digest', `-h${'a'.repeat(41)}`, '--comment', 'c'],
    { became: { kind: 'rejected', message: '' }, effect: {} },
    `POST ${W}/approvals/apr_1/reject {"comment":"c","digest":"-h${'a'.repeat(41)}"}`,
  ],
  [
    `policy show -${'a'.repeat(42)}`,
    [],
    { proven: true, files: [] },
    `GET /v1/beta/policies/versions/-${'a'.repeat(42)}`,
  ],
  ['policy withdraw p', [], { id: 'p' }, 'DELETE /v1/beta/policies/proposals/p'],
  [
    'effects resolve eff_1',
    ['--outcome', 'not_happened', '--comment', 'c', '--evidence', '{"a":1}', '--force'],
    { effect: { effect_id: 'eff_1', decision: 'failed', state: 'failed', reason: {} } },
    `POST ${W}/effects/eff_1/resolve {"outcome":"not_happened","comment":"c","evidence":{"a":1},"force":true}`,
  ],
  [
    'effects disclose eff_1',
    ['--field', 'target', 'idem'],
    {},
    `GET ${W}/effects/eff_1/receipt?disclosure=1&fields=target,idem`,
  ],
  ['effects erase eff_1', [], {}, `DELETE ${W}/effects/eff_1/params`],
])('svc %s: what is said is asked', async (words, flags, says, request) => {
  answer = says;
  const { err } = await svc(...words.split(' '), ...flags, ...to);
  expect({ asked: asked[0], err }).toEqual({ asked: request, err: '' });
});

test('svc approvals list asks for what waits, and --allow-for says until when', async () => {
  answer = { approvals: [], next_cursor: null };
  await svc('approvals', 'list', ...to);
  expect(asked).toEqual([`GET ${W}/approvals?status=pending&limit=50`]);
  answer = { became: { message: 'm' }, effect: { effect_id: 'e', state: 's' } };
  const before = Date.now();
  await svc('approvals', 'approve', 'apr_1', '--allow-next', '2', '--allow-for', '1h', ...to);
  const [, until = ''] = /"until":"([^"]+)"/.exec(asked[1] ?? '') ?? [];
  expect(Date.parse(until) - before - 3_600_000).toBeGreaterThanOrEqual(0);
  expect(Date.parse(until) - Date.now()).toBeLessThanOrEqual(3_600_000);
  const alone = await svc('approvals', 'approve', 'apr_1', '--allow-for', '1h', ...to);
  expect(alone).toMatchObject({ code: 64, err: expect.stringContaining('--allow-for needs --allow-next') });
  expect(asked).toHaveLength(2);
});

test('svc approvals list: each until when it waits, and what it is in short', async () => {
  const one = { tool: 'payments.refund', target: 'payment:1', created_at: 't1', expires_at: 't2' };
  const approvals = [
    { ...one, id: 'apr_1', status: 'pending', summary: 's'.repeat(121) },
    { ...one, id: 'apr_2', status: 'expired', summary: null },
  ];
  answer = { approvals, next_cursor: null };
  const { out } = await svc('approvals', 'list', ...to);
  expect(out.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
    ['approval', 'tool', 'target', 'status', 'expires', 'summary'],
    ['apr_1', 'payments.refund', 'payment:1', 'pending', 't2', `${'s'.repeat(119)}…`],
    ['apr_2', 'payments.refund', 'payment:1', 'expired', 't2'],
  ]);
});

test('svc approvals show: what may be set and allowed ahead, what it costs, who may decide later, and the digest', async () => {
  const at = '2026-01-01T00:00:00.000Z';
  answer = {
    id: 'apr_1',
    status: 'granted',
    approvals: 1,
    quorum: 2,
    summary: 'Refund',
    tool: 'payments.refund',
    target: 'payment:pay_1',
    effect_id: 'eff_1',
    requested_by: { agent_id: 'bot', agent_owner: null, user: null, key_id: 'key_1' },
    created_at: at,
    expires_at: at,
    stopped: { at, decision: 'denied_paused', code: 'paused', message: 'Calls are paused: stock-take.' },
    requirements: [
      {
        rule: 'rig/large',
        approvers: { roles: ['finance-lead'], users: [] },
        quorum: 2,
        approvals: 1,
        beyond: 'budget:rig/day',
        editable: { amount: { min: 1, max: 'asked' } },
        escalates: { at, to: { roles: ['head'], users: ['tom'] } },
      },
    ],
    changed: { by: 'maria', at, params: ['amount'] },
    asked_params: { amount: 90_000, currency: 'EUR' },
    params: { amount: 80_000, currency: 'EUR' },
    costs: [{ budget: 'rig/day', unit: 'cent', amount: 80_000, limit: 100_000, spent: 50_000, held: 5 }],
    allow_alike: { times: 5, for_s: 7_200, varies: {} },
    votes: [],
    why: [],
    digest: 'the-digest',
  };
  const { out } = await svc('approvals', 'show', 'apr_1', ...to);
  for (const line of [
    /^status +granted, 1 of 2 approvals$/m,
    /^stopped +Calls are paused: stock-take\.$/m,
    /^beyond +the limit of budget rig\/day$/m,
    /^changed +amount by maria, asked were \{"amount":90000,"currency":"EUR"\}$/m,
    /^may set +\{"amount":\{"min":1,"max":"asked"\}\}$/m,
    /^may allow.*\b5\b/m,
    /^digest +the-digest$/m,
    /€800\.00 +€1,000\.00 +€500\.00 +€0\.05/,
    /1 of 2 +from 2026-01-01T00:00:00\.000Z: head, tom/,
  ])
    expect(out).toMatch(line);
});

test('svc approvals show: each param, money as money too, or why there is none; why people are asked, and whom the call is of', async () => {
  const shown = {
    id: 'apr_1',
    status: 'pending',
    approvals: 0,
    quorum: 1,
    summary: null,
    tool: 'payments.refund',
    target: 'payment:pay_1',
    action: { upstream: 'payments', method: 'POST', path: '/v1/refunds' },
    effect_id: 'eff_1',
    requested_by: { agent_id: 'bot', agent_owner: 'tom', user: 'ada', key_id: 'key_1' },
    created_at: '2026-01-01T00:00:00.000Z',
    expires_at: '2026-01-02T00:00:00.000Z',
    requirements: [{ rule: 'rig/large', approvers: { roles: [], users: ['maria', 'eve'] }, quorum: 1, approvals: 0 }],
    params: { amount: 80_000, currency: 'EUR', note: 'a\u202eb' },
    params_truncated: true,
    costs: [{ budget: 'rig/day', unit: 'cent', amount: 80_000 }],
    allow_alike: { times: 5, for_s: 7_200, varies: { amount: { max: 'asked' } } },
    votes: [],
    why: [{ rule: 'rig/large', description: 'large refunds', unknown: ['facts.owner', 'facts.age'] }],
    digest: 'the-digest',
  };
  const linesOf = async (): Promise<readonly string[]> =>
    (await svc('approvals', 'show', 'apr_1', ...to)).out.split('\n').map((line) => line.split(/ {2,}/).join('  '));
  answer = shown;
  const lines = await linesOf();
  for (const line of [
    'sent to  payments POST /v1/refunds',
    'by  agent bot, owner tom, user of the key ada',
    'made  2026-01-01T00:00:00.000Z',
    'expires  2026-01-02T00:00:00.000Z',
    'may allow the next 5 like it, for 120 minutes at most: same agent, tool, target and params, but for {"amount":{"max":"asked"}}',
    'amount  €800.00 (80000)',
    'currency  "EUR"',
    'note  "a\\u{202e}b"',
    'Some are cut: they are longer than is shown here.',
    'rig/day  €800.00',
    'rig/large  large refunds  facts.owner, facts.age',
    'rig/large  maria, eve  0 of 1',
  ])
    expect(lines).toContain(line);
  expect(lines).not.toContain('Votes');
  answer = { ...shown, params: {}, params_truncated: false, costs: [] };
  const without = await linesOf();
  expect(without.slice(without.indexOf('Params'))).toEqual(expect.arrayContaining(['Params', '(none)']));
  for (const title of ['What it costs', 'Some are cut: they are longer than is shown here.'])
    expect(without).not.toContain(title);
  answer = { ...shown, params: undefined, params_omitted: 'erased' };
  expect(await linesOf()).toContain('(erased)');
  expect(JSON.parse((await svc('approvals', 'show', 'apr_1', '--json', ...to)).out)).toEqual({
    ...shown,
    params: undefined,
    params_omitted: 'erased',
  });
});

test.each<[string, unknown]>([
  ['on=true', true],
  ['on=false', false],
  ['on=-1.5', -1.5],
  ['on=1e3', '1e3'],
  ['on="true"', 'true'],
  ['on=a=b', 'a=b'],
  ['on=', ''],
])('svc approvals approve --set %s is %j', async (set, value) => {
  answer = { became: { message: 'm' }, effect: { effect_id: 'e', state: 's' } };
  await svc('approvals', 'approve', 'apr_1', '--set', set, ...to);
  expect(asked).toEqual([`POST ${W}/approvals/apr_1/approve {"changes":${JSON.stringify({ on: value })}}`]);
});

test.each(['amount', '=5'])('svc approvals approve --set %s names no param, and nothing is decided', async (set) => {
  const { code, err } = await svc('approvals', 'approve', 'apr_1', '--set', set, ...to);
  expect([code, err, asked]).toEqual([64, expect.stringContaining('write name=value.'), []]);
});

test('svc approvals approve: what became of it, and what is let in from now on; no text of a gateway steers the terminal', async () => {
  answer = {
    became: { message: 'Sent\u202e.' },
    effect: { effect_id: 'eff_1', state: 'committed' },
    allowance_id: 'alw_1',
  };
  expect(await svc('approvals', 'approve', 'apr_1', '--allow-next', '2', ...to)).toEqual({
    code: 0,
    out: 'Sent\\u{202e}. The effect eff_1 is committed.\nThe next calls alike are let in without asking: alw_1. See svc allowances list.',
    err: '',
  });
  expect(JSON.parse((await svc('approvals', 'approve', 'apr_1', '--json', ...to)).out)).toEqual(answer);
});

const LISTS = [
  ['effects list', 'effects'],
  ['ledger', 'events'],
  ['approvals list', 'approvals'],
  ['allowances list', 'allowances'],
  ['notifications list', 'notifications'],
] as const;

test('svc effects list --observed: a page more is asked for what is left, and no more is shown than is asked for', async () => {
  const observed = { would: 'denied_policy', rule: 'r' };
  const reads = [1, 2].map((seq) => ({ seq, lastAt: 't', observed, statuses: {} }));
  const effects = [{ effect_id: 'eff_1', observed }, { effect_id: 'eff_2' }];
  answer = { effects, reads, next_cursor: 'c' };
  const { out } = await svc('effects', 'list', '--observed', '--limit', '1', '--json', ...to);
  const shown = JSON.parse(out);
  expect([shown.effects.length, shown.reads.length]).toEqual([1, 1]);
  asked = [];
  await svc('effects', 'list', '--observed', '--limit', '3', '--cursor', 'b', '--json', ...to);
  const pages = ['limit=3&cursor=b', 'limit=2&cursor=c', 'limit=1&cursor=c'];
  expect(asked).toEqual(pages.map((page) => `GET ${W}/effects?${page}&params=true`));
});

test('svc effects list --observed: reads are no effects: they stand on the first page alone, and where no state or decision is asked for', async () => {
  const reads = [{ seq: 1, lastAt: 't', observed: { would: 'w', rule: 'r' }, statuses: {} }];
  answer = { effects: [], reads, next_cursor: null };
  const shown = async (...more: string[]) => {
    const { out } = await svc('effects', 'list', '--observed', '--json', ...more, ...to);
    return 'reads' in JSON.parse(out);
  };
  expect(await shown()).toBe(true);
  for (const more of ['--cursor c', '--state failed', '--decision failed'])
    expect(await shown(...more.split(' '))).toBe(false);
});

test('svc passkeys list: whether a passkey may be on several devices is said of each', async () => {
  const passkey = { key_id: 'k', user: 'maria', name: 'n', created_at: 't', last_used_at: null };
  answer = {
    passkeys: [
      { ...passkey, id: 'psk_1', synced: true },
      { ...passkey, id: 'psk_2', synced: false },
    ],
  };
  const { out } = await svc('passkeys', 'list', 'maria', ...to.slice(2));
  expect(out).toMatch(/psk_1 .*\bnever +several devices\b.*\n.*psk_2 .*\bnever +one device\b/);
});

test.each([
  ['--kind', 'account', 'other-kind'],
  ['--workspace', 'w', 'elsewhere'],
  ['--agent', 'bot', 'other-agent'],
  ['--user', 'maria', 'other-user'],
])('svc keys list %s: keys that do not fit are not shown', async (flag, value, other) => {
  const fits = { kind: 'account', workspace: 'w', agent_id: 'bot', user_id: 'maria' };
  const named = { revoked_at: null, expires_at: null, replaced_by: null, last_used_at: null };
  answer = {
    keys: [
      { ...named, ...fits, id: 'fits' },
      { ...named, ...fits, id: 'other-kind', kind: 'agent' },
      { ...named, ...fits, id: 'elsewhere', workspace: 'v' },
      { ...named, ...fits, id: 'other-agent', agent_id: 'b' },
      { ...named, ...fits, id: 'other-user', user_id: 'tom' },
    ],
  };
  const { out } = await svc('keys', 'list', flag, value, '--json', ...to.slice(2));
  const { keys }: { readonly keys: readonly { readonly id: string }[] } = JSON.parse(out);
  const all = ['fits', 'other-kind', 'elsewhere', 'other-agent', 'other-user'];
  expect(keys.map(({ id }) => id)).toEqual(all.filter((id) => id !== other));
});

test.each([
  ['account', [], true],
  ['agent', ['--agent', 'bot'], true],
  ['administrative', [], false],
  ['profile', ['--profile', 'auditor'], false],
  ['account', ['--json'], false],
  ['account', ['--user', 'tom'], false],
] as const)('svc keys create --kind %s %j: a person is asked who answers for it: %s', async (kind, more, isAsked) => {
  const users: (string | null)[] = [];
  const createKey = async ({ user }: { readonly user: string | null }) => {
    users.push(user);
    return { record: { id: 'key_1' }, key: 'svc_x', notice: null };
  };
  const { err } = await svcAnsweredWith(
    { createKey },
    'maria',
    'keys',
    'create',
    '--config',
    'c',
    '--kind',
    kind,
    ...more,
  );
  expect(err.includes('Which user answers for the key?')).toBe(isAsked);
  expect(users).toEqual([isAsked ? 'maria' : more[0] === '--user' ? 'tom' : null]);
});

test('svc keys create: an empty answer is nobody, none makes no key; all that is said of it is asked for', async () => {
  const made: object[] = [];
  const createKey = async (of: object) => {
    made.push(of);
    return { record: { id: 'key_1' }, key: 'svc_x', notice: 'It may be called by nobody.' };
  };
  const create = (answered: string | null, ...more: readonly string[]) =>
    svcAnsweredWith({ createKey }, answered, 'keys', 'create', '--config', 'c', '--kind', 'account', ...more);
  expect(await create(null)).toMatchObject({ code: 2, out: '', err: expect.stringContaining('No key was made') });
  expect(made).toEqual([]);
  const { out, err } = await create('', '--workspace', 'w', '--agent', 'bot', '--profile', 'auditor', '--name', 'n');
  const named = { workspace: 'w', agent: 'bot', profile: 'auditor', name: 'n' };
  expect(made).toEqual([{ configFile: 'c', environment: {}, kind: 'account', user: null, ...named }]);
  expect(out).toBe('svc_x');
  expect(err.split('\n').slice(1)).toEqual([
    'It may be called by nobody.',
    'A key of kind account key_1; it is shown this once:',
  ]);
});

test('svc keys list: how each key stands, and that there is none', async () => {
  const [past, future] = ['2020-01-01T00:00:00.000Z', '2100-01-01T00:00:00.000Z'];
  const key = { kind: 'agent', agent_id: 'bot', user_id: 'tom', workspace: 'w', name: 'n', last_used_at: past };
  const good = { ...key, revoked_at: null, expires_at: null, replaced_by: null };
  answer = {
    keys: [
      { ...good, id: 'key_1' },
      { ...good, id: 'key_2', expires_at: future, replaced_by: 'key_1' },
      { ...good, id: 'key_3', expires_at: past, replaced_by: 'key_1' },
      { ...good, id: 'key_4', expires_at: past },
      { ...good, id: 'key_5', expires_at: past, revoked_at: past },
      { ...good, id: 'key_6', expires_at: future },
    ],
  };
  const { out } = await svc('keys', 'list', ...to.slice(2));
  const row = (id: string, state: string, ...expires: readonly string[]): readonly string[] => [
    id,
    'agent',
    'bot',
    'tom',
    'w',
    state,
    ...expires,
    past,
    'n',
  ];
  expect(out.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
    ['key', 'kind', 'agent', 'user', 'workspace', 'state', 'expires', 'last used', 'name'],
    row('key_1', 'active'),
    row('key_2', 'active, being replaced', future),
    row('key_3', 'replaced', past),
    row('key_4', 'expired', past),
    row('key_5', 'revoked', past),
    row('key_6', 'active', future),
  ]);
  answer = { keys: [] };
  expect((await svc('keys', 'list', ...to.slice(2))).out).toBe('None.');
  answer = { passkeys: [] };
  expect((await svc('passkeys', 'list', 'maria', ...to.slice(2))).out).toBe('None.');
});

test.each(['key_0000000000001', 'key_00000000000', 'xkey_000000000000'])(
  'svc keys revoke and rotate %s: that is no id, and nothing is asked',
  async (id) => {
    for (const verb of ['revoke', 'rotate'])
      expect(await svc('keys', verb, id, ...to.slice(2))).toMatchObject({
        code: 64,
        err: expect.stringContaining('A key is named by its id'),
      });
    expect(asked).toEqual([]);
  },
);

test.each(['1.5', '-1', '2592001'])('svc keys rotate --overlap %s: that is no time', async (text) => {
  const { code, err } = await svc('keys', 'rotate', 'key_000000000000', `--overlap=${text}`, ...to.slice(2));
  expect([code, err, asked]).toEqual([64, expect.stringContaining('A number of seconds from 0 to'), []]);
});

test('svc ledger: at a terminal an event is cut to one line; into a file, and with --json, all of it is written', async () => {
  const event = { seq: 1, at: 't', actor: { type: 'user', id: 'maria' }, effect_id: 'eff_1' };
  const data = { note: 'n'.repeat(300), passkey_id: 'psk_at_its_end' };
  answer = { events: [{ ...event, kind: 'approval.granted', data }], next_cursor: null };
  const words = ['ledger', '--kind', 'approval', ...to];
  const { out: cut } = await svcAnsweredWith({}, null, ...words);
  expect(cut).toContain('…');
  expect(cut).not.toContain('psk_at_its_end');
  expect((await svc(...words)).out).toContain('psk_at_its_end');
  const { out: all } = await svcAnsweredWith({}, null, ...words, '--json');
  expect(JSON.parse(all).events[0].data).toEqual(data);
});

test.each([
  ['user', true],
  ['user.roles_changed', true],
  ['policy', true],
  ['approval', false],
])('svc ledger --kind %s: where events are that no workspace has is said: %s', async (kind, isSaid) => {
  answer = { events: [], next_cursor: null };
  const { out } = await svc('ledger', '--kind', kind, ...to);
  expect(out.includes('--installation')).toBe(isSaid);
  expect((await svc('ledger', '--kind', kind, '--installation', ...to.slice(2))).out).toBe('No events.');
});

test('svc ledger goes on behind pages that have too few, up to what was asked for', async () => {
  const event = (seq: number) => ({ seq, at: 't', kind: 'k', actor: { type: 'user', id: 'u' }, data: {} });
  answerTo = (url) =>
    url.includes('cursor=c') ? { events: [event(1)], next_cursor: 'd' } : { events: [event(3)], next_cursor: 'c' };
  const { out } = await svc('ledger', '--limit', '2', ...to);
  expect(out.split('\n').map((line) => line.split(' ')[0])).toEqual(['seq', '3', '1', 'More:']);
  expect(asked).toEqual([`GET ${W}/ledger?limit=2`, `GET ${W}/ledger?limit=1&cursor=c`]);
});

test('svc effects show names who voted, with which key, and what was changed; budgets only where the key may see them', async () => {
  const said = {
    effect_id: 'eff_1',
    decision: 'committed',
    state: 'committed',
    tool: 't',
    target: 'x',
    agent_id: 'bot',
  };
  const reason = { code: 'committed', message: 'm' };
  const policy = { version: 'v1', matched: ['a/one', 'a/two'] };
  const effect = { ...said, idempotency_key: 'k', attempt: 1, created_at: 't', reason, policy, holds: [{}] };
  const vote = (kind: string, data: object) => ({ seq: 1, at: 't1', kind, actor: { type: 'user', id: 'maria' }, data });
  const ledger = [
    vote('approval.granted', { user: 'maria', key_id: 'key_1', changed: ['amount', 'note'] }),
    vote('approval.rejected', { user: 'tom' }),
  ];
  let budgets: { readonly status: number; readonly body: object } = { status: 403, body: { code: 'wrong_key_kind' } };
  const refusing = createServer((request, response) => {
    const isOfBudgets = request.url?.endsWith('/budgets') === true;
    const body = isOfBudgets ? budgets.body : { effect, ledger, stages: [] };
    response.statusCode = isOfBudgets ? budgets.status : 200;
    response.setHeader('content-type', 'application/json').end(JSON.stringify(body));
  });
  await once(refusing.listen(0, '127.0.0.1'), 'listening');
  const url = `http://127.0.0.1:${(refusing.address() as AddressInfo).port}`;
  const show = () => svc('effects', 'show', 'eff_1', '--workspace', 'w', '--url', url);
  try {
    const { code, out } = await show();
    expect(code).toBe(0);
    expect(out).toContain('policies  v1\nrules     a/one a/two\n');
    expect(out).toContain('approved  by maria with key_1, t1, changed: amount, note\nrejected  by tom, t1\n');
    expect(out).not.toContain('Budgets');
    budgets = { status: 503, body: { code: 'store_unavailable' } };
    expect((await show()).code).toBe(1);
  } finally {
    refusing.close();
  }
});

/** An effect as the wire has it. */
const effectOf = (id: string, more: object = {}) => ({
  effect_id: id,
  created_at: '2030-01-01T00:00:00.000Z',
  agent_id: 'bot',
  tool: 'payments.refund',
  target: 'payment:pay_1',
  decision: 'committed',
  did_it_happen: 'yes',
  reason: { code: 'committed', message: 'It happened.' },
  ...more,
});

test('svc effects show: what policy would have done, how budgets stood before, after and now, and why params are not there', async () => {
  const budget = (name: string, more: object) => ({ budget: name, unit: 'cent', amount: 12, spent: 7, ...more });
  const effect = effectOf('eff_1', {
    reason: { code: 'committed', rule: 'rig/small', message: 'It happened.' },
    observed: { would: 'denied_policy', rule: null },
    idempotency_key: 'k',
    attempt: 2,
    state: 'committed',
    policy: { version: 'v1', matched: [] },
    holds: [{}],
    params_omitted: 'erased',
  });
  const stages = [
    { stage: 'dispatch', status: 'done', duration_ms: 12, detail: null },
    { stage: 'sign', status: 'waits', duration_ms: null, detail: 'held' },
  ];
  const stood = (spent: number, held: number) => ({ at: 't', spent, held });
  const budgets = [
    budget('rig/day', { before: stood(1, 2), after: stood(3, 4), now: { spent: 5, held: 6, limit: 100 } }),
    budget('rig/hour', { unknown: 'rolling', now: null }),
    budget('rig/year', { unknown: 'too_many', now: {} }),
  ];
  answerTo = (path) => (path.endsWith('/budgets') ? { budgets } : { effect, ledger: [], stages });
  const { out } = await svc('effects', 'show', 'eff_1', ...to);
  for (const line of [
    'decision  committed (committed, rig/small)',
    'why       It happened.',
    'policy    only observes; in force: denied_policy (no rule allows it)',
    'attempt   2',
    'params    (erased)',
  ])
    expect(out.split('\n')).toContain(line);
  const rows = out.split('\n').map((line) => line.trim().split(/ {2,}/));
  for (const row of [
    ['rig/day', '12', '7', '1 + 2', '3 + 4', '5 + 6', '100 cent'],
    ['rig/hour', '12', '7', 'rolling window', 'rolling window', 'over', 'cent'],
    ['rig/year', '12', '7', 'too much happened', 'too much happened', '+', 'cent'],
    ['dispatch', 'done', '12'],
    ['sign', 'waits', 'held'],
  ])
    expect(rows).toContainEqual(row);
  answer = {
    effects: [effectOf('eff_2', { observed: { would: 'denied_budget', rule: 'rig/day' } })],
    next_cursor: null,
  };
  answerTo = null;
  expect((await svc('effects', 'list', ...to)).out).toMatch(/ committed +committed, policy: denied_budget$/m);
});

test('svc tail, for people: a head, of those from before the oldest first, then what comes, each once and no more than asked for', async () => {
  const [one, two, three, four, five] = [1, 2, 3, 4, 5].map((n) => effectOf(`eff_${n}`));
  const lists = [{ effects: [two, one] }, { effects: [] }, { effects: [four, three, two] }, { effects: [five, four] }];
  const read = (seq: number, more: object) => ({ seq, agent_id: 'bot', last_at: 't', observed: null, ...more });
  const reads = [
    read(6, {
      count: 2,
      tool: null,
      upstream: 'crm',
      statuses: { 200: 1, 404: 1 },
      observed: { would: 'denied_policy' },
    }),
    read(5, { count: 1, tool: 'crm.get', upstream: 'crm', statuses: { 200: 1 } }),
  ];
  let looks = 0;
  answerTo = (path) => {
    if (!path.includes('observed-reads')) return { ...lists.shift(), next_cursor: null };
    looks += 1;
    // None from before is shown, whoever read it.
    if (looks === 1)
      return { reads: [read(4, { count: 9, tool: 'crm.old', upstream: 'crm', statuses: {} })], next_cursor: null };
    return { reads: looks === 2 ? reads : [], next_cursor: null };
  };
  const { code, out } = await svc('tail', '--last', '2', '--count', '5', ...to);
  expect(code).toBe(0);
  const rows = out.split('\n').map((line) => line.split(/ {2,}/));
  const call = (n: number) => [
    `eff_${n}`,
    '2030-01-01T00:00:00.000Z',
    'bot',
    'payments.refund',
    'committed',
    'committed',
  ];
  expect(rows).toEqual([
    ['effect', 'at', 'agent', 'tool', 'decision', 'reason'],
    call(1),
    call(2),
    ['1 read', 't', 'bot', 'crm.get', 'passed', '1 × 200'],
    ['2 reads', 't', 'bot', 'crm.(undeclared)', 'passed', '1 × 200, 1 × 404, policy: denied_policy'],
    call(3),
  ]);
  // Later lines stand below the earlier ones.
  expect(new Set(out.split('\n').map((line) => line.search(/committed|passed|decision/))).size).toBe(1);
  const listed = asked.filter((line) => line.includes('/effects?'));
  expect(listed[0]).toBe(`GET ${W}/effects?limit=2`);
  expect(new Set(listed.slice(1))).toEqual(new Set([`GET ${W}/effects?since=2030-01-01T00:00:00.000Z&limit=200`]));
});

test('svc effects list --observed --until: reads that began later are left out', async () => {
  const read = (hour: number) => ({
    seq: hour,
    count: 1,
    tool: 't',
    first_at: `2030-01-01T0${hour}:00:00Z`,
    last_at: `2030-01-01T0${hour}:30:00Z`,
    observed: { would: 'w', rule: 'r' },
    statuses: {},
  });
  answer = { effects: [], reads: [read(3), read(2), read(1)], next_cursor: null };
  const shown = async (...more: readonly string[]) => {
    const { out } = await svc('effects', 'list', '--observed', '--json', ...more, ...to);
    const { reads }: { readonly reads: readonly { readonly seq: number }[] } = JSON.parse(out);
    return reads.map(({ seq }) => seq);
  };
  expect(await shown('--until', '2030-01-01T02:00:00Z')).toEqual([1]);
  expect(await shown('--since', '2030-01-01T02:00:00Z')).toEqual([3, 2]);
});

test('svc resume without a pause is 1 while something is paused, with --json too, and lists it', async () => {
  const pause = { id: 'pau_1', scope: { workspace: true }, until: null, reason: 'r' };
  answer = { pauses: [pause] };
  expect((await svc('resume', ...to)).code).toBe(1);
  const { code, out } = await svc('resume', '--json', ...to);
  expect([code, JSON.parse(out)]).toEqual([1, { pauses: [pause] }]);
  asked = [];
  expect((await svc('resume', '--all', ...to)).out).toBe('Lifted: pau_1');
  expect(asked).toEqual([`GET ${W}/pauses`, `DELETE ${W}/pauses/pau_1`]);
  answer = { pauses: [] };
  for (const more of [[], ['--json']]) expect((await svc('resume', ...more, ...to)).code).toBe(0);
});

test('svc resume lists what is paused, until when and why, and how it is lifted; named, it lifts that one alone', async () => {
  const pause = { id: 'pau_1', scope: { agent: 'bot' }, until: '2030-01-01T00:00:00.000Z', reason: 'Stock-take' };
  answer = { pauses: [pause, { ...pause, id: 'pau_2', until: null }] };
  const { out } = await svc('resume', ...to);
  expect(out.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
    ['pause', 'scope', 'until', 'reason'],
    ['pau_1', '{"agent":"bot"}', '2030-01-01T00:00:00.000Z', 'Stock-take'],
    ['pau_2', '{"agent":"bot"}', 'Stock-take'],
    ['Lift one with: svc resume <pause>'],
  ]);
  asked = [];
  expect(JSON.parse((await svc('resume', 'pau_2', '--json', ...to)).out)).toEqual({ lifted: ['pau_2'] });
  expect(asked).toEqual([`GET ${W}/pauses`, `DELETE ${W}/pauses/pau_2`]);
  answer = { pauses: [] };
  expect((await svc('resume', '--all', ...to)).out).toBe('Nothing is paused.');
});

test('svc pause says until when it is, and that nothing has the name that it stops', async () => {
  const words = ['pause', '--agent', 'bto', '--reason', 'r', ...to];
  answer = { id: 'pau_1', until: null };
  expect((await svc(...words)).out).toBe('Paused, until it is resumed: pau_1');
  answer = { id: 'pau_1', until: '2030-01-01T00:00:00.000Z', warning: 'No agent bto is known.' };
  const { out } = await svc(...words);
  expect(out).toBe('Paused, until 2030-01-01T00:00:00.000Z: pau_1\nWarning: No agent bto is known.');
});

test('svc allowances: how often it was used, until when it is, for which calls, and by whom', async () => {
  const allowance = {
    id: 'alw_1',
    status: 'open',
    used: 1,
    times: 3,
    expires_at: '2030-01-01T00:00:00.000Z',
    agent_id: 'bot',
    tool: 'payments.refund',
    target: 'payment:1',
    given_by: 'maria',
  };
  answer = { allowances: [allowance], next_cursor: null };
  const { out } = await svc('allowances', 'list', ...to);
  expect(out.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
    ['allowance', 'status', 'used', 'until', 'agent', 'tool', 'target', 'given by'],
    ['alw_1', 'open', '1 of 3', allowance.expires_at, 'bot', 'payments.refund', 'payment:1', 'maria'],
  ]);
  expect(JSON.parse((await svc('allowances', 'list', '--json', ...to)).out)).toEqual(answer);
  answer = { ...allowance, status: 'revoked' };
  expect(JSON.parse((await svc('allowances', 'revoke', 'alw_1', '--json', ...to)).out)).toEqual(answer);
});

test('svc console: the link alone is on standard output; to people it says that it is theirs', async () => {
  answer = { url: 'http://localhost/console/sign-in#link=x', expires_at: 't' };
  const { out, err } = await svc('console', ...to);
  expect([out, asked]).toEqual(['http://localhost/console/sign-in#link=x', ['POST /v1/beta/console/links {}']]);
  expect(err).toBe('Opens once, within five minutes. Do not send it to others: it signs them in as you.');
  const inJson = await svc('console', '--json', ...to);
  expect([JSON.parse(inJson.out), inJson.err]).toEqual([answer, '']);
});

test.each(['0m', '1w', '30', '1.5h', '-1h', '1234567s', ''])(
  'svc pause --for %j: that is no duration, and nothing is paused',
  async (text) => {
    const { code, err } = await svc('pause', '--all', `--for=${text}`, '--reason', 'r', ...to);
    expect([code, asked]).toEqual([64, []]);
    expect(err).toContain('A duration is a number and s, m, h or d, e.g. 30m.');
  },
);

test('a key comes from its file without the line break at its end; a file that is none says what it is', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'svc-keys-'));
  vi.stubEnv('SVC_API_KEY', '');
  const file = join(folder, 'key');
  writeFileSync(file, 'svc_acct_7hQ2mZx0PbKdAAAABBBBCCCCDDDD\n');
  answer = { pauses: [] };
  const said = async (name: string) => {
    const { code, out, err } = await svc('resume', ...to, '--key-file', name);
    return [code, out, err];
  };
  expect(await said(file)).toEqual([0, 'Nothing is paused.', '']);
  expect(await said(folder)).toEqual([2, '', `svc: ${folder} is a folder; name a file in it.`]);
  expect(await said(`${file}s`)).toEqual([2, '', `svc: There is no file ${file}s.`]);
  // Somebody else may have made it: it is looked at before it is read.
  truncateSync(file, 16 * 1024 ** 2 + 1);
  expect(await said(file)).toEqual([2, '', `svc: ${file} is larger than 16777216 bytes; nothing was read.`]);
  rmSync(folder, { recursive: true });
});

test.each([
  ['90s', 90_000],
  ['30m', 1_800_000],
  ['2h', 7_200_000],
  ['3d', 259_200_000],
])('svc pause --for %s ends after that', async (duration, ms) => {
  answer = { id: 'pau_1', until: 't' };
  await svc('pause', '--all', '--for', duration, '--reason', 'r', ...to);
  const { until }: { readonly until: string } = JSON.parse(asked[0]?.split(' ')[2] ?? '');
  expect(Math.abs(Date.parse(until) - Date.now() - ms)).toBeLessThan(60_000);
});

test.each(['--from FILE --tool t', '--from FILE --before 2030-01-01T00:00:00Z', '', 'eff_1 --tool t'])(
  'svc effects resolve %s: which ones is not clear, and nothing is settled',
  async (words) => {
    const { code, err } = await svc(
      'effects',
      'resolve',
      ...words.split(' ').filter(Boolean),
      '--outcome',
      'happened',
      ...to,
    );
    expect([code, err, asked]).toEqual([64, expect.stringContaining('Say which'), []]);
  },
);

test('svc effects resolve --tool: a tool that nobody knows is a slip, and one of which nothing is unknown is none', async () => {
  answerTo = (url) =>
    url.includes('/tools') ? { tools: [{ name: 'payments.refund' }] } : { effects: [], next_cursor: null };
  const resolve = (tool: string) => svc('effects', 'resolve', '--outcome', 'happened', '--yes', '--tool', tool, ...to);
  expect(await resolve('payments.refnd')).toMatchObject({
    code: 64,
    err: expect.stringMatching(/No tool is called 'payments\.refnd'.*payments\.refund/),
  });
  expect(await resolve('payments.refund')).toMatchObject({
    code: 0,
    out: 'Settled as happened: 0. Refused: 0.',
  });
  expect(asked.filter((one) => one.startsWith('POST'))).toEqual([]);
});

test('svc effects resolve --from: one id a line, each once; blank lines and what begins with # are none', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'svc-asked-'));
  const file = join(folder, 'ids');
  writeFileSync(file, '# of the outage\neff_1\n\n  eff_2  \neff_1\n');
  const call = { state: 'committed', tool: 'a.b', target: 'x', created_at: 't' };
  answerTo = (url) => ({ effect: { ...call, effect_id: url.split('/').at(-1) }, ledger: [] });
  const { code, out } = await svc('effects', 'resolve', '--outcome', 'happened', '--from', file, '--dry-run', ...to);
  rmSync(folder, { recursive: true });
  expect(asked).toEqual([`GET ${W}/effects/eff_1`, `GET ${W}/effects/eff_2`]);
  expect([code, out]).toEqual([0, expect.stringContaining('Not unknown: 2. Nothing was changed.')]);
});

test('svc effects resolve --dry-run: what it is too early for is told apart, unless it is forced', async () => {
  const quiet = '2100-01-01T00:00:00.000Z';
  answer = {
    effect: {
      effect_id: 'eff_1',
      state: 'unknown',
      tool: 'a.b',
      target: 'x',
      evidence: {},
      created_at: 't',
      quiesce_until: quiet,
    },
    ledger: [],
  };
  const tried = async (...words: readonly string[]) =>
    (await svc('effects', 'resolve', 'eff_1', '--dry-run', '--outcome', ...words, ...to)).out.split('\n').at(-1);
  expect(await tried('not_happened')).toBe(
    `Would settle as not_happened: 0. Too early to say that it did not happen: 1, the last until ${quiet}. Nothing was changed.`,
  );
  expect(await tried('not_happened', '--force')).toBe('Would settle as not_happened: 1. Nothing was changed.');
  expect(await tried('happened')).toBe('Would settle as happened: 1. Nothing was changed.');
});

test('svc effects probe: what the reading shows, and when another can tell more', async () => {
  const effect = { decision: 'unknown_effect' };
  answer = { probe: { message: 'It shows neither.', retry_after_ms: 4_100 }, effect };
  expect((await svc('effects', 'probe', 'eff_1', ...to)).out).toBe(
    'eff_1 is unknown_effect: It shows neither. Probe again in 5 s.',
  );
  answer = { probe: { message: 'It is there.' }, effect: { decision: 'committed' } };
  expect((await svc('effects', 'probe', 'eff_1', ...to)).out).toBe('eff_1 is committed: It is there.');
  expect(asked).toEqual([`POST ${W}/effects/eff_1/probe {}`, `POST ${W}/effects/eff_1/probe {}`]);
});

test('svc notifications: each has why it was not taken, and when it is tried next or ended; all that are named are sent again', async () => {
  const one = { event: 'pause.set', receiver: 'ops', attempts: 4, last_failure: 'it answered 503' };
  const [next, ended] = ['2026-01-02T00:00:00.000Z', '2026-01-03T00:00:00.000Z'];
  answer = {
    notifications: [
      { ...one, id: 'dlv_1', state: 'waiting', next_attempt_at: next, ended_at: null },
      { ...one, id: 'dlv_2', state: 'dead', next_attempt_at: null, ended_at: ended },
    ],
    next_cursor: null,
  };
  const { out } = await svc('notifications', 'list', ...to);
  expect(out).toMatch(new RegExp(`dlv_1 +pause\\.set +ops +waiting +4 +it answered 503 +${next}`));
  expect(out).toMatch(new RegExp(`dlv_2 +pause\\.set +ops +dead +4 +it answered 503 +${ended}`));
  asked = [];
  answerTo = (url) => ({ id: url.split('/').at(-2) });
  const { out: resent } = await svc('notifications', 'resend', 'dlv_1', 'dlv_2', ...to);
  expect(resent).toBe('To be sent again: dlv_1\nTo be sent again: dlv_2');
  expect(asked).toEqual(['dlv_1', 'dlv_2'].map((id) => `POST /v1/beta/notifications/${id}/resend {}`));
});

test('what was done before something failed is told: of pauses that were lifted, and of notifications that are sent again', async () => {
  const failAt = (last: string, value: object) => (url: string) => {
    if (url.includes(last)) gateway.closeAllConnections();
    return value;
  };
  answerTo = failAt('dlv_2', { id: 'dlv_1' });
  const resent = await svc('notifications', 'resend', 'dlv_1', 'dlv_2', ...to);
  expect([resent.out, resent.code]).toEqual(['To be sent again: dlv_1', 2]);
  const paused = ['pau_1', 'pau_2'].map((id) => ({ id, scope: { workspace: true }, until: null, reason: 'r' }));
  answerTo = failAt('pau_2', { pauses: paused });
  const lifted = await svc('resume', '--all', ...to);
  expect([lifted.out, lifted.code]).toEqual(['Lifted: pau_1', 2]);
});

test('svc policy history and proposals: who, and why, or which files', async () => {
  const by = { type: 'gateway', id: 'gw' };
  const files = ['policies/a.yaml', 'policies/b.yaml'];
  const activations = [
    { version: 'v2', at: 't2', how: 'activate', by: { type: 'user', id: 'maria' }, why: 'limits of June' },
    { version: 'v1', at: 't1', how: 'files', by, files },
  ];
  answer = { in_force: 'v2', files_version: 'v2', activations };
  const { out } = await svc('policy', 'history', ...to);
  expect(out).toMatch(/^\* +v2 +t2 +activate +user maria +limits of June$/m);
  expect(out).toMatch(/^ +v1 +t1 +files +gateway gw +policies\/a\.yaml policies\/b\.yaml$/m);
  // The files are what is in force.
  expect(out).not.toContain('svc policy activate');
  const proposal = { id: 'ppl_1', version: 'v3', status: 'open', at: 't3', how: 'files', by, people: [], files };
  answer = { in_force: 'v2', proposals: [proposal, { ...proposal, id: 'ppl_2', people: ['maria'], why: 'more' }] };
  const proposed = (await svc('policy', 'proposals', ...to)).out;
  expect(proposed).toMatch(/^ppl_1 .*gateway gw +policies\/a\.yaml policies\/b\.yaml$/m);
  expect(proposed).toMatch(/^ppl_2 .*maria +more$/m);
});

test('svc policy activate, where two people have to stand behind it: until when it waits, for whom, and what they run', async () => {
  const proposal = { id: 'ppl_1', version: 'v2', status: 'open', expires_at: 't', still_needs: 1 };
  answer = { version: 'v1', proposal };
  expect((await svc('policy', 'activate', ...to)).out.split('\n')).toEqual([
    'Proposed: v2, until t',
    'In force until another person confirms it: v1',
    'svc policy show v2',
    'svc policy confirm ppl_1',
  ]);
  answer = { version: 'v1', proposal: { ...proposal, still_needs: 2 } };
  expect((await svc('policy', 'rollback', ...to)).out).toContain('In force until two people confirm it: v1');
  answer = { version: 'v2', proposal: { ...proposal, status: 'confirmed', still_needs: 0 } };
  expect((await svc('policy', 'confirm', 'ppl_1', ...to)).out).toBe('In force: v2');
});

test('svc pause: an end that is said twice is a slip, and nothing is paused', async () => {
  const twice = ['--for', '1h', '--until', '2030-01-01T00:00:00Z'];
  const { code, err } = await svc('pause', '--all', '--reason', 'r', ...twice, ...to);
  expect([code, err, asked]).toEqual([64, expect.stringContaining('give one'), []]);
});

test('svc receipts keys: since when each signs, and until when a retired one did; no keys are no answer', async () => {
  const key = { kty: 'OKP', crv: 'Ed25519', x: Buffer.alloc(32, 1).toString('base64url') };
  answer = {
    keys: [
      { ...key, iat: 1_750_000_000 },
      { ...key, iat: 1_700_000_000, exp: 1_750_000_000 },
    ],
  };
  const { out, code } = await svc('receipts', 'keys', ...to);
  expect([code, out.split('\n').map((line) => line.match(/\d{4}-\S+/g))]).toEqual([
    0,
    [null, ['2025-06-15T15:06:40.000Z'], ['2023-11-14T22:13:20.000Z', '2025-06-15T15:06:40.000Z']],
  ]);
  for (const none of [{ keys: [] }, {}]) {
    answer = none;
    expect(await svc('receipts', 'keys', ...to)).toMatchObject({
      code: 2,
      err: expect.stringContaining('does not say which keys sign receipts'),
    });
  }
  // That nobody answers, or somebody else, is no fault of the command.
  let [status, says] = [200, '<html>'];
  const other = createServer((_request, response) => response.writeHead(status).end(says));
  await once(other.listen(0, '127.0.0.1'), 'listening');
  const url = `http://127.0.0.1:${(other.address() as AddressInfo).port}`;
  const fault = async (why: RegExp): Promise<void> => {
    const { err, ...said } = await svc('receipts', 'keys', '--url', url);
    expect(said).toEqual({ code: 2, out: '' });
    const [of, ...rest] = err.split('.json: ');
    expect([of, rest]).toEqual([`svc: ${url}/.well-known/jwks`, [expect.stringMatching(why)]]);
  };
  await fault(/^[^\n]+ is not valid JSON$/);
  // What it says is never taken for the reason.
  says = '"all is well"';
  await fault(/^it does not say which keys sign receipts$/);
  [status, says] = [404, JSON.stringify({ keys: [key] })];
  await fault(/^it does not say which keys sign receipts$/);
  await new Promise((resolve) => other.close(resolve));
  await fault(/^fetch failed \([^\n]+\)$/);
});

test.each(LISTS)('svc %s: nothing is there', async (words, of) => {
  answer = { [of]: [], next_cursor: null };
  expect(await svc(...words.split(' '), ...to)).toEqual({ code: 0, out: `No ${of}.`, err: '' });
  expect(JSON.parse((await svc(...words.split(' '), '--json', ...to)).out)).toEqual(answer);
});

// Of the ledger the command itself reads on until there is something.
test.each(LISTS.filter(([words]) => words !== 'ledger'))(
  'svc %s: nothing is here, and more follows',
  async (words, of) => {
    answer = { [of]: [], next_cursor: 'c2' };
    const out = `No ${of} here.\nMore: --cursor c2`;
    expect(await svc(...words.split(' '), ...to)).toEqual({ code: 0, out, err: '' });
  },
);

test.each<[string, object]>([
  ['policy history', { in_force: 'v', files_version: 'v', activations: [] }],
  ['policy show v', { version: 'v', proven: true, files: [] }],
  ['policy proposals', { in_force: 'v', proposals: [] }],
  ['policy rollback', { version: 'v' }],
  ['policy withdraw ppl_1', { id: 'ppl_1', status: 'withdrawn' }],
  ['policy suggest', { suggestions: [] }],
  ['pause --all --reason r', { id: 'pau_1', scope: { workspace: true }, until: null }],
  ['passkeys remove maria psk_1', { id: 'psk_1' }],
  ['receipts keys', { keys: [{ kty: 'OKP', crv: 'Ed25519', x: 'x' }] }],
  ['effects probe eff_1', { probe: { message: 'm', retry_after_ms: 1 }, effect: { decision: 'd' } }],
])('svc %s --json: what the gateway answered, as it is', async (words, says) => {
  answer = says;
  const { out, code } = await svc(...words.split(' '), '--json', ...to);
  expect([code, JSON.parse(out)]).toEqual([0, says]);
});

test.each<[string, object, string]>([
  [
    'policy history',
    { in_force: 'v', files_version: null, activations: [] },
    'Nothing is on record.\nThe files of this gateway (which cannot be used) are not in force. Put them in force with: svc policy activate',
  ],
  ['policy proposals', { in_force: 'v', proposals: [] }, 'Nothing is proposed.'],
  ['policy suggest', { suggestions: [] }, 'Nothing is suggested.'],
  ['policy withdraw ppl_1', { id: 'ppl_1', status: 'rejected' }, 'Over: ppl_1 (rejected)'],
  ['passkeys remove maria psk_1', { id: 'psk_1' }, 'Removed: psk_1'],
  [
    'allowances revoke alw_1',
    { id: 'alw_1', status: 'revoked', used: 1, times: 3 },
    'It lets nothing in any more (revoked); it let in 1 of 3.',
  ],
])('svc %s, for people', async (words, says, out) => {
  answer = says;
  expect(await svc(...words.split(' '), ...to)).toEqual({ code: 0, out, err: '' });
});

test('svc policy suggest: what stands behind each text, and no word of it steers the terminal', async () => {
  const suggestion = {
    rule: 'rig/large\u202e',
    tool: 'payments.refund',
    file: 'rig.yaml',
    line: 12,
    text: '- id: small\n  why: "\u202e"\n',
    people: ['maria', 'tom'],
    since: 't1',
    until: 't2',
    approvals: [{ approval_id: 'apr_1' }, { approval_id: 'apr_2' }],
  };
  answer = { suggestions: [suggestion] };
  expect((await svc('policy', 'suggest', ...to)).out.split('\n')).toEqual([
    '# payments.refund: approved 2 times by maria, tom, t1 to t2, never rejected',
    '# Requests: apr_1 apr_2',
    '# In rig.yaml, in the place of the rule rig/large\\u{202e} (line 12):',
    '- id: small',
    '  why: "\\u{202e}"',
    '',
  ]);
});

/** A call whose outcome is unknown, and that may arrive until then. */
const lost = (id: string, quiesce_until: string) => ({
  effect_id: id,
  state: 'unknown',
  tool: 'a.b',
  target: 'x',
  evidence: { started_at: '2030-01-01T00:00:00.000Z' },
  created_at: '2029-01-01T00:00:00.000Z',
  quiesce_until,
});

test('svc effects resolve --tool --before: those are asked for, and of them those that were sent last before it', async () => {
  answer = { effects: [lost('eff_1', '2030-01-01T01:00:00.000Z')], next_cursor: null };
  const found = async (before: string) => {
    const words = ['--tool', 'a.b', '--before', before, '--outcome', 'happened', '--dry-run', '--json'];
    const { out } = await svc('effects', 'resolve', ...words, ...to);
    return JSON.parse(out).would_settle.length;
  };
  expect(await found('2030-01-01T00:00:00Z')).toBe(0);
  expect(await found('2030-01-01T00:00:01Z')).toBe(1);
  expect(asked[1]).toBe(`GET ${W}/effects?state=unknown&tool=a.b&until=2030-01-01T00:00:01Z&limit=200`);
  for (const before of ['2030-99-01T00:00:00Z', '2030-01-01'])
    expect((await svc('effects', 'resolve', '--before', before, '--outcome', 'happened', ...to)).err).toContain(
      'Not a time such as',
    );
});

test('svc effects resolve: a person sees which ones before anything is settled; scripts are told what became of each', async () => {
  const [early, late] = ['2100-01-01T00:00:00.000Z', '2100-01-02T00:00:00.000Z'];
  const both = [lost('eff_1', late), lost('eff_2', early)];
  answerTo = (url) =>
    url.includes('/eff_1')
      ? { effect: { ...both[0], decision: 'committed', reason: { code: 'c', message: 'm' } } }
      : { effects: both, next_cursor: null };
  const words = ['effects', 'resolve', '--tool', 'a.b', '--outcome'];
  const dry = await svc(...words, 'not_happened', '--dry-run', ...to);
  expect(dry.out).toContain(`Too early to say that it did not happen: 2, the last until ${late}.`);
  expect(JSON.parse((await svc(...words, 'not_happened', '--dry-run', '--json', ...to)).out)).toMatchObject({
    would_settle: [],
    too_early: [{ effect_id: 'eff_1', sent_at: '2030-01-01T00:00:00.000Z', quiesce_until: late }, {}],
    not_unknown: [],
    refused: [],
  });
  both.pop();
  const { err } = await svcAnsweredWith({}, 'yes', ...words, 'happened', ...to);
  expect(err.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
    ['effect', 'sent', 'state', 'tool', 'target'],
    ['eff_1', '2030-01-01T00:00:00.000Z', 'unknown', 'a.b', 'x'],
    ['Settle 1 outcome as happened? Type yes:'],
  ]);
  const posts = asked.filter((one) => one.startsWith('POST'));
  expect(posts).toEqual([`POST ${W}/effects/eff_1/resolve {"outcome":"happened"}`]);
  const { out } = await svc(...words, 'happened', '--yes', '--json', ...to);
  expect(JSON.parse(out)).toEqual({ settled: ['eff_1'], refused: [] });
  const one = await svc('effects', 'resolve', 'eff_1', '--outcome', 'happened', '--json', ...to);
  expect(JSON.parse(one.out)).toMatchObject({ effect_id: 'eff_1', status: 'committed', reason: { message: 'm' } });
});

test('svc export asks for what is said, and says into which file and how much', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'svc-exported-'));
  const file = join(folder, 'june.csv');
  answer = { type: 'bundle' };
  const words = ['export', '--format', 'csv', '--what', 'effects', '--out', file, ...ABOUT];
  const { out } = await svc(...words, ...to);
  expect(asked).toEqual([`GET ${W}/export?format=csv&what=effects&${ASKED_ABOUT}`]);
  expect(out).toBe(`Written: ${file} (17 bytes)`);
  const other = join(folder, 'all');
  const told = await svc('export', '--out', other, '--json', ...to);
  expect(JSON.parse(told.out)).toEqual({ file: other, format: 'bundle', bytes: 17 });
  // Somebody makes the file meanwhile: it stays what it is, and is not called broken.
  const theirs = join(folder, 'theirs');
  answerTo = () => {
    writeFileSync(theirs, 'theirs');
    return {};
  };
  expect(await svc('export', '--out', theirs, ...to)).toMatchObject({
    code: 2,
    err: expect.stringContaining('is there already, and was left as it is'),
  });
  expect(readFileSync(theirs, 'utf8')).toBe('theirs');
  expect(readdirSync(folder).toSorted()).toEqual(['all', 'june.csv', 'theirs']);
  rmSync(folder, { recursive: true });
});

test('svc policy show: files that could not be held against their version are said to be so', async () => {
  answer = { proven: false, files: [] };
  expect((await svc('policy', 'show', 'v', ...to)).err).toContain('Not held against its version');
});

test('svc policy show: each file is printed as it was, and after it what its list files said', async () => {
  const lists = [
    { name: 'blocked', text: 'mallory\ntrudy\n' },
    { name: 'gone', text: null },
  ];
  const files = [
    { file: 'a.yaml', text: 'name: a\nrules: []\n', lists },
    { file: 'b.yaml', text: 'name: b\n', lists: [] },
  ];
  answer = { proven: true, files };
  const of = (file: string, ...lines: readonly string[]): readonly string[] => [`# ${file}`, ...lines];
  const out = [
    ...of('a.yaml', 'name: a', 'rules: []'),
    ...of('list blocked of a.yaml', 'mallory', 'trudy'),
    ...of('list gone of a.yaml', ''),
    ...of('b.yaml', 'name: b'),
  ].join('\n');
  expect(await svc('policy', 'show', 'v', ...to)).toEqual({ code: 0, out, err: '' });
  expect(asked).toEqual(['GET /v1/beta/policies/versions/v']);
});

test('svc receipts keys: each key is printed, retired ones too, with since and until when it signs', async () => {
  const [first, second] = [1, 2].map((hours) => Date.UTC(2031, 0, 1, hours) / 1000);
  const key = (fill: number) => ({ kty: 'OKP', crv: 'Ed25519', x: Buffer.alloc(32, fill).toString('base64url') });
  answer = {
    keys: [
      { ...key(2), iat: second },
      { ...key(1), iat: first, exp: second },
    ],
  };
  const { out } = await svc('receipts', 'keys', ...to.slice(2));
  const [, newest = '', retired = ''] = out.split('\n');
  expect(newest.trim()).toMatch(/^\S{43} +2031-01-01T02:00:00.000Z$/);
  expect(retired.trim()).toMatch(/^\S{43} +2031-01-01T01:00:00.000Z +2031-01-01T02:00:00.000Z$/);
});

test('tail looks for reads behind pages of other events, as far as those that it has shown', async () => {
  const read = (seq: number) => ({ seq, count: 1, agent_id: 'bot', tool: 't', upstream: 'u', statuses: {} });
  let looks = 0;
  answerTo = (url) => {
    if (!url.includes('observed-reads')) return { effects: [], next_cursor: null };
    const { searchParams } = new URL(url, 'http://gateway');
    if (searchParams.has('cursor')) return { reads: [read(6), read(5)], next_cursor: '1' };
    looks += 1;
    if (looks === 1) return { reads: [read(5)], next_cursor: null };
    // A second look that finds none behind them comes too late.
    return looks === 2 ? { reads: [], next_cursor: 'zz' } : { reads: [read(7)], next_cursor: null };
  };
  const { code, out } = await svc('tail', '--last', '1', '--count', '1', '--json', ...to);
  expect(code).toBe(0);
  expect(out.split('\n').filter((line) => line.includes('"seq"'))).toMatchObject([expect.stringMatching(/"seq":6\b/)]);
});
