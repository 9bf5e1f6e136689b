import { afterAll, beforeAll, expect, it } from 'vitest';
import type { ApiPorts } from '../../src/api/ports.ts';
import type { Tool } from '../../src/effects/model/tool.ts';
import { createCatalog } from '../../src/upstreams/catalog.ts';
import { makeTool } from '../upstreams/tool.ts';
import { type Rig, startRig } from './rig.ts';

const PINS = '/v1/workspaces/demo/pins';

/** What the gateway sees of its MCP servers. */
const seen: Record<'unapproved' | 'failures', string[]> = { unapproved: [], failures: [] };
const pins: ApiPorts['pins'] = {
  stateOf: () => null,
  seen: () => [{ upstream: 'crm', failure: null, unapproved: seen.unapproved }],
  async compare(upstream) {
    if (upstream !== 'crm') return null;
    const [failure] = seen.failures;
    if (failure !== undefined) return failure;
    const tools = [...seen.unapproved, null].map((name) => ({ kind: 'unusable', name, why: 'too long' }) as const);
    return { upstream, isUnchanged: false, about: [{ kind: 'added', path: '/instructions', after: 'Obey.' }], tools };
  },
};

function pinnedTool(name: string): Tool {
  const call = { kind: 'mcp', name, pinned: { name }, isError: 'unknown', onClientClose: 'finish' } as const;
  return { ...makeTool(), name: `crm.${name}`, upstream: 'crm', call, target: null };
}

let rig: Rig;
/** A key of a person, for one tool. */
let limited: string;
beforeAll(async () => {
  const catalog = createCatalog(['look', 'wipe'].map(pinnedTool));
  rig = await startRig({}, { pins, catalog: () => catalog });
  const body = { name: 'one', kind: 'account', workspace: 'demo', allowed_tools: ['crm.look'] };
  const { json } = await rig.send('POST', '/v1/beta/users/maria/keys', { key: rig.keys.admin, body });
  limited = String(json['key']);
});
afterAll(() => rig.close());

it('names that a server makes up are counted, and two hundred of them are shown', async () => {
  seen.unapproved = Array.from({ length: 300 }, (_, n) => `t${n}`);
  const { servers } = (await rig.send('GET', PINS)).json;
  const shown = seen.unapproved.slice(0, 200);
  expect(servers).toEqual([{ upstream: 'crm', failure: null, unapproved: shown, unapproved_count: 300 }]);
});

it('a key for some tools sees these, and what is said of the server', async () => {
  seen.unapproved = ['look', 'wipe'];
  const { servers, pins: pinned } = (await rig.send('GET', PINS, { key: limited })).json;
  expect(pinned).toMatchObject([{ tool: 'crm.look' }]);
  expect(servers).toEqual([{ upstream: 'crm', failure: null, unapproved: ['look'], unapproved_count: 1 }]);
  const names = async (key: string): Promise<unknown> => {
    const { json } = await rig.send('GET', `${PINS}/crm`, { key });
    expect(json).toMatchObject({ upstream: 'crm', unchanged: false, about: [{ path: '/instructions' }] });
    return (json['tools'] as unknown as { readonly name: string | null }[]).map(({ name }) => name);
  };
  expect(await names(limited)).toEqual(['look']);
  expect(await names(rig.keys.account)).toEqual(['look', 'wipe', null]);
});

it('no key of one agent sees what nobody has approved, whatever its scopes; others need the right to look after the gateway', async () => {
  for (const path of [PINS, `${PINS}/crm`]) {
    const statuses = async (...names: readonly (keyof Rig['keys'])[]) =>
      Promise.all(names.map(async (name) => (await rig.send('GET', path, { key: rig.keys[name] })).status));
    expect(await statuses('account', 'admin', 'readonly'), path).toEqual([200, 200, 200]);
    // The key of a runner has that right, and is bound to an agent.
    expect(await statuses('agent', 'runner', 'governor', 'stranger'), path).toEqual([403, 403, 403, 403]);
  }
});

it('a server that cannot be read is asked for again in two seconds; one that is not there is none', async () => {
  seen.failures = ['it does not answer'];
  const away = await rig.send('GET', `${PINS}/crm`);
  expect([away.status, away.json['code'], away.headers['retry-after']]).toEqual([503, 'not_ready', '2']);
  expect(away.json['detail']).toContain('it does not answer');
  expect(await rig.send('GET', `${PINS}/other`)).toMatchObject({ status: 404, json: { code: 'not_found' } });
});
