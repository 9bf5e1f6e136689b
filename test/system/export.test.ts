import { createHash } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { createBundleDigest, sealLine } from '../../src/receipts/bundle.ts';
import { openSigner } from '../../src/receipts/sign.ts';
import { receiptView } from '../../src/receipts/view.ts';
import { parseKey } from '../../src/identity/key-format.ts';
import { makeKeyFile, readKeyFile } from '../../src/secrets/key-file.ts';
import { svc } from '../cli/run.ts';
import { makeApiKey, send } from './gateway.ts';
import { refund, startWorld, type World } from './world.ts';

let world: World;
let folder = '';
let auditor = '';
let trust = '';
const ids: Record<string, string> = {};

interface Line {
  readonly type: string;
  readonly kind?: string;
  readonly effect_id?: string;
  readonly jws?: string | null;
  readonly user?: string;
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'svc-export-'));
  world = await startWorld();
  auditor = await makeApiKey(world.gateway, 'olga', { profile: 'auditor', workspace: 'demo' });
  trust = join(folder, 'keys.json');
  await writeFile(trust, await (await fetch(`${world.gateway.url}/.well-known/jwks.json`)).text());
  ids['mine'] = (await world.run(refund({ reason: 'canary of params' }))).body.effect_id;
  ids['denied'] = (await world.run(refund({ currency: 'JPY' }))).body.effect_id;
  ids['others'] = (await world.run(refund(), world.keys.otherBot)).body.effect_id;
  const { body } = await world.run(refund({ amount: 50_001 }));
  await world.post(`/approvals/${body.approval.id}/approve`, {}, world.keys.approver);
  ids['approved'] = body.effect_id;
  await world.post('/pauses', { scope: { tool: 'nothing.here' }, reason: 'a test' });
});

/** A call that was rejected, made by the first test that asks for it. */
async function rejectedCall(): Promise<{ readonly effectId: string; readonly approvalId: string }> {
  if (ids['rejected'] === undefined) {
    const { body } = await world.run(refund({ amount: 50_002 }), world.keys.otherBot);
    [ids['rejected'], ids['rejection']] = [body.effect_id, body.approval.id];
    await world.post(`/approvals/${ids['rejection']}/reject`, { comment: 'too much' }, world.keys.approver);
  }
  return { effectId: ids['rejected'] ?? '', approvalId: ids['rejection'] ?? '' };
}
afterAll(async () => {
  await world.close();
  await rm(folder, { recursive: true });
});

const ask = (query: string, key = auditor): Promise<Response> =>
  fetch(`${world.gateway.url}/v1/workspaces/demo/export?${query}`, { headers: { 'x-api-key': key } });

const linesOf = (text: string): readonly Line[] =>
  text
    .trimEnd()
    .split('\n')
    .map((line): Line => JSON.parse(line));

async function exported(query: string): Promise<readonly Line[]> {
  return linesOf(await (await ask(query)).text());
}

async function command(...words: readonly string[]) {
  vi.stubEnv('SVC_API_KEY', auditor);
  const said = await svc(...words);
  vi.unstubAllEnvs();
  return said;
}

let files = 0;
async function bundle(...words: readonly string[]): Promise<string> {
  files += 1;
  const out = join(folder, `bundle-${files}.jsonl`);
  const said = await command('export', '--url', world.gateway.url, '--workspace', 'demo', '--out', out, ...words);
  expect(said.code, said.err).toBe(0);
  return out;
}

it('JSON lines have all events, each receipt after its event, and the effects, without params and answers', async () => {
  const answer = await ask('');
  expect(answer.headers.get('content-type')).toContain('application/jsonl');
  const text = await answer.text();
  expect(text).not.toContain('canary of params');
  const lines = linesOf(text);
  const effects = lines.filter(({ type }) => type === 'effect').map((line) => line.effect_id ?? '');
  expect(effects.toSorted()).toEqual(Object.values(ids).toSorted());
  const receipts = lines.filter(({ type }) => type === 'receipt').map((line) => line.effect_id);
  expect(receipts).toEqual([ids['mine'], ids['others'], ids['approved']]);
  for (const [index, line] of lines.entries())
    if (line.type === 'receipt')
      expect(lines[index - 1]).toMatchObject({ kind: 'receipt.issued', effect_id: line.effect_id });
  expect(lines.filter(({ type }) => type === 'event').map(({ kind }) => kind)).toContain('pause.set');
});

