import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { type PaymentsUpstream, startPaymentsUpstream } from '../../packages/demo/src/payments-upstream.ts';
import { askAgain } from '../ask-again.ts';
import { makeCa } from '../upstream/certificates.ts';
import { startTlsUpstream } from '../upstream/tls-start.ts';
import { begin, type Running, svc, svcAnswered } from './run.ts';

/** The commands against a real gateway on a real store, and the demo's payments API behind it. */
const folder = mkdtempSync(join(tmpdir(), 'svc-cli-'));
let upstream: PaymentsUpstream;
let gateway: Running;
let url: string;
let account: string;
let agent: string;

const config = join(folder, 'gateway.yaml');
const at = (): readonly string[] => ['--url', url, '--workspace', 'w'];

beforeAll(async () => {
  upstream = await startPaymentsUpstream({ port: 0 });
  writeFileSync(
    join(folder, 'policy.yaml'),
    [
      'apiVersion: svc-gateway/v1',
      'kind: PolicySet',
      'name: p',
      'rules:',
      '  - { id: all, effect: allow, match: { tools: [payments.refund] }, when: { params.amount: { lte: 5000 } } }',
      '  - { id: see, effect: allow, match: { tools: [payments.get] } }',
      '  - id: large',
      '    effect: require_approval',
      '    match: { tools: [payments.refund] }',
      '    when: { params.amount: { gt: 5000 } }',
      '    approval: { approvers: { roles: [lead] }, quorum: 1, expires: 1h, summary: large }',
    ].join('\n'),
  );
  writeFileSync(
    config,
    [
      `store: { path: ${JSON.stringify(join(folder, 'data'))} }`,
      'server: { port: 0 }',
      'users: [ { id: maria, roles: [lead] }, { id: tom } ]',
      'workspaces: [ { id: w, agents: [ { id: bot, owner: tom } ] } ]',
      `policies: { paths: [${JSON.stringify(join(folder, 'policy.yaml'))}] }`,
      `upstreams: [ { id: payments, url: "${upstream.url}" } ]`,
      'tools:',
      '  - name: payments.refund',
      '    upstream: payments',
      '    kind: write',
      '    request: { method: POST, path: "/v1/payments/{payment_id}/refunds", body: [amount, currency] }',
      '    params_schema: { type: object, required: [payment_id, amount, currency], properties: { payment_id: { type: string }, amount: { type: integer }, currency: { type: string } } }',
      '    target: "payment:{payment_id}"',
      '  - { name: payments.get, upstream: payments, kind: read, request: { method: GET, path: "/v1/payments/{payment_id}" } }',
      'routes: [ { upstream: payments, prefix: /payments, rules: [ { match: "GET /v1/payments/:payment_id", tool: payments.get } ] } ]',
    ].join('\n'),
  );
  gateway = begin('start', '--config', config, '--port', '0');
  const ready: { readonly event: string; readonly url: string } = JSON.parse(await gateway.line(/"ready"/));
  expect(ready.event).toBe('ready');
  url = ready.url;
  account = await key('--kind', 'account', '--user', 'maria');
  agent = await key('--kind', 'agent', '--agent', 'bot', '--user', 'tom');
});

afterAll(async () => {
  gateway.stop();
  const { code, out } = await gateway.ended;
  await upstream.close();
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
  expect(code).toBe(0);
  expect(out.split('\n')).toHaveLength(1);
});

async function key(...options: readonly string[]): Promise<string> {
  const workspace = options.includes('administrative') ? [] : ['--workspace', 'w'];
  const { out, code } = await svc('keys', 'create', '--config', config, ...workspace, '--json', ...options);
  expect(code).toBe(0);
  return JSON.parse(out).key;
}

interface Answer {
  readonly effect_id: string;
  readonly decision: string;
  readonly approval?: { readonly id: string };
  readonly receipt?: object;
}

