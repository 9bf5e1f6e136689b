import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, test, vi } from 'vitest';
import { EXIT_CODES, OF_COMMANDS } from '../../src/cli/exit-codes.ts';
import { linesOf } from '../../src/cli/verify.ts';
import { svc } from './run.ts';

const folder = mkdtempSync(join(tmpdir(), 'svc-usage-'));
const file = (name: string, text: string): string => {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
};

afterAll(() => rmSync(folder, { recursive: true, force: true }));
afterEach(() => vi.unstubAllEnvs());

describe('help and usage', () => {
  const COMMANDS = [
    ['start'],
    ['demo'],
    ['doctor'],
    ['init'],
    ['keys', 'create'],
    ['keys', 'list'],
    ['keys', 'revoke'],
    ['keys', 'rotate'],
    ['passkeys', 'list'],
    ['passkeys', 'remove'],
    ['config', 'check'],
    ['policy', 'digest'],
    ['receipts', 'keys'],
    ['effects', 'list'],
    ['effects', 'show'],
    ['effects', 'resolve'],
    ['effects', 'probe'],
    ['effects', 'disclose'],
    ['ledger'],
    ['export'],
    ['approvals', 'list'],
    ['approvals', 'show'],
    ['approvals', 'approve'],
    ['approvals', 'reject'],
    ['allowances', 'list'],
    ['allowances', 'revoke'],
    ['pause'],
    ['resume'],
    ['tail'],
    ['console'],
    ['verify'],
    ['store', 'accept-loss'],
    ['store', 'recover'],
    ['fsck'],
    ['migrate'],
    ['backup'],
    ['restore'],
    ['tools', 'list'],
    ['tools', 'diff'],
    ['tools', 'pin'],
    ['tools', 'approve'],
  ];
  test.each(COMMANDS)('%s %s has help with --json and its exit codes', async (...words) => {
    const { code, out } = await svc(...words.filter((word) => typeof word === 'string'), '--help');
    expect(code).toBe(0);
    expect(out).toContain('--json');
    expect(out).toMatch(/Exit codes:\n {2}0 {3}.+\n {2}1 {3}.+\n {2}2 {3}.+\n {2}64 {2}.+/);
  });

  test.each([
    ['nothing', [], /Usage: svc/],
    ['an unknown command', ['strat'], /unknown command 'strat'.*\n?.*Did you mean start\?/],
    ['an unknown option', ['effects', 'list', '--jsn'], /unknown option '--jsn'.*\n?.*Did you mean --json\?/],
    ['a missing option', ['start'], /required option '--config <file>' not specified/],
    ['a port that is none', ['start', '--config', 'x', '--port', '65536'], /A port is a number from 0 to 65535/],
    ['a port in other words', ['start', '--config', 'x', '--port', '8e3'], /A port is a number from 0 to 65535/],
    [
      'a kind that is none',
      ['keys', 'create', '--config', 'x', '--kind', 'root'],
      /Allowed choices are account, agent, administrative, profile/,
    ],
    ['no scope', ['pause', '--reason', 'x'], /exactly one of --all, --tool/],
    ['two scopes', ['pause', '--reason', 'x', '--all', '--tool', '**'], /exactly one of --all, --tool/],
    [
      'a duration that is none',
      ['pause', '--reason', 'x', '--all', '--for', 'soon'],
      /A duration is a number and s, m, h or d/,
    ],
    ['two ends', ['pause', '--reason', 'x', '--all', '--for', '1m', '--until', '2030-01-01T00:00:00Z'], /give one/],
    [
      'names and all of them',
      ['tools', 'approve', 'a', '--all', '--url', 'http://127.0.0.1:1/mcp', '--lock', 'x'],
      /Name the tools to approve, or say --all/,
    ],
    ['a key instead of its id', ['keys', 'revoke', 'svc_agent_x', '--config', 'x'], /named by its id, key_/],
    ['an overlap that is none', ['keys', 'rotate', 'key_aaaaaaaaaaaa', '--overlap', '1h'], /A number of seconds/],
    [
      'an approval as an effect',
      ['effects', 'show', 'apr_1'],
      /apr_1 is a request for approval: svc approvals show apr_1/,
    ],
    ['evidence that is not JSON', ['effects', 'resolve', 'e', '--outcome', 'happened', '--evidence', '{'], /Not JSON/],
  ])('%s: exit code 64, said on standard error', async (_, argv, words) => {
    const { code, out, err } = await svc(...argv);
    expect(err).toMatch(words);
    expect(code).toBe(64);
    expect(out).toBe('');
  });
});

