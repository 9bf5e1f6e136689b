import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { send } from '../system/gateway.ts';
import { begin, type Running, svc } from './run.ts';

/** `svc policy suggest` against a real gateway. */
const folder = mkdtempSync(join(tmpdir(), 'svc-cli-suggest-'));
const config = join(folder, 'gateway.yaml');
const policy = join(folder, 'policy.yaml');
let gateway: Running;
let url: string;

async function makeKey(user: string, ...more: readonly string[]): Promise<string> {
  const { out } = await svc(
    'keys',
    'create',
    '--config',
    config,
    '--workspace',
    'w',
    '--user',
    user,
    '--json',
    ...more,
  );
  const { key }: { readonly key: string } = JSON.parse(out);
  return key;
}

beforeAll(async () => {
  writeFileSync(
    policy,
    `apiVersion: svc-gateway/v1
kind: PolicySet
name: p
rules:
  - id: notes
    effect: require_approval
    match: { tools: [up.note], workspaces: [w] }
    approval: { approvers: { users: [maria] } }
`,
  );
  writeFileSync(
    config,
    [
      `store: { path: ${JSON.stringify(join(folder, 'data'))} }`,
      'server: { port: 0 }',
      'users: [ { id: maria }, { id: omar } ]',
      'workspaces: [ { id: w, agents: [ { id: bot } ] } ]',
      `policies: { paths: [${JSON.stringify(policy)}] }`,
      // Nobody listens there: what was approved is sent, and fails.
      'upstreams: [ { id: up, url: "http://127.0.0.1:9" } ]',
      'tools:',
      '  - name: up.note',
      '    upstream: up',
      '    kind: write',
      '    request: { method: POST, path: /notes, body: [text] }',
      '    params_schema: { type: object, required: [text], properties: { text: { type: string } }, additionalProperties: false }',
      '    target: notes',
    ].join('\n'),
  );
  gateway = begin('start', '--config', config, '--port', '0');
  const ready: { readonly url: string } = JSON.parse(await gateway.line(/"ready"/));
  url = ready.url;
  vi.stubEnv('SVC_API_KEY', await makeKey('maria', '--kind', 'account'));
});

afterAll(async () => {
  gateway?.stop();
  await gateway?.ended;
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

test('prints what to put in the place of which rule, and why; nothing where nothing is suggested', async () => {
  const suggest = (...more: readonly string[]) => svc('policy', 'suggest', '--url', url, '--workspace', 'w', ...more);
  expect(await suggest()).toMatchObject({ code: 0, out: 'Nothing is suggested.' });
  const bot = await makeKey('omar', '--kind', 'agent', '--agent', 'bot');
  const ids: string[] = [];
  for (const n of [1, 2, 3, 4, 5]) {
    const call = {
      action_type: 'mcp.tool_call',
      tool: 'up.note',
      params: { text: '\\x1b[2J: &a' },
      idempotency_key: `k${n}`,
    };
    const { body } = await send(url, bot, 'POST', '/v1/workspaces/w/effects', call);
    ids.unshift(body.approval.id);
    expect((await svc('approvals', 'approve', body.approval.id, '--url', url, '--workspace', 'w')).code).toBe(0);
  }
  const { code, out, err } = await suggest();
  expect([code, err]).toEqual([0, '']);
  expect(out).toContain('# up.note: approved 5 times by maria, ');
  expect(out).toContain(`# Requests: ${ids.join(' ')}\n# In ${policy}, in the place of the rule p/notes (line 5):\n`);
  expect(out.slice(out.indexOf('  - id: notes'))).toMatchInlineSnapshot(`
    "  - id: notes
        effect: require_approval
        match: { tools: [ up.note ], workspaces: [ w ] }
        approval: { approvers: { users: [ maria ] } }
        unless:
          tool.name: { eq: "up.note" }
          agent.id:
            in: [ "bot" ]
          params.text: { eq: "\\\\x1b[2J: &a" }
      - id: notes-approved
        description: What people approved each time that notes asked
        effect: allow
        match:
          tools: [ up.note ]
          workspaces: [ w ]
          agents:
            id: [ bot ]
        when:
          params.text: { eq: "\\\\x1b[2J: &a" }
    "
  `);
  const { suggestions } = JSON.parse((await suggest('--json')).out);
  expect(suggestions).toMatchObject([
    { rule: 'p/notes', example: { agent_id: 'bot', params: { text: '\\x1b[2J: &a' } } },
  ]);
  expect(out).toContain(suggestions[0].text);
});