async function refund(amount: number, idempotencyKey: string): Promise<Answer> {
  const body = JSON.stringify({
    tool: 'payments.refund',
    params: { payment_id: 'pay_1', amount, currency: 'EUR' },
    idempotency_key: idempotencyKey,
  });
  const headers = { 'content-type': 'application/json', 'x-api-key': agent };
  const ask = async () => (await fetch(`${url}/v1/workspaces/w/effects`, { method: 'POST', headers, body })).text();
  const answer: Answer = JSON.parse(await askAgain(ask, (text) => text));
  return answer;
}

const asAccount = (...argv: readonly string[]): ReturnType<typeof svc> => {
  vi.stubEnv('SVC_API_KEY', account);
  return svc(...argv, ...at());
};

const asPerson = (answer: string | null, ...argv: readonly string[]): ReturnType<typeof svc> => {
  vi.stubEnv('SVC_API_KEY', account);
  return svcAnswered(answer, ...argv, ...at());
};

describe('keys create', () => {
  test('prints the record of the API with the key', async () => {
    const { out } = await svc(
      'keys',
      'create',
      '--config',
      config,
      '--kind',
      'profile',
      '--profile',
      'mcp_readonly',
      '--name',
      'n',
      '--user',
      'tom',
      '--json',
    );
    expect(JSON.parse(out)).toMatchObject({
      kind: 'profile',
      profile: 'mcp_readonly',
      name: 'n',
      read_only: true,
      key: expect.stringMatching(/^svc_mcp_/),
    });
  });

  test('without --json the key alone is on standard output', async () => {
    const { out } = await svc('keys', 'create', '--config', config, '--kind', 'administrative');
    expect(out).toMatch(/^svc_admin_[0-9A-Za-z]{50}$/);
  });

  test('a combination that makes no sense is 2, and names the option', async () => {
    const { code, err } = await svc('keys', 'create', '--config', config, '--kind', 'agent', '--workspace', 'w');
    expect(err).toMatch(/--agent/);
    expect(code).toBe(2);
  });

  test.each([
    ['of nobody', '--kind account', /^The key belongs to no user: .* \(key_without_user\)/],
    ['of an agent of nobody', '--kind agent --agent ghost', /^The key belongs to no user: /],
    ['of an agent whose owner answers for it', '--kind agent --agent bot', /^$/],
    ['of a user whom nothing names', '--kind account --user eve', /^The configuration names no user 'eve': /],
    [
      'of an agent that nothing names',
      '--kind agent --agent ghost --user tom',
      /^The configuration names no agent 'ghost': /,
    ],
    ['of who is named', '--kind agent --agent bot --user tom', /^$/],
  ])('for a key %s it is said what it will not do', async (_, flags, notice) => {
    const made = await svc('keys', 'create', '--config', config, '--workspace', 'w', '--json', ...flags.split(' '));
    expect(made).toMatchObject({ code: 0, err: expect.stringMatching(notice) });
  });

  describe.each([
    ['directly in the store', (): readonly string[] => ['--config', config]],
    ['through the API', (): readonly string[] => ['--url', url]],
  ])('are listed, rotated and revoked %s', (_, where) => {
    const status = async (apiKey: string): Promise<number> =>
      (await fetch(`${url}/v1/mcp/key-profiles`, { headers: { 'x-api-key': apiKey } })).status;
    beforeAll(async () => {
      vi.stubEnv('SVC_API_KEY', await key('--kind', 'administrative', '--name', 'for the test'));
    });

    test.each([
      ['agent', ['--kind', 'agent', '--agent', 'bot', '--user', 'tom']],
      ['account', ['--kind', 'account', '--user', 'maria']],
      ['administrative', ['--kind', 'administrative']],
    ])('%s', async (kind, made) => {
      const name = `${kind} to end`;
      const old = await key(...made, '--name', name);
      const listed = await svc('keys', 'list', '--kind', kind, ...where(), '--json');
      expect(listed.code).toBe(0);
      expect(listed.out).not.toContain(old);
      expect(listed.out).not.toContain('hash');
      const keys: readonly { readonly id: string; readonly name: string; readonly kind: string }[] = JSON.parse(
        listed.out,
      ).keys;
      expect(new Set(keys.map((one) => one.kind))).toEqual(new Set([kind]));
      const id = keys.findLast((one) => one.name === name)?.id ?? '';

      const rotated = await svc('keys', 'rotate', id, '--overlap', '0', ...where(), '--json');
      expect(rotated.code).toBe(0);
      const successor: { readonly id: string; readonly key: string; readonly replaces: string } = JSON.parse(
        rotated.out,
      );
      expect(successor.replaces).toBe(id);
      await vi.waitFor(async () => expect(await status(successor.key)).toBe(200), 30_000);
      await vi.waitFor(async () => expect(await status(old)).toBe(401), 30_000);
      expect((await svc('keys', 'rotate', id, ...where())).code).toBe(1);

      const revoked = await svc('keys', 'revoke', successor.id, ...where());
      expect(revoked).toMatchObject({ code: 0, out: `Revoked: ${successor.id}` });
      await vi.waitFor(async () => expect(await status(successor.key)).toBe(401), 30_000);
      const again = await svc('keys', 'revoke', successor.id, ...where());
      expect(again.code).toBe(0);
      const since = /^Revoked before, at (\S+Z): key_\w+$/.exec(again.out)?.[1] ?? '';
      expect(Math.abs(Date.parse(since) - Date.now())).toBeLessThan(60_000);
      expect(JSON.parse((await svc('keys', 'revoke', successor.id, ...where(), '--json')).out)).toMatchObject({
        id: successor.id,
        revoked_at: since,
      });
      const shown = await svc('keys', 'list', '--kind', kind, ...where());
      expect(shown.out).toMatch(new RegExp(`${successor.id}.* revoked `));
      expect(shown.out).toMatch(new RegExp(`${id}.* replaced `));
      expect((await svc('keys', 'revoke', 'key_000000000000', ...where())).code).toBe(1);
    });
  });

  test('a key that the gateway does not know: it is said which gateway', async () => {
    vi.stubEnv('SVC_API_KEY', `svc_acct_${'A'.repeat(12)}${'B'.repeat(38)}`);
    vi.stubEnv('SVC_BASE_URL', url);
    try {
      const { code, err } = await svc('effects', 'list');
      expect(err).toMatch(/\[invalid_key\]\n/);
      expect(err).toContain(`from the gateway at ${url}`);
      expect(code).toBe(1);
      expect(JSON.parse((await svc('effects', 'list', '--json')).err)).toMatchObject({
        error: { code: 'invalid_key', gateway: url },
      });
    } finally {
      vi.unstubAllEnvs();
    }
  });

  test('a second gateway on a port that is taken is 2, and says what to do', async () => {
    const other = join(folder, 'other.yaml');
    writeFileSync(other, `store: { path: ${JSON.stringify(join(folder, 'other'))} }\nworkspaces: [{ id: w }]\n`);
    const { code, err } = await svc('start', '--config', other, '--port', new URL(url).port);
    expect(err).toMatch(/taken.*--port/s);
    expect(code).toBe(2);
  });
});