test.each([
  [['--upstream', 'http://127.0.0.1:1']],
  [['--openapi', 'a.yaml']],
  [['--include', '*']],
  [['--exclude', '*']],
  [['--diff']],
])('an MCP server that is an API as well, by %j: 64', async (more) => {
  const { code, err } = await svc('init', '--mcp', 'x', ...more);
  expect([code, err]).toEqual([64, expect.stringContaining('cannot be used with option')]);
});

describe('exit codes', () => {
  const rows = readFileSync('docs/operating/exit-codes.md', 'utf8')
    .split('\n')
    .filter((line) => /^\| (\d+|`svc .*`) \|/.test(line))
    .map((line) =>
      line
        .split('|')
        .map((cell) => cell.trim())
        .slice(1, -1),
    );
  const general = rows.filter(([first = '']) => /^\d+$/.test(first));
  const ofCommands = rows.filter(([first = '']) => first.startsWith('`'));

  test('are those of the table in the documentation, and nothing more', () => {
    expect(general).toEqual(Object.entries(EXIT_CODES));
    const told = Object.entries(OF_COMMANDS).map(([name, [done, no, failed]]) => [
      `\`svc ${name}\``,
      done,
      no,
      failed ?? 'as above',
    ]);
    expect(ofCommands).toEqual(told);
  });

  test.each(ofCommands)('%s: its help says the same', async (command = '', done, no, failed) => {
    const { out } = await svc(...command.replaceAll('`', '').split(' ').slice(1), '--help');
    const third = failed === 'as above' ? general[2]?.[1] : failed;
    expect(out).toContain(`Exit codes:\n  0   ${done}\n  1   ${no}\n  2   ${third}\n  64  ${general[3]?.[1]}`);
  });

  test.each([
    ['0', ['config', 'check', file('held.yaml', 'workspaces: [{ id: w }]\n')]],
    ['1', ['config', 'check', file('unheld.yaml', 'serve: {}\n')]],
    ['2', ['effects', 'list', '--url', 'http://127.0.0.1:1', '--key-file', file('key', 'svc_acct_x')]],
    ['64', ['effects', 'list', '--ulr', 'http://127.0.0.1:1']],
    ['64', ['pause', '--reason', 'x']],
  ])('%s is what it says there', async (code, argv) => {
    expect(general.map(([each]) => each)).toContain(code);
    expect((await svc(...argv)).code).toBe(Number(code));
  });
});

// What the help and the messages name as the least and the most is taken, and what lies beyond is not.
test.each([
  [['effects', 'list'], '--limit', 1, 200],
  [['approvals', 'list'], '--limit', 1, 200],
  [['allowances', 'list'], '--limit', 1, 200],
  [['ledger'], '--limit', 1, 100_000],
  [['tail'], '--last', 1, 200],
  [['tail'], '--count', 1, 1_000_000],
  [['approvals', 'approve', 'apr_1'], '--allow-next', 1, 100],
  [['keys', 'rotate', 'key_aaaaaaaaaaaa'], '--overlap', 0, 2_592_000],
])('svc %j %s is from %i to %i', async (words, option, least, most) => {
  vi.stubEnv('SVC_API_KEY', '');
  const said = async (value: number): Promise<string> => (await svc(...words, `${option}=${value}`)).err;
  for (const value of [least, most]) expect(await said(value)).toContain('[missing_key]');
  for (const value of [least - 1, most + 1]) expect(await said(value)).toContain(`from ${least} to ${most}`);
});

test('files that do not hold are findings for programs too', async () => {
  const config = file('bad.yaml', 'serve: {}\n');
  const { code, out, err } = await svc('fsck', '--config', config, '--json');
  expect(JSON.parse(err)).toMatchObject({
    error: { code: 'invalid_files', findings: [{ code: 'unknown_field', at: { line: 1, column: 1 } }] },
  });
  expect([code, out]).toEqual([2, '']);
});