it('is of one agent, tool, user or rule, and of a time', async () => {
  const of = async (query: string) =>
    (await exported(`what=effects&${query}`)).map(({ effect_id: id = '' }) => id).toSorted();
  expect(await of('agent_id=other-bot')).toEqual([ids['others']]);
  expect(await of('rule=world/refund-large')).toEqual([ids['approved']]);
  expect(await of('tool=payments.refund&user=olga')).toEqual(Object.values(ids).toSorted());
  const kinds = (await exported('agent_id=other-bot&what=events')).map(({ kind }) => kind);
  expect(kinds).toContain('execution.succeeded');
  expect(kinds).not.toContain('pause.set');
  expect(await (await ask('until=2020-01-01T00:00:00Z')).text()).toBe('');
  expect(await (await ask('since=2090-01-01T00:00:00Z')).text()).toBe('');
});

it('comma-separated values have a line of names, and nothing that a spreadsheet runs', async () => {
  const formula = { ...refund(), idempotency_key: '=1+2,"x"' };
  ids['formula'] = (await world.run(formula)).body.effect_id;
  const answer = await ask('format=csv');
  expect(answer.headers.get('content-type')).toContain('text/csv');
  const [head, ...rows] = (await answer.text()).trimEnd().split('\r\n');
  expect(head?.split(',').slice(0, 4)).toEqual(['effect_id', 'created_at', 'agent_id', 'user']);
  expect(rows).toHaveLength(5);
  expect(rows[0]).toContain(`,"'=1+2,""x""",`);
  expect(head).toMatch(/,decision,approver,approver_decided_at,settled_at,amount,unit$/);
  const rowOf = (id = ''): string => rows.find((row) => row.startsWith(id)) ?? '';
  const { effect } = (await world.get(`/effects/${ids['approved']}`)).body;
  const [granted] = (await world.get(`/ledger?kind=approval.granted&effect_id=${ids['approved']}`)).body.events;
  const [amount = 0] = effect.holds.map((hold: { readonly amount: number }) => hold.amount);
  const took = `${(amount / 100).toFixed(2)},EUR`;
  expect(rowOf(ids['approved'])).toContain(`,committed,maria,${granted.at},${effect.settled_at},${took}`);
  expect(rowOf(ids['approved'])).toMatch(new RegExp(`${took}$`));
  expect(rowOf(ids['denied'])).toMatch(/,denied_policy,,,[-0-9T:.]+Z,,$/);
  const events = await (await ask('format=csv&what=events')).text();
  expect(events.split('\r\n')[0]).toBe('seq,at,kind,effect_id,actor_type,actor_id,data');
  expect(await (await ask('format=csv&what=receipts')).text()).toContain(ids['mine']);
});

it('a bundle is verified offline, with the keys of the gateway', async () => {
  for (const words of [[], ['--agent', 'bot'], ['--until', '2020-01-01T00:00:00Z']]) {
    const said = await svc('verify', await bundle(...words), '--trust', trust);
    expect(said.out).toMatch(/\nVALID$/);
    expect(said.code).toBe(0);
  }
  const whole = await bundle();
  expect((await svc('verify', whole)).code).toBe(2);
  expect((await svc('verify', whole, '--disclosure', trust)).code).toBe(64);
  const text = await readFile(whole, 'utf8');
  const altered = join(folder, 'altered.jsonl');
  await writeFile(altered, text.replace('"user":"olga"', '"user":"omar"'));
  const said = await svc('verify', altered, '--trust', trust, '--json');
  expect([said.code, JSON.parse(said.out).verdict]).toEqual([1, 'INVALID']);
  await writeFile(altered, text.slice(0, text.lastIndexOf('{"type":"seal"')));
  expect((await svc('verify', altered, '--trust', trust)).code).toBe(1);
});

