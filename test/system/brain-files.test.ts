import { readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { type Answer, send, startGateway, type TestGateway } from './gateway.ts';

const CONFIG = `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
workspaces: [ { id: demo }, { id: elsewhere } ]
policies: { paths: [policies/empty.yaml] }
brain: { files: [ { path: policies/brain, workspace: demo } ] }
`;
const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: world
rules: [ { id: none, effect: deny, match: { tools: ["none.*"] } } ]
`;
const customer = (id: string, tier: string): string =>
  `- { type: customer, id: ${id}, name: Customer ${id}, attributes: { tier: ${tier} } }\n`;
const ORDERS = '{"type":"order","id":"7","name":"Seven","links":[{"rel":"by","type":"customer","id":"c1"}]}\n';

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startGateway({
    config: CONFIG,
    policies: {
      'empty.yaml': POLICY,
      'brain/crm.yaml': customer('c1', 'gold') + customer('c2', 'tin'),
      'brain/orders.jsonl': ORDERS,
    },
  });
});
afterAll(() => gateway.dispose());

const call = (method: string, path: string, body?: object, of = gateway): Promise<Answer> =>
  send(of.url, of.administrativeKey, method, `/v1/workspaces/demo/brain${path}`, body);
const tierOf = async (id: string, of = gateway): Promise<unknown> => {
  const { status, body } = await call('GET', `/entities/customer/${id}`, undefined, of);
  return status === 200 ? body.attributes.tier : status;
};
/** Puts a file in its place whole, as editors do. */
async function put(name: string, text: string): Promise<void> {
  const beside = join(gateway.folder, 'written');
  await writeFile(beside, text);
  await rename(beside, join(gateway.policyFolder, 'brain', name));
}
// A change that the file system does not tell of is found at the next look, 10 s later at most.
const soon = (check: () => Promise<void>): Promise<void> => vi.waitFor(check, { timeout: 60_000, interval: 50 });

it('files are in the brain when the gateway is ready; the API finds them and changes nothing of them', async () => {
  const { body } = await call('GET', '/search?query=custmer&entity_type=customer&join_to=order');
  expect(body.entities.map(({ id }: { id: string }) => id)).toEqual(['c1', 'c2']);
  expect(body.joined).toMatchObject([{ of: { id: 'c1' }, entities: [{ id: '7', direction: 'incoming' }] }]);
  expect(body.sources).toContainEqual({
    type: 'order',
    id: '7',
    kind: 'file',
    file: 'policies/brain/orders.jsonl',
    line: 1,
  });
  const entity = { type: 'customer', id: 'c1', name: 'Mine', attributes: { tier: 'diamond' } };
  const refused = await call('PUT', '/entities', { entities: [entity] });
  expect([refused.status, refused.body.code]).toEqual([409, 'conflict']);
  expect(refused.body.detail).toContain('policies/brain/crm.yaml');
  expect(await tierOf('c1')).toBe('gold');
  expect((await call('PUT', '/entities', { entities: [{ ...entity, id: 'mine' }] })).status).toBe(200);
});

it('a change is read in while it runs; a broken file changes nothing, says where, and quotes no entity', async () => {
  await put('crm.yaml', customer('c1', 'silver') + customer('c3', 'gold'));
  await soon(async () =>
    expect([await tierOf('c1'), await tierOf('c2'), await tierOf('c3')]).toEqual(['silver', 404, 'gold']),
  );
  expect(await tierOf('mine')).toBe('diamond');

  await put('orders.jsonl', `${ORDERS}{"type":"order","id":"8","nam":"canary-4711"}\n`);
  await soon(async () => {
    const ready = await fetch(`${gateway.url}/readyz`);
    expect(await ready.json()).toMatchObject({ ready: true, notes: [{ part: 'configuration' }] });
  });
  await soon(async () => expect(gateway.log()).toContain('policies/brain/orders.jsonl:2:1'));
  expect(gateway.log()).not.toContain('canary-4711');
  // What is broken keeps the other files from being read in too: they are one state.
  await put('crm.yaml', customer('c1', 'lead'));
  await soon(async () => expect(gateway.log().split('orders.jsonl:2:1').length).toBeGreaterThan(2));
  expect(await tierOf('c1')).toBe('silver');
  await put('orders.jsonl', ORDERS);
  await soon(async () => expect([await tierOf('c1'), await tierOf('c3')]).toEqual(['lead', 404]));
});

it('a start with the same files writes nothing; one with a broken file does not start; one without files removes what was theirs', async () => {
  const version = async (of: TestGateway): Promise<unknown> =>
    (await call('GET', '/entities/customer/c1', undefined, of)).body.version;
  const before = await version(gateway);
  await gateway.stop();
  const second = await gateway.restart();
  expect(await version(second)).toBe(before);
  expect(second.log()).not.toContain('were read in');
  await second.stop();

  await put('crm.yaml', '- { type: customer, id: 7, name: Seven }\n');
  await expect(second.restart()).rejects.toThrow(/policies\/brain\/crm\.yaml:1:25 .*write it in quotes/);

  const config = await readFile(gateway.configFile, 'utf8');
  await writeFile(gateway.configFile, config.replace(/^brain:.*$/m, ''));
  const third = await second.restart();
  expect([await tierOf('c1', third), await tierOf('mine', third)]).toEqual([404, 'diamond']);
});