describe('talking to a gateway', () => {
  test.each([
    ['another file’s text as the key', 'root:x:0:0\nbin:x:1:1', 'http://127.0.0.1:1', 'invalid_key'],
    ['a key with letters that no key has', 'clé', 'http://127.0.0.1:1', 'invalid_key'],
    ['an address that is none', 'svc_acct_x', 'gateway.example', 'invalid_url'],
    ['an address of another kind', 'svc_acct_x', 'ftp://gateway.example', 'invalid_url'],
  ])('%s: is said as what it is, not as silence of the gateway', async (_name, key, url, code) => {
    vi.stubEnv('SVC_API_KEY', key);
    expect(await svc('effects', 'list', '--url', url)).toMatchObject({
      code: 2,
      err: expect.stringContaining(`[${code}]`),
    });
  });

  test('without a key nothing is sent', async () => {
    vi.stubEnv('SVC_API_KEY', '');
    const { code, err } = await svc('effects', 'list', '--url', 'http://127.0.0.1:1');
    expect(err).toBe('svc: No API key: set SVC_API_KEY, or name a file that holds it with --key-file [missing_key]');
    expect(code).toBe(2);
  });

  test('a key file that is not there', async () => {
    const { code, err } = await svc('effects', 'list', '--key-file', join(folder, 'absent'));
    expect(err).toMatch(/^svc: There is no file .*absent/);
    expect(code).toBe(2);
  });

  test('with --json what went wrong is JSON too', async () => {
    vi.stubEnv('SVC_API_KEY', '');
    const { err } = await svc('effects', 'list', '--json');
    expect(JSON.parse(err)).toMatchObject({ error: { code: 'missing_key' } });
  });
});