it('a bundle has the texts of the policies that receipts name, for whom may read policies; a digest says which they are', async () => {
  const history = await send(world.gateway.url, auditor, 'GET', '/v1/beta/policies/activations');
  const version: string = history.body.in_force;
  const file = await bundle();
  const policies = linesOf(await readFile(file, 'utf8')).filter(({ type }) => type === 'policy');
  const [{ version: _version, ...inForce }] = history.body.activations;
  expect(policies).toMatchObject([
    { version, files: [{ text: expect.stringContaining('refund-large') }], in_force: [inForce] },
  ]);
  const said = await svc('verify', file, '--trust', trust);
  expect(said.out).toMatch(/\nok +policies .*: 1\.\n/);
  expect((await svc('policy', 'digest', world.gateway.policyFolder)).out).toBe(version);
  const nowhere = await svc('policy', 'digest', join(folder, 'none.yaml'));
  expect([nowhere.code, nowhere.err]).toEqual([2, expect.stringContaining('none.yaml')]);
  // An account key reads no history of policies.
  const ofAccount = await (await ask('format=bundle', world.keys.account)).text();
  expect(linesOf(ofAccount).filter(({ type }) => type === 'policy')).toEqual([]);
  // What was in force before the time is not asked for.
  expect(linesOf(await (await ask('format=bundle&until=2020-01-01T00:00:00Z')).text()).map(({ type }) => type)).toEqual(
    ['bundle', 'seal'],
  );
});