describe('effects', () => {
  test('list and show, for people and as JSON', async () => {
    const { effect_id: id } = await refund(100, 'list-1');
    const list = await asAccount('effects', 'list');
    expect(list.out).toContain(id);
    const json = JSON.parse((await asAccount('effects', 'list', '--json', '--decision', 'committed')).out);
    expect(json.effects[0]).toMatchObject({ effect_id: id, agent_id: 'bot' });
    const shown = await asAccount('effects', 'show', id);
    expect(shown.out).toMatch(/effect\.admitted[\s\S]*receipt\.issued/);
    const response = await fetch(`${url}/v1/workspaces/w/effects/${id}`, { headers: { 'x-api-key': account } });
    const wired = JSON.parse((await asAccount('effects', 'show', id, '--json')).out);
    const served = JSON.parse(await response.text());
    expect({ effect: wired.effect, ledger: wired.ledger }).toEqual(served);
  });

  test('erase: what opens the receipt is gone, the receipt is there', async () => {
    const { effect_id: id } = await refund(100, 'erase-1');
    const receipt = `${url}/v1/workspaces/w/effects/${id}/receipt`;
    const read = (of: string) => fetch(of, { headers: { 'x-api-key': account } });
    expect((await read(`${receipt}?disclosure=1`)).status).toBe(200);
    expect(await asAccount('effects', 'erase', id)).toMatchObject({
      code: 0,
      out: `Erased: ${id}. Its receipt stays.`,
    });
    expect((await read(`${receipt}?disclosure=1`)).status).toBe(410);
    expect((await read(receipt)).status).toBe(200);
    expect((await asAccount('effects', 'erase', 'eff_absent')).code).toBe(1);
  });

  test('an effect that is not there is 1', async () => {
    const { code, err } = await asAccount('effects', 'show', 'eff_absent');
    expect(err).toMatch(/\[not_found\]$/);
    expect(code).toBe(1);
  });

  test('resolve settles an unknown outcome, once', async () => {
    upstream.loseNextAnswer();
    const lost = await refund(200, 'lost-1');
    expect(lost.decision).toBe('unknown_effect');
    const early = await asAccount('effects', 'resolve', lost.effect_id, '--outcome', 'not_happened');
    expect(early.err).toMatch(/can be said from 20\d\d-\S+Z on\. \(in \d+ s\) \[too_early\]$/);
    expect(early.code).toBe(1);
    const dry = await asAccount('effects', 'resolve', lost.effect_id, '--outcome', 'not_happened', '--dry-run');
    expect(dry.out).toMatch(
      /Would settle as not_happened: 0\. Too early to say that it did not happen: 1, the last until 20\S+Z\. Nothing/,
    );
    const settled = await asAccount(
      'effects',
      'resolve',
      lost.effect_id,
      '--outcome',
      'happened',
      '--comment',
      'seen',
      '--evidence',
      '{"refund":1}',
    );
    expect(settled.out).toMatch(/is committed/);
    expect(settled.code).toBe(0);
    const again = await asAccount('effects', 'resolve', lost.effect_id, '--outcome', 'not_happened');
    expect(again.err).toMatch(/\[already_resolved\]$/);
  });

  test('resolve settles many: of a tool, before a time, or of a file, after a dry run', async () => {
    const lost: string[] = [];
    for (let n = 0; n < 4; n += 1) {
      upstream.loseNextAnswer();
      lost.push((await refund(200, `many-${n}`)).effect_id);
    }
    const resolve = (...more: readonly string[]) => asAccount('effects', 'resolve', '--outcome', 'happened', ...more);
    const [first = '', second = '', third = ''] = lost;
    const file = join(folder, 'ids');
    writeFileSync(file, `# looked up\n${first}\n\n${second}\n`);
    const dry = await resolve('--from', file, '--dry-run');
    expect(dry.out).toMatch(new RegExp(`${first} .* unknown [\\s\\S]*${second} .* unknown `));
    expect(dry.out).toContain('Would settle as happened: 2. Nothing was changed.');
    writeFileSync(file, `${first}\neff_gone\n${second}\n`);
    const tried = await resolve('--from', file, '--dry-run');
    expect(tried).toMatchObject({ code: 1, out: expect.stringContaining('Would settle as happened: 2. Refused: 1.') });
    expect(tried.err).toMatch(/^eff_gone: .*\[not_found\]$/);
    const some = await resolve('--from', file, '--yes');
    expect(some).toMatchObject({ code: 1, out: 'Settled as happened: 2. Refused: 1.' });
    expect(some.err).toMatch(/^eff_gone: .*\[not_found\]$/);
    expect((await resolve('--from', file, '--dry-run')).out).toContain('Would settle as happened: 0. Not unknown: 2.');
    writeFileSync(file, '# none\n');
    expect(await resolve('--from', file)).toMatchObject({ code: 2, err: expect.stringContaining('names no effect') });
    const { created_at: made } = JSON.parse((await asAccount('effects', 'show', third, '--json')).out).effect;
    const misspelt = await resolve('--tool', 'payments.refnd', '--yes');
    expect(misspelt).toMatchObject({ code: 64, err: expect.stringContaining("did you mean 'payments.refund'?") });
    expect((await resolve('--before', made, '--dry-run')).out).toContain(': 0.');
    const unasked = await resolve('--tool', 'payments.refund');
    expect(unasked).toMatchObject({ code: 64, err: expect.stringContaining('settle 2 outcomes as happened') });
    const answered = (answer: string | null) =>
      asPerson(answer, 'effects', 'resolve', '--outcome', 'happened', '--tool', 'payments.refund');
    for (const no of [null, 'no', ''])
      expect(await answered(no)).toMatchObject({
        code: 2,
        out: '',
        err: expect.stringContaining('Nothing was changed'),
      });
    expect((await resolve('--tool', 'payments.refund', '--dry-run')).out).toContain(': 2.');
    expect(await answered('yes')).toMatchObject({ code: 0, out: 'Settled as happened: 2. Refused: 0.' });
    // A tool that is there, and of which nothing is unknown any more.
    expect((await resolve('--tool', 'payments.refund')).out).toBe('Settled as happened: 0. Refused: 0.');
    writeFileSync(file, `${first}\n`);
    const again = await asAccount('effects', 'resolve', '--outcome', 'not_happened', '--from', file, '--yes');
    expect(again).toMatchObject({ code: 1, err: expect.stringMatching(`${first}: .*\\[already_resolved\\]`) });
    for (const which of [[], [first, '--from', file], ['--from', file, '--tool', 'x']])
      expect((await resolve(...which)).err).toMatch(/^svc: Say which/);
  });
});