describe('config check', () => {
  const POLICY = file(
    'policy.yaml',
    'apiVersion: svc-gateway/v1\nkind: PolicySet\nname: p\nrules:\n  - { id: a, effect: allow, match: { kinds: [read] } }\n',
  );

  test('a configuration that holds: 0', async () => {
    const config = file('good.yaml', `workspaces: [{ id: w }]\npolicies: { paths: ["${POLICY}"] }\n`);
    const { code, out, err } = await svc('config', 'check', config);
    expect(err).toBe('');
    expect(out).toMatch(/policies hold: 1 rule$/m);
    expect(code).toBe(0);
  });

  test('findings of the configuration: 1, with line and column', async () => {
    const config = file('bad.yaml', 'serve: { port: 1 }\nworkspaces: [{ id: UPPER }]\n');
    const { code, err } = await svc('config', 'check', config);
    expect(err).toContain(`${config}:1:1`);
    expect(err).toContain(`${config}:2:`);
    expect(code).toBe(1);
  });

  test('files of the company brain are read too: how many entities they hold, or where a fault is, and no word of it', async () => {
    const brain = file('brain.yaml', '- { type: customer, id: c1, name: Acme }\n');
    const config = file('brain-config.yaml', `workspaces: [{ id: w }]\nbrain: { files: ["${brain}"] }\n`);
    expect(await svc('config', 'check', config)).toMatchObject({
      code: 0,
      out: expect.stringMatching(/^the brain's files hold: 1 entity$/m),
    });
    file('brain.yaml', '- { type: customer, id: c1, nmae: canary-4711 }\n');
    const { code, out, err } = await svc('config', 'check', config);
    expect([code, err]).toEqual([1, expect.stringContaining(`${brain}:1:35`)]);
    expect(`${out}${err}`).not.toContain('canary-4711');
    // Also where the policies have a fault already: all is told at once.
    const rules = file('brain-rules.yaml', 'kind: Nothing\n');
    const both = file('brain-policies.yaml', `${readFileSync(config, 'utf8')}policies: { paths: ["${rules}"] }\n`);
    const second = await svc('config', 'check', both);
    expect([second.code, second.err]).toEqual([1, expect.stringContaining(`${brain}:1:35`)]);
    expect(second.err).toContain(rules);
    const { findings } = JSON.parse((await svc('config', 'check', both, '--json')).out);
    expect(findings.map((one: { readonly at: { readonly file: string } }) => one.at.file)).toEqual(
      expect.arrayContaining([rules, brain]),
    );
    file('brain.yaml', '- { type: customer, id: c1, name: Acme }\n- { type: customer, id: c2, name: Other }\n');
    expect((await svc('config', 'check', config)).out).toMatch(/^the brain's files hold: 2 entities$/m);
  });

  test('findings of the policies: 1, with line and column', async () => {
    const policy = file(
      'broken-policy.yaml',
      'apiVersion: svc-gateway/v1\nkind: PolicySet\nname: p\nrules:\n  - { id: a, effect: alow }\n',
    );
    const { code, err } = await svc('config', 'check', file('c.yaml', `policies: { paths: ["${policy}"] }\n`));
    expect(err).toContain(`${policy}:5:`);
    expect(code).toBe(1);
  });

  test('warnings of the policies: 0, with their lines', async () => {
    const text =
      'apiVersion: svc-gateway/v1\nkind: PolicySet\nname: p\nrules:\n  - { id: a, effect: allow, match: { tools: [x.y] } }\n';
    const policy = file('doubtful-policy.yaml', text);
    const { code, out } = await svc('config', 'check', file('c.yaml', `policies: { paths: ["${policy}"] }\n`));
    expect(out).toContain(`${policy}:5:`);
    expect(out).toContain('    5 |   - { id: a, effect: allow, match: { tools: [x.y] } }');
    expect(code).toBe(0);
    expect(out).toMatch(/^policies hold: 1 rule \(1 warning\)$/m);
    const told = await svc('config', 'check', '--json', file('c.yaml', `policies: { paths: ["${policy}"] }\n`));
    expect([told.code, JSON.parse(told.out)]).toMatchObject([0, { findings: [{ at: { file: policy, line: 5 } }] }]);
    const strict = await svc('config', 'check', '--strict', file('c.yaml', `policies: { paths: ["${policy}"] }\n`));
    expect(strict.err).toContain(`${policy}:5:`);
    expect(strict.code).toBe(1);
  });

  test('--strict: a rule that never applies is 1, and what has no warning 0', async () => {
    const text =
      'apiVersion: svc-gateway/v1\nkind: PolicySet\nname: p\nrules:\n  - { id: a, effect: deny, match: { env: [prdo] } }\n';
    const config = file(
      'never.yaml',
      `workspaces: [{ id: w, env: prod }]\npolicies: { paths: ["${file('never-policy.yaml', text)}"] }\n`,
    );
    const { err, code } = await svc('config', 'check', config, '--strict');
    expect(err).toContain("no environment 'prdo'");
    expect(err).toContain("did you mean 'prod'?");
    expect(code).toBe(1);
    const good = file('good.yaml', `workspaces: [{ id: w }]\npolicies: { paths: ["${POLICY}"] }\n`);
    expect((await svc('config', 'check', '--strict', good)).code).toBe(0);
    // That there is nothing to check is no finding of it.
    expect((await svc('config', 'check', '--strict', `${good}.none`)).code).toBe(2);
  });

  test('a file that is not there: 2', async () => {
    expect((await svc('config', 'check', join(folder, 'absent.yaml'))).code).toBe(2);
  });

  test('--json has the findings', async () => {
    const { out, code } = await svc('config', 'check', file('bad.yaml', 'serve: {}\n'), '--json');
    expect(JSON.parse(out)).toMatchObject({ findings: [{ code: 'unknown_field', at: { line: 1, column: 1 } }] });
    expect(code).toBe(1);
  });
});

describe('verify', () => {
  const receipt = file('receipt.jws', 'e30.e30.e30');
  const bundle = file('bundle.jsonl', '{"type":"bundle","v":1}\n');
  const keys = file('keys.json', '{"keys":[]}');

  test.each<[string, readonly string[], string]>([
    ['a receipt without keys', [receipt], '--trust <file>'],
    ['a receipt that is to be explained', [receipt, '--trust', keys, '--explain'], 'this is a receipt'],
    ['a bundle that is to be opened', [bundle, '--trust', keys, '--disclosure', keys], 'opens one receipt'],
  ])('%s: 64, and nothing is tried', async (_, words, why) => {
    expect(await svc('verify', ...words)).toMatchObject({ code: 64, out: '', err: expect.stringContaining(why) });
  });

  test.each([
    ['no JSON', 'x'],
    ['no set of keys', '{"key":1}'],
    ['a list', '[]'],
  ])('with keys that are %s nothing can be told: 2', async (_, text) => {
    const odd = file('odd.json', text);
    for (const of of [receipt, bundle])
      expect(await svc('verify', of, '--trust', odd)).toMatchObject({
        code: 2,
        out: expect.stringContaining('not a JWKS'),
      });
  });

  test('a file that is not there, or a folder: 2', async () => {
    expect((await svc('verify', join(folder, 'absent'), '--trust', keys)).code).toBe(2);
    expect(await svc('verify', folder, '--trust', keys)).toMatchObject({
      code: 2,
      err: `svc: ${folder} is a folder; name a file in it.`,
    });
  });

  test('a bundle is read line by line, whatever pieces they come in, up to a bound', async () => {
    const lines = async (of: string): Promise<readonly number[]> => {
      const found: number[] = [];
      for await (const line of linesOf(of)) found.push(line.length);
      return found;
    };
    const long = file('long.jsonl', `a\n${'b'.repeat(2_500_000)}\n\nc`);
    expect(await lines(long)).toEqual([2, 2_500_001, 1, 1]);
    const most = 16 * 1024 ** 2;
    expect(await lines(file('most.jsonl', 'b'.repeat(most)))).toEqual([most]);
    await expect(lines(file('most.jsonl', 'b'.repeat(most + 1)))).rejects.toThrow('that no bundle has: it is too long');
  });
});

describe('policy digest', () => {
  const set = (name: string, more = '') =>
    file(
      `${name}.yaml`,
      `# layout makes no difference\napiVersion: svc-gateway/v1\nkind: PolicySet\nname: a\n${more}rules: []\n`,
    );

  test('is one version of what the files say, whatever their comments: 0', async () => {
    const [one, other] = [set('one'), set('other', '\n# another comment\n')];
    const { code, out } = await svc('policy', 'digest', one);
    expect([code, out]).toEqual([0, expect.stringMatching(/^[\w-]{43}$/)]);
    expect((await svc('policy', 'digest', other)).out).toBe(out);
    expect((await svc('policy', 'digest', set('edited', 'default: deny\n'))).out).not.toBe(out);
    expect(JSON.parse((await svc('policy', 'digest', one, '--json')).out)).toMatchObject({ version: out });
  });

  test('of what is no policy set there is none: 1', async () => {
    const { code, out, err } = await svc('policy', 'digest', file('no-set.yaml', 'workspaces: []\n'));
    expect([code, out, err]).toEqual([1, '', expect.stringContaining('not all of them are policy sets')]);
  });

  test('a file that is not there: 2', async () => {
    expect((await svc('policy', 'digest', join(folder, 'absent.yaml'))).code).toBe(2);
  });
});

test.each([
  [403, { code: 'wrong_key_kind', detail: 'no' }, 1],
  [503, { code: 'store_unavailable', detail: 'away' }, 1],
])('what a gateway refuses with %i is an answer, and no outage of the command', async (status, body, code) => {
  vi.stubEnv('SVC_API_KEY', 'svc_acct_7hQ2mZx0PbKdAAAABBBBCCCCDDDD');
  const gateway = createServer((_request, response) => {
    response.writeHead(status, { 'content-type': 'application/problem+json' }).end(JSON.stringify(body));
  }).listen(0, '127.0.0.1');
  await once(gateway, 'listening');
  const where = ['--workspace', 'w', '--url', `http://127.0.0.1:${(gateway.address() as AddressInfo).port}`];
  const into = join(folder, `refused-${status}.jsonl`);
  for (const command of [
    ['keys', 'list'],
    ['export', '--out', into],
  ]) {
    const options = command[0] === 'keys' ? where.slice(2) : where;
    expect(await svc(...command, ...options)).toMatchObject({ code, err: expect.stringContaining(`[${body.code}]`) });
  }
  gateway.close();
  expect(existsSync(into)).toBe(false);
});

test('effects resolve chooses from all pages that a gateway has, not from the first', async () => {
  vi.stubEnv('SVC_API_KEY', 'svc_acct_7hQ2mZx0PbKdAAAABBBBCCCCDDDD');
  const asked: (string | null)[] = [];
  const gateway = createServer((request, response) => {
    const cursor = new URL(request.url ?? '', 'http://gateway').searchParams.get('cursor');
    asked.push(cursor);
    const effect = {
      id: `eff_${asked.length}`,
      effect_id: `eff_${asked.length}`,
      state: 'unknown',
      tool: 't',
      target: 'x',
      created_at: '2026-01-01T00:00:00Z',
      // It was sent again later.
      evidence: { started_at: '2026-02-01T00:00:00Z' },
      quiesce_until: '2026-02-01T01:00:00Z',
    };
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ effects: [effect], next_cursor: ['2', '3', null][(asked.length - 1) % 3] }));
  }).listen(0, '127.0.0.1');
  await once(gateway, 'listening');
  const { port } = gateway.address() as AddressInfo;
  const where = `http://127.0.0.1:${port}`;
  const dryRun = ['effects', 'resolve', '--url', where, '--outcome', 'happened', '--dry-run'];
  expect(await svc(...dryRun, '--tool', 't')).toMatchObject({
    err: '',
    out: expect.stringContaining('Would settle as happened: 3.'),
  });
  expect(asked).toEqual([null, '2', '3']);
  // Before its last attempt it may have been settled by somebody who knew of that one.
  expect((await svc(...dryRun, '--before', '2026-01-15T00:00:00Z')).out).toContain('Would settle as happened: 0.');
  expect((await svc(...dryRun, '--before', '2026-02-15T00:00:00Z')).out).toContain('Would settle as happened: 3.');
  gateway.close();
  const badTime = await svc(...dryRun, '--before', '2026-02-15');
  expect(badTime).toMatchObject({ code: 64, err: expect.stringContaining('Not a time such as') });
});