describe('events that were edited, and sealed again by whoever has the signing key, contradict receipts', () => {
  let lines: readonly string[] = [];
  let resealed: (of: readonly string[]) => Promise<string>;

  beforeAll(async () => {
    lines = (await readFile(await bundle(), 'utf8')).trimEnd().split('\n').slice(0, -1);
    const keys = { path: join(world.gateway.dataFolder, 'keys'), read: readKeyFile, make: makeKeyFile };
    const { iss } = receiptView(linesOf(lines.join('\n')).find(({ jws }) => typeof jws === 'string')?.jws ?? '');
    const store = { installId: '', health: () => ({ durability: 'fsync' }) };
    const signer = await openSigner({ keys, issuer: typeof iss === 'string' ? iss : null, version: '0', store });
    resealed = async (of) => {
      const text = of.map((line) => `${line}\n`).join('');
      const count = (type: string): number => of.filter((line) => line.startsWith(`{"type":"${type}"`)).length;
      const counts = {
        events: count('event'),
        effects: count('effect'),
        receipts: count('receipt'),
        policies: count('policy'),
      };
      const digest = createBundleDigest();
      digest.update(Buffer.from(text));
      const file = join(folder, `resealed-${(files += 1)}.jsonl`);
      await writeFile(
        file,
        text + sealLine(signer.sealExport({ workspace: 'demo', at: 0, ...digest.end(), ...counts })),
      );
      return file;
    };
  });

  const edited = (kind: string, edit: (line: string) => string): readonly string[] => {
    const at = lines.findLastIndex((line) => line.includes(`"kind":"${kind}"`) && line.includes(ids['approved'] ?? ''));
    return lines.with(at, edit(lines[at] ?? ''));
  };

  it('as they were, they do not', async () => {
    expect((await svc('verify', await resealed(lines), '--trust', trust)).code).toBe(0);
  });

  it.each<[string, string, RegExp, string]>([
    ['approvers of approval.granted', 'approval.granted', /maria/g, 'mallory'],
    ['approvers of approval.granted', 'approval.granted', /"user":"maria"/, '"user":"mallory"'],
    ['approvers of approval.granted', 'approval.granted', /approval.granted/, 'approval.viewed'],
    ['approvers of approval.granted', 'effect.admitted', /"approval_id":"apr_/, '"approval_id":"apr_0'],
    ['agent of effect.admitted', 'effect.admitted', /"id":"bot"/, '"id":"other-bot"'],
    ['tool of effect.admitted', 'effect.admitted', /payments.refund/, 'payments.charge'],
    ['policy_version of effect.admitted', 'effect.admitted', /"policy_version":"../, '"policy_version":"__'],
    ['rules of effect.admitted', 'effect.admitted', /refund-large/, 'refund-small'],
    ['at of execution.started', 'execution.started', /"at":"\d{4}/, '"at":"2001'],
    ['status of execution.succeeded', 'execution.succeeded', /"status":201/, '"status":202'],
    ['amount of budget.posted', 'budget.posted', /50001/, '50'],
    ['amount of budget.posted', 'budget.posted', /budget.posted/, 'budget.viewed'],
  ])('%s (%s, %s)', async (what, kind, from, to) => {
    const said = await svc('verify', await resealed(edited(kind, (line) => line.replace(from, to))), '--trust', trust);
    expect(said.out).toContain(`${ids['approved']}`);
    expect(said.out).toContain(what);
    expect(said.code).toBe(1);
  });
});

it('who approved an effect, with which key, and under which policies is shown with it', async () => {
  const shown = await command(
    'effects',
    'show',
    ids['approved'] ?? '',
    '--url',
    world.gateway.url,
    '--workspace',
    'demo',
  );
  const { body } = await send(world.gateway.url, auditor, 'GET', `/v1/workspaces/demo/effects/${ids['approved']}`);
  expect(shown.out).toContain(`policies  ${body.effect.policy.version}`);
  expect(shown.out).toMatch(new RegExp(`\napproved  by maria with key_${parseKey(world.keys.approver)?.handle}, 20`));
});

it('a rejection names key and person, and commits to its words', async () => {
  const { effectId, approvalId } = await rejectedCall();
  const { body: read } = await send(world.gateway.url, auditor, 'GET', `/v1/workspaces/demo/approvals/${approvalId}`);
  const [{ comment, comment_salt: salt }] = read.votes;
  const rejected = linesOf(await (await ask('what=events')).text()).find(({ kind }) => kind === 'approval.rejected');
  const committed = createHash('sha256').update(Buffer.from(salt, 'base64url')).update(JSON.stringify(comment));
  expect([comment, rejected]).toMatchObject([
    'too much',
    {
      data: {
        user: 'maria',
        key_id: `key_${parseKey(world.keys.approver)?.handle}`,
        comment: `sc1:${committed.digest('base64url')}`,
      },
    },
  ]);
  const shown = await command('effects', 'show', effectId, '--url', world.gateway.url, '--workspace', 'demo');
  expect(shown.out).toContain('\nrejected  by maria');
  const file = await bundle();
  const said = await svc('verify', file, '--trust', trust);
  expect(said.out).toContain('\nok   words      The words of rejections are those that their events commit to: 1.\n');
  const altered = join(folder, 'words.jsonl');
  await writeFile(altered, (await readFile(file, 'utf8')).replace('"too much"', '"too late"'));
  expect((await svc('verify', altered, '--trust', trust)).out).toContain('other words than those that the rejection');
});

it('who decided what, with which key and words, and who put which policies in force is told of a bundle, offline', async () => {
  const { effectId } = await rejectedCall();
  const file = await bundle();
  const said = await svc('verify', file, '--trust', trust, '--explain');
  const key = `key_${parseKey(world.keys.approver)?.handle}`;
  const at = '20\\d\\d-\\S+Z';
  expect(said.out).toMatch(
    new RegExp(
      `\nvotes\n.*\n${at} +maria +approved +${key} +apr_\\w+ +${ids['approved']} +payments.refund \\S+ +committed`,
    ),
  );
  expect(said.out).toMatch(new RegExp(`maria +rejected +${key} +apr_\\w+ +${effectId} .*rejected +too much\n`));
  expect(said.out).toMatch(new RegExp(`\npolicies\n.*\n${at} +[\\w-]{43} +files +gateway `));
  expect(said.code).toBe(0);
  const { story } = JSON.parse((await svc('verify', file, '--trust', trust, '--explain', '--json')).out);
  expect(story).toMatchObject({
    votes: [
      { who: 'maria', verdict: 'approved', effect: ids['approved'] },
      { who: 'maria', words: 'too much' },
    ],
    policies: [{ how: 'files' }],
  });
  const altered = join(folder, 'told.jsonl');
  await writeFile(altered, (await readFile(file, 'utf8')).replaceAll('maria', 'mario'));
  expect((await svc('verify', altered, '--trust', trust, '--explain')).out).not.toContain('votes');
});

it('who lists the ledger into a file reads all that an event says, and is told where events of users are', async () => {
  const { effectId } = await rejectedCall();
  const of = ['--url', world.gateway.url, '--workspace', 'demo'];
  const listed = await command('ledger', '--kind', 'approval', '--effect', effectId, ...of);
  expect(listed.out).toMatch(/approval\.rejected .*"comment":"sc1:[\w-]{43}"\}$/m);
  expect((await command('ledger', '--kind', 'user', ...of)).out).toContain('--installation');
});

it('one receipt of a bundle is verified by itself, and opened by what was disclosed of it', async () => {
  const line = linesOf(await readFile(await bundle(), 'utf8')).find(({ jws }) => jws !== undefined);
  const receipt = join(folder, 'one.jws');
  await writeFile(receipt, line?.jws ?? '');
  expect((await svc('verify', receipt, '--trust', trust)).code).toBe(0);
  const missing = await svc('verify', receipt);
  expect([missing.code, missing.err]).toEqual([64, expect.stringContaining('--trust')]);
});

it('says which keys sign, and since when, in the form that svc verify trusts', async () => {
  const keys = await command('receipts', 'keys', '--url', world.gateway.url, '--json');
  expect(keys.out).toBe(JSON.stringify(JSON.parse(await readFile(trust, 'utf8')), null, 2));
  const [{ kid, iat }] = JSON.parse(keys.out).keys;
  const shown = await command('receipts', 'keys', '--url', world.gateway.url);
  expect(shown.out).toContain(kid);
  expect(shown.out).toContain(new Date(iat * 1000).toISOString());
  expect(Math.abs(iat * 1000 - Date.now())).toBeLessThan(3_600_000);
});

it('keeps a file that is there, and says so, before the gateway is asked for anything', async () => {
  const said = await command('export', '--url', 'http://127.0.0.1:1', '--workspace', 'demo', '--out', trust);
  expect([said.code, said.err]).toEqual([2, expect.stringContaining('is there already, and was left as it is')]);
});

it('is for no agent, and at most two at once', async () => {
  expect(await (await ask('', world.keys.bot)).json()).toMatchObject({ code: 'wrong_key_kind' });
  expect(
    (await send(world.gateway.url, auditor, 'GET', '/v1/workspaces/demo/export?format=bundle&what=events')).status,
  ).toBe(400);
  expect((await send(world.gateway.url, auditor, 'GET', '/v1/workspaces/demo/export?format=pdf')).status).toBe(400);
});

it('a bundle in which an unknown outcome was settled by a person is as valid', async () => {
  await world.upstream.mode({ mode: 'drop_after', times: 1 });
  const { body } = await world.run(refund({ amount: 7 }));
  expect(body.decision).toBe('unknown_effect');
  const settled = await world.post(`/effects/${body.effect_id}/resolve`, { outcome: 'happened', comment: 'seen' });
  expect(settled.status).toBe(200);
  const checked = await command('verify', await bundle(), '--trust', trust);
  expect([checked.code, checked.out]).toEqual([0, expect.not.stringContaining('INVALID')]);
});

it('texts of policies that are larger than 1 MB are in a bundle, packed, and are held against their version', async () => {
  const list = Array.from({ length: 30_000 }, (_, at) => createHash('sha256').update(`${at}`).digest('hex')).join('\n');
  await writeFile(join(world.gateway.policyFolder, 'large.txt'), list);
  await writeFile(
    join(world.gateway.policyFolder, 'large.yaml'),
    `
apiVersion: svc-gateway/v1
kind: PolicySet
name: large
owner: team-test
lists: { many: { file: large.txt } }
rules:
  - { id: many, effect: deny, match: { tools: [payments.refund] }, when: { params.reason: { in: $many } } }
`,
  );
  const version = (await svc('policy', 'digest', world.gateway.policyFolder)).out;
  await vi.waitFor(
    async () => {
      const { body } = await send(world.gateway.url, auditor, 'GET', '/v1/beta/policies/activations');
      expect(body.in_force).toBe(version);
    },
    { timeout: 60_000, interval: 200 },
  );
  const file = await bundle();
  const parts = linesOf(await readFile(file, 'utf8')).filter((line) => 'version' in line && line.version === version);
  expect(parts.length).toBeGreaterThan(2);
  expect(parts[0]).toMatchObject({ part: 1, parts: parts.length, in_force: [{ how: 'files' }] });
  const said = await svc('verify', file, '--trust', trust);
  expect(said.out).toMatch(/\nok +policies .*: 2\.\n/);
  expect(said.code).toBe(0);
});