describe('approvals', () => {
  test('list, approve; the gateway then runs the action', async () => {
    const waiting = await refund(6000, 'large-1');
    const id = waiting.approval?.id ?? '';
    expect((await asAccount('approvals', 'list')).out).toContain(id);
    const shown = await asAccount('approvals', 'show', id);
    expect(shown.out).toMatch(new RegExp(`^approval {2}${id}\\nstatus {4}pending, 0 of 1 approvals\\n`));
    expect(shown.out).toContain(waiting.effect_id);
    expect(shown.out).toMatch(/^by {8}agent [\w-]+, owner \w+/m);
    // Another question than the one that was shown: nothing is decided.
    const other = await asAccount('approvals', 'approve', id, '--digest', 'A'.repeat(43));
    expect(other).toMatchObject({ code: 1, err: expect.stringMatching(/\[\w+\]$/) });
    const digest = /^digest +(\S+)$/m.exec(shown.out)?.[1] ?? '';
    const approved = await asAccount('approvals', 'approve', id, '--comment', 'fine', '--digest', digest);
    expect(approved).toEqual({
      code: 0,
      out: `Approved, and sent: committed. The action happened. The effect ${waiting.effect_id} is committed.`,
      err: '',
    });
    const decided = (await asAccount('approvals', 'show', id)).out;
    expect(decided).toMatch(/^at +user +key +verdict +comment\n\S+Z +\w+ +key_\w+ +approve +fine$/m);
    const again = await refund(6000, 'large-1');
    expect(again.decision).toBe('duplicate_blocked');
  });

  test('reject binds', async () => {
    const waiting = await refund(7000, 'large-2');
    expect((await asAccount('approvals', 'reject', waiting.approval?.id ?? '')).code).toBe(0);
    expect((await refund(7000, 'large-2')).decision).toBe('denied_policy');
  });

  test('an agent never decides', async () => {
    const waiting = await refund(8000, 'large-3');
    vi.stubEnv('SVC_API_KEY', agent);
    const { code, err } = await svc('approvals', 'approve', waiting.approval?.id ?? '', ...at());
    expect(err).toMatch(/\[wrong_key_kind\]$/);
    expect(code).toBe(1);
  });
});

