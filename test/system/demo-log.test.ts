import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, expect, test, vi } from 'vitest';

const ROOT = join(import.meta.dirname, '..', '..');
/** A copy of the product: its demo keeps files and store in its own folder. */
const home = mkdtempSync(join(tmpdir(), 'svc-demo-'));
const KEYS = join(home, 'data', 'demo-keys.json');
afterAll(() => rmSync(home, { recursive: true }));

/**
 * Starts the demo, and ends it.
 * @param last the line after which it has said all
 * @param isAltered whether its configuration becomes faulty then
 * @returns what it said on standard output and error
 */
async function saidByDemo(last: RegExp, options: readonly string[], isAltered = true) {
  for (const name of ['config', 'policies']) cpSync(join(ROOT, name), join(home, name), { recursive: true });
  const demo = spawn(process.execPath, [join(home, 'bin', 'svc.mjs'), 'demo', '--port', '0', ...options], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let out = '';
  let err = '';
  demo.stderr.setEncoding('utf8').on('data', (text: string) => {
    err += text;
  });
  try {
    for await (const line of createInterface(demo.stdout)) {
      out += `${line}\n`;
      if (last.test(line)) break;
    }
    expect(err).toBe('');
    if (!isAltered) return { out, err };
    const url = /http:\/\/127\.0\.0\.1:\d+/.exec(out)?.[0] ?? '';
    appendFileSync(join(home, 'config', 'demo.yaml'), 'nonsense: 1\n');
    await vi.waitFor(async () => {
      expect(await (await fetch(`${url}/readyz`)).text()).toContain('The log says what is wrong');
    }, 30_000);
    await vi.waitFor(() => expect(err).toContain("'nonsense' is not a field"), 30_000);
    return { out, err };
  } finally {
    demo.kill('SIGTERM');
    await once(demo, 'exit');
  }
}

test('the demo says on standard error what /readyz says of the log, and nothing else; its keys are kept while all of them hold', async () => {
  // The launcher builds where that is needed.
  execFileSync(process.execPath, [join(ROOT, 'bin', 'svc.mjs'), '--version'], { stdio: 'ignore' });
  for (const name of ['dist', 'bin', 'package.json']) cpSync(join(ROOT, name), join(home, name), { recursive: true });
  if (!existsSync(join(home, 'node_modules'))) symlinkSync(join(ROOT, 'node_modules'), join(home, 'node_modules'));

  const asJson = await saidByDemo(/^\{/, ['--json']);
  const first: Record<string, string> = JSON.parse(asJson.out);
  expect(first['console_url']).toMatch(/^http:\/\/localhost:\d+\/console\/sign-in#link=/);
  const { url } = first;
  expect(first).toMatchObject({ event: 'ready', proxy_url: `${url}/payments`, workspace: 'demo' });
  // The line to try is a call of the agent that goes through.
  const [, at = '', body = ''] = /^curl -sS (\S+) .* -d '(.+)'$/.exec(first['curl'] ?? '') ?? [];
  expect([at, JSON.parse(body)]).toMatchObject([`${url}/v1/workspaces/demo/effects`, { tool: 'payments.refund' }]);
  expect(readFileSync(join(home, first['administrative_key_file'] ?? ''), 'utf8')).toMatch(/^svc_admin_/);
  const levels = asJson.err
    .trimEnd()
    .split('\n')
    .map((one) => JSON.parse(one).level);
  expect(new Set(levels)).toEqual(new Set(['error']));
  const keys = { agent: first['agent_key'], account: first['account_key'], approver: first['approver_key'] };
  expect(JSON.parse(readFileSync(KEYS, 'utf8'))).toEqual(keys);
  // They are secrets: nobody else on the machine reads them.
  expect((statSync(KEYS).mode & 0o777).toString(8)).toBe('600');

  const asText = await saidByDemo(/^What else can happen/, []);
  expect(asText.err).toMatch(/^svc: error: .*\n {2}\S*demo\.yaml:\d+:1 error 'nonsense' is not a field/);
  expect(keysIn(asText.out)).toEqual(keys);
  // The link signs in to the console by itself, and the line to try has the agent's key.
  expect(asText.out).toMatch(/^ {2}console +http:\/\/localhost:\d+\/console\/sign-in#link=\S/m);
  expect(asText.out).toContain(`-H 'X-API-Key: ${keys.agent}'`);
  expect(asText.out).toMatch(/^ {2}admin key +in the file data\/admin\.key$/m);
  expect(asText.out).toMatch(/^ {2}data +\.\/data \(delete it to begin anew\)$/m);
  // Each start has a call of its own to try.
  expect(idempotencyKeyIn(first['curl'])).toMatch(/^demo-/);
  expect(idempotencyKeyIn(asText.out)).not.toBe(idempotencyKeyIn(first['curl']));

  // One that was revoked, say, is of no use: all are made anew.
  writeFileSync(KEYS, JSON.stringify({ ...keys, approver: `${keys.approver?.slice(0, -4)}AAAA` }));
  const again: Record<string, string> = JSON.parse((await saidByDemo(/^\{/, ['--json'], false)).out);
  expect(again['approver_key']).toMatch(/^svc_/);
  expect([again['agent_key'], again['account_key'], again['approver_key']]).not.toContain(keys.agent);
  expect(readFileSync(KEYS, 'utf8')).toContain(again['approver_key']);
});

function keysIn(out: string): Readonly<Record<string, string | undefined>> {
  const keyOf = (name: string): string | undefined => new RegExp(`^ {2}${name} key +(\\S+)`, 'm').exec(out)?.[1];
  return { agent: keyOf('agent'), account: keyOf('account'), approver: keyOf('approver') };
}

function idempotencyKeyIn(text = ''): string {
  return /"idempotency_key":"([^"]+)"/.exec(text)?.[1] ?? '';
}