test('an export that breaks off leaves no file: a part of comma-separated values looks whole', async () => {
  vi.stubEnv('SVC_API_KEY', 'svc_acct_7hQ2mZx0PbKdAAAABBBBCCCCDDDD');
  let breaks = true;
  const gateway = createServer((_request, response) => {
    response.setHeader('content-type', 'text/csv');
    response.write('effect_id\r\neff_1\r\n', () => (breaks ? response.destroy() : response.end()));
  }).listen(0, '127.0.0.1');
  await once(gateway, 'listening');
  const where = `http://127.0.0.1:${(gateway.address() as AddressInfo).port}`;
  const into = join(folder, 'exports');
  mkdirSync(into);
  const command = ['export', '--format', 'csv', '--out', join(into, 'june.csv'), '--workspace', 'w', '--url', where];
  expect(await svc(...command)).toMatchObject({ code: 2, err: expect.stringContaining('nothing was written to') });
  expect(readdirSync(into)).toEqual([]);
  breaks = false;
  expect((await svc(...command)).code).toBe(0);
  expect(readdirSync(into)).toEqual(['june.csv']);
  // What agents did is not for everybody on the machine.
  expect(statSync(join(into, 'june.csv')).mode & 0o777).toBe(0o600);
  expect(await svc(...command)).toMatchObject({ code: 2, err: expect.stringContaining('is there already') });
  gateway.close();
});