test('the ledger, at most so many events', async () => {
  for (let n = 0; n < 3; n += 1) await refund(100, `ledger-${n}`);
  const { events } = JSON.parse((await asAccount('ledger', '--limit', '2', '--json')).out);
  expect(events).toHaveLength(2);
});

test('pause and resume', async () => {
  expect((await asAccount('resume')).out).toBe('Nothing is paused.');
  const paused = await asAccount('pause', '--tool', 'payments.**', '--reason', 'look', '--for', '5m', '--json');
  const { id } = JSON.parse(paused.out);
  expect((await refund(100, 'paused-1')).decision).toBe('denied_paused');
  const listed = await asAccount('resume');
  expect(listed.out).toContain(id);
  expect(listed.code).toBe(1);
  expect((await asAccount('resume', id)).code).toBe(0);
  // What was not lifted is not said to be.
  expect(await asAccount('resume', id)).toMatchObject({
    out: '',
    code: 1,
    err: expect.stringContaining('no such pause'),
  });
  const misspelt = await asAccount('pause', '--tool', 'payment.**', '--reason', 'look');
  expect(misspelt.out).toMatch(/^Paused, .*\nWarning: No tool that fits 'payment\.\*\*' is known/);
  expect((await asAccount('resume', '--all')).code).toBe(0);
  expect((await refund(100, 'paused-1')).decision).toBe('committed');
});

test('tail shows what is decided while it runs', async () => {
  vi.stubEnv('SVC_API_KEY', account);
  const tail = begin('tail', '--last', '1', '--json', ...at());
  await tail.line(/effect_id/);
  const { effect_id: id } = await refund(300, 'tail-1');
  const line: { readonly decision: string } = JSON.parse(await tail.line(new RegExp(id)));
  expect(line.decision).toBe('committed');
  tail.stop();
  const { code, out } = await tail.ended;
  expect(code).toBe(0);
  expect(new Set(out.split('\n')).size).toBe(out.split('\n').length);
});

test('tail shows a call again when something else has become of it', async () => {
  vi.stubEnv('SVC_API_KEY', account);
  const tail = begin('tail', '--last', '1', '--json', ...at());
  await tail.line(/effect_id/);
  const { effect_id: id, decision, approval } = await refund(60_000, 'tail-waits');
  expect(decision).toBe('pending_approval');
  expect(await tail.line(new RegExp(id))).toContain('"pending_approval"');
  expect((await svc('approvals', 'reject', String(approval?.id), '--comment', 'no', ...at())).code).toBe(0);
  expect(await tail.line(new RegExp(`${id}.*denied_policy|denied_policy.*${id}`))).toContain('"denied_policy"');
  tail.stop();
  await tail.ended;
});

test('tail shows reads that pass while it runs, added up, and none from before', async () => {
  vi.stubEnv('SVC_API_KEY', account);
  const read = async (): Promise<void> => {
    const answer = await fetch(`${url}/payments/v1/payments/pay_1`, { headers: { 'x-api-key': agent } });
    expect(answer.status).toBe(200);
    await answer.text();
  };
  const passed = async (): Promise<number> => {
    const all = await fetch(`${url}/v1/workspaces/w/observed-reads?all=true`, { headers: { 'x-api-key': account } });
    const { reads } = (await all.json()) as { readonly reads: readonly { readonly count: number }[] };
    return reads.reduce((sum, { count }) => sum + count, 0);
  };
  await refund(100, 'tail-before');
  await read();
  await expect.poll(passed, { timeout: 20_000 }).toBe(1);
  const observed = await fetch(`${url}/v1/workspaces/w/observed-reads`, { headers: { 'x-api-key': account } });
  expect(await observed.json()).toMatchObject({ reads: [] });
  const tail = begin('tail', '--last', '1', '--json', ...at());
  await tail.line(/effect_id/);
  // Its first look at reads is over once it has shown a call that came later.
  const { effect_id: id } = await refund(100, 'tail-reads');
  await tail.line(new RegExp(id));
  await read();
  const shown: unknown = JSON.parse(await tail.line(/"tool":"payments.get"/));
  expect(shown).toMatchObject({
    count: 1,
    agent_id: 'bot',
    upstream: 'payments',
    statuses: { 200: 1 },
    observed: null,
  });
  tail.stop();
  expect((await tail.ended).out.match(/payments\.get/g)).toHaveLength(1);
  const words = begin('tail', '--last', '1', '--count', '3', ...at());
  await words.line(/eff_/);
  const second = await refund(100, 'tail-reads-2');
  await words.line(new RegExp(second.effect_id));
  // The third that is asked for.
  await read();
  expect((await words.ended).code).toBe(0);
}, 120_000);