test('effects resolve ends where the gateway does: what nobody answered is no refusal', async () => {
  vi.stubEnv('SVC_API_KEY', 'svc_acct_7hQ2mZx0PbKdAAAABBBBCCCCDDDD');
  const settled: string[] = [];
  const gateway = createServer((request, response) => {
    const id = /eff_\d/.exec(request.url ?? '')?.[0] ?? '';
    if (request.method === 'POST') {
      settled.push(id);
      response.destroy();
      return;
    }
    const effect = { id, effect_id: id, state: 'unknown', tool: 't', target: 'x', created_at: '2026-01-01T00:00:00Z' };
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ effect: { ...effect, evidence: { started_at: null }, quiesce_until: null } }));
  }).listen(0, '127.0.0.1');
  await once(gateway, 'listening');
  const where = `http://127.0.0.1:${(gateway.address() as AddressInfo).port}`;
  const from = file('unknown', 'eff_1\neff_2\n');
  const said = await svc('effects', 'resolve', '--url', where, '--outcome', 'happened', '--from', from, '--yes');
  gateway.close();
  expect(said).toMatchObject({ code: 2, out: '', err: expect.stringMatching(/: fetch failed \(.+\) \[no_answer\]$/) });
  expect(new Set(settled)).toEqual(new Set(['eff_1']));
});

test('what a policy file holds is printed, and steers no terminal', async () => {
  vi.stubEnv('SVC_API_KEY', 'svc_acct_7hQ2mZx0PbKdAAAABBBBCCCCDDDD');
  const hiding = '# \u202eallow\u001b[2K\u001b[1A';
  const gateway = createServer((_request, response) => {
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ version: 'v', proven: true, files: [{ file: 'p.yaml', text: hiding, lists: [] }] }));
  }).listen(0, '127.0.0.1');
  await once(gateway, 'listening');
  const where = `http://127.0.0.1:${(gateway.address() as AddressInfo).port}`;
  const { out } = await svc('policy', 'show', 'v', '--url', where);
  gateway.close();
  expect(out).toContain('allow');
  for (const odd of ['\u001b', '\u202e']) expect(out).not.toContain(odd);
});