test('verify: VALID, INVALID, UNDECIDABLE', async () => {
  const answer = await refund(400, 'verify-1');
  const jwks = await fetch(`${url}/.well-known/jwks.json`);
  const trust = join(folder, 'jwks.json');
  const receipt = join(folder, 'receipt.json');
  writeFileSync(trust, await jwks.text());
  writeFileSync(receipt, JSON.stringify(answer));
  const valid = await svc('verify', receipt, '--trust', trust);
  expect(valid.out).toMatch(/\nVALID$/);
  expect(valid.code).toBe(0);
  writeFileSync(receipt, JSON.stringify({ ...answer, receipt: { ...answer.receipt, ws: 'other' } }));
  const invalid = await svc('verify', receipt, '--trust', trust, '--json');
  expect(JSON.parse(invalid.out)).toMatchObject({ verdict: 'INVALID' });
  expect(invalid.code).toBe(1);
  writeFileSync(receipt, '{}');
  expect((await svc('verify', receipt, '--trust', trust)).code).toBe(2);
  const missing = await svc('verify', `${receipt}.gone`, '--trust', trust, '--explain');
  expect(missing).toMatchObject({ code: 2, err: expect.stringContaining(`There is no file ${receipt}.gone`) });
});

describe('doctor', () => {
  test('nothing fails here', async () => {
    const { code, out } = await svc('doctor', config, '--json');
    const { checks }: { readonly checks: readonly { readonly name: string; readonly status: string }[] } =
      JSON.parse(out);
    expect(Object.fromEntries(checks.map(({ name, status }) => [name, status]))).toEqual({
      node: 'ok',
      configuration: 'ok',
      store: 'ok',
      disk: 'ok',
      'master secret': 'ok',
      keys: 'ok',
      port: 'ok',
      gateway: 'skipped',
      'upstream payments': 'ok',
      clock: 'ok',
    });
    expect(code).toBe(0);
  });

  test('upstreams behind TLS are asked as calls ask them: with the CAs and the certificate of their tls', async () => {
    const ca = makeCa('ca');
    const names = { 'tls-ca': ca, 'tls-own': ca.issue('gateway'), 'tls-other': makeCa('other') };
    for (const [name, { cert, key }] of Object.entries(names)) {
      writeFileSync(join(folder, `${name}.pem`), cert);
      writeFileSync(join(folder, `${name}.key`), key);
    }
    const upstream = await startTlsUpstream({
      ...ca.issue('localhost'),
      ca: ca.cert,
      requestCert: true,
      rejectUnauthorized: true,
    });
    const path = join(folder, 'tls.yaml');
    const file = (name: string): string => JSON.stringify(join(folder, name));
    const own = `cert: ${file('tls-own.pem')}, key: ${file('tls-own.key')}`;
    const upstreamLine = (id: string, tls: string): string =>
      `  - { id: ${id}, url: "${upstream.url}", tls: { ${tls} } }`;
    writeFileSync(
      path,
      [
        `store: { kind: embedded, path: ${file('tls-store')} }`,
        'upstreams:',
        upstreamLine('good', `ca: ${file('tls-ca.pem')}, ${own}`),
        upstreamLine('stranger', `ca: ${file('tls-other.pem')}, ${own}`),
        upstreamLine('nameless', `ca: ${file('tls-ca.pem')}`),
      ].join('\n'),
    );
    try {
      const { out } = await svc('doctor', path);
      expect(out).toMatch(/ok {3}upstream good .*answers \(HTTP 200\)/);
      expect(out).toMatch(/FAIL upstream stranger .*no CA that is trusted for it has signed its certificate/);
      expect(out).toMatch(/FAIL upstream nameless .*may refuse the gateway's certificate, or want one/);
    } finally {
      await upstream.stop();
    }
  });

  test('files that do not hold: the sum first, then all that is wrong; warnings are shown too', async () => {
    const path = join(folder, 'doubtful.yaml');
    const policy = join(folder, 'doubtful-policy.yaml');
    const lines = [
      `store: { path: ${JSON.stringify(join(folder, 'doubtful'))} }`,
      'workspaces: [ { id: w } ]',
      `policies: { paths: [ ${JSON.stringify(policy)} ] }`,
    ];
    writeFileSync(path, lines.join('\n'));
    const rule = (effect: string) =>
      `apiVersion: svc-gateway/v1\nkind: PolicySet\nname: s\nowner: o\nbudgets: { b: { unit: c, per: day, limit: 1 } }\nrules: [ { id: a, effect: ${effect} } ]\n`;
    writeFileSync(policy, rule('alow'));
    const bad = await svc('doctor', path);
    expect(bad.out).toMatch(/FAIL configuration +1 error\n/);
    expect(bad.out).toContain("'effect' must be one of");
    expect(bad.out).toContain("hint: did you mean 'allow'?");
    expect(bad.code).toBe(1);
    writeFileSync(policy, rule('allow'));
    const doubtful = await svc('doctor', path);
    expect(doubtful.out).toMatch(/warn configuration +policies hold: 1 rule \(1 warning\)\n/);
    expect(doubtful.out).toContain("No rule uses the budget 'b'");
  });

  test.skipIf(process.platform !== 'linux')(
    'a store that may not be written: no backup in its place, and no other folder',
    async () => {
      const denied = join(folder, 'denied');
      const path = join(folder, 'denied.yaml');
      mkdirSync(denied);
      writeFileSync(join(denied, 'install.json'), '');
      // Nobody may make a file there, whoever runs the test.
      symlinkSync('/sys/no-file-of-ours', join(denied, 'lock.db'));
      writeFileSync(path, `store: { path: ${JSON.stringify(denied)} }`);
      const { code, out } = await svc('doctor', path);
      expect(code).toBe(1);
      expect(out).toMatch(/FAIL store .*The lock of the store cannot be taken/);
      expect(out).toContain(`to mend it: Run this as the user that owns ${denied}`);
      expect(out).not.toMatch(/svc restore|store\.path/);
      expect(out).toMatch(/- {4}gateway +whether one runs on this store cannot be told/);
    },
  );

  test('every failure has a line that says how to mend it', async () => {
    const taken = createServer().listen(0, '127.0.0.1');
    await once(taken, 'listening');
    const address = taken.address();
    const port = address !== null && typeof address === 'object' ? address.port : 0;
    const sick = join(folder, 'sick.yaml');
    const secret = join(folder, 'open-secret');
    writeFileSync(secret, 'x'.repeat(44), { mode: 0o644 });
    writeFileSync(
      sick,
      [
        `store: { path: ${JSON.stringify(join(folder, 'sick'))} }`,
        `server: { port: ${port} }`,
        `secrets: { master: { file: ${JSON.stringify(secret)} } }`,
        'upstreams: [ { id: gone, url: "http://127.0.0.1:1" } ]',
      ].join('\n'),
    );
    const { code, out } = await svc('doctor', sick);
    taken.close();
    expect(code).toBe(1);
    for (const name of ['master secret', 'port', 'upstream gone'])
      expect(out).toMatch(new RegExp(`FAIL ${name} .*\n {5}to mend it: .+`));
    chmodSync(secret, 0o640);
    expect((await svc('doctor', sick)).out).toMatch(/FAIL master secret .*can be read by others \(mode 640\)/);
  });
});

test('what policy only observes can be found', async () => {
  const enforced = readFileSync(config, 'utf8');
  writeFileSync(config, enforced.replace('policies: { ', 'policies: { mode: observe, '));
  try {
    let attempt = 0;
    await vi.waitFor(
      async () => {
        attempt += 1;
        expect((await refund(9000, `observed-${attempt}`)).decision).toBe('committed');
      },
      { timeout: 40_000, interval: 100 },
    );
    const { effect_id: allowed } = await refund(100, 'observed-small');
    const { out } = await asAccount('effects', 'list', '--observed', '--limit', '1');
    expect(out).toMatch(/committed, policy: pending_approval  payment:pay_1  \{"payment_id":"pay_1","amount":9000,/);
    expect(out).not.toContain(allowed);
    const id = /eff_\w+/.exec(out)?.[0] ?? '';
    expect((await asAccount('effects', 'show', id)).out).toMatch(
      /^policy {4}only observes; in force: pending_approval \(p\/large\)$/m,
    );
  } finally {
    writeFileSync(config, enforced);
  }
});
