import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { BrainNotReady } from '../../src/brain/port.ts';
import { type Rig, type Seen, startRig } from './rig.ts';

const WS = '/v1/workspaces/demo';
const ENTITIES = `${WS}/brain/entities`;

let rig: Rig;
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.close());

const put = (entities: unknown, key = rig.keys.admin): Promise<Seen> =>
  rig.send('PUT', ENTITIES, { key, body: { entities } });
const search = (query: string, key?: string): Promise<Seen> =>
  rig.send('GET', `${WS}/brain/search?${query}`, key === undefined ? {} : { key });
const faults = (answer: Seen) => answer.json['errors'] as unknown as { path: string; message: string }[];

const ACME = {
  type: 'customer',
  id: 'cus_1',
  name: 'Acme Corporation',
  attributes: { tier: 'gold', note: 'pays late in winter' },
};
const ORDER = {
  type: 'order',
  id: 'ord/7 ü',
  name: 'Order 7',
  attributes: { total: 1250 },
  links: [{ rel: 'placed_by', type: 'customer', id: 'cus_1' }],
};

describe('entities', () => {
  it('are put, read, listed, found with what they are linked with, and deleted', async () => {
    const made = await put([ACME, ORDER]);
    expect([made.status, made.json]).toEqual([200, { version: 1, created: 2, changed: 0, unchanged: 0 }]);
    expect((await put([ACME, ORDER])).json).toEqual({ version: 1, created: 0, changed: 0, unchanged: 2 });
    const one = await rig.send('GET', `${ENTITIES}/order/${encodeURIComponent(ORDER.id)}`);
    expect(one.json).toMatchObject({ ...ORDER, version: 1, source: { kind: 'api', by: { type: 'user', id: 'root' } } });
    const list = await rig.send('GET', `${ENTITIES}?type=customer`);
    expect(list.json).toMatchObject({ entities: [{ ...ACME, links: [] }], next_cursor: null });

    // An id is what stands there, also where that looks like an escape.
    await put([{ ...ORDER, id: 'of%2Fold', name: 'Old' }]);
    expect((await rig.send('GET', `${ENTITIES}/order/of%252Fold`)).json).toMatchObject({ id: 'of%2Fold', name: 'Old' });
    expect((await rig.send('DELETE', `${ENTITIES}/order/of%252Fold`, { key: rig.keys.admin })).status).toBe(200);

    const found = await search('query=acmee%20corporation&entity_type=customer&join_to=order', rig.keys.readonly);
    expect(found.status).toBe(200);
    expect(found.json).toMatchObject({
      entities: [{ id: 'cus_1', attributes: ACME.attributes }],
      joined: [
        {
          of: { type: 'customer', id: 'cus_1' },
          entities: [{ id: ORDER.id, rel: 'placed_by', direction: 'incoming', attributes: { total: 1250 } }],
        },
      ],
      truncated: false,
    });
    expect(found.json['sources']).toHaveLength(2);
    expect((await search('query=acme&entity_type=order')).json['entities']).toEqual([]);

    const path = `${ENTITIES}/order/${encodeURIComponent(ORDER.id)}`;
    expect((await rig.send('DELETE', path, { key: rig.keys.admin })).json).toEqual({ type: 'order', id: ORDER.id });
    expect((await rig.send('DELETE', path, { key: rig.keys.admin })).status).toBe(404);
    expect((await rig.send('GET', path)).status).toBe(404);
    expect((await search('query=acme&entity_type=customer&join_to=order')).json['joined']).toEqual([]);
  });

  it('are found, and found no more, by the very next search', async () => {
    await search('query=any&entity_type=order', rig.keys.readonly);
    const found = async () => (await search('query=parcel&entity_type=order')).json['entities'];
    for (let round = 0; round < 20; round += 1) {
      expect((await put([{ ...ORDER, id: 'parcel', name: 'Parcel' }])).status).toBe(200);
      expect(await found()).toHaveLength(1);
      expect((await rig.send('DELETE', `${ENTITIES}/order/parcel`, { key: rig.keys.admin })).status).toBe(200);
      expect(await found()).toEqual([]);
    }
  });

  it('that a file names belong to the file: they are neither put nor deleted, and it is said where they stand', async () => {
    const actor = { type: 'gateway', id: 'files' } as const;
    const origin = { kind: 'file', file: 'crm/brain.yaml', line: 3 } as const;
    const entity = { ...ACME, id: 'cus_file', links: [] };
    await rig.ports.brainWriter.put('demo', [{ entity, origin }], actor);
    const over = await put([
      { ...ACME, id: 'cus_new' },
      { ...ACME, id: 'cus_file', name: 'Another' },
    ]);
    expect(over.json).toMatchObject({ status: 409, code: 'conflict', did_it_happen: 'no' });
    expect(over.json['detail']).toContain('/entities/1 is in the file crm/brain.yaml');
    expect((await rig.send('GET', `${ENTITIES}/customer/cus_new`)).status).toBe(404);
    const path = `${ENTITIES}/customer/cus_file`;
    const gone = await rig.send('DELETE', path, { key: rig.keys.admin });
    expect(gone.json).toMatchObject({ status: 409, code: 'conflict', did_it_happen: 'no' });
    expect(gone.json['detail']).toContain('crm/brain.yaml');
    expect((await rig.send('GET', path)).json).toMatchObject({ name: ACME.name, source: origin });
  });

  it.each([
    ['entities', 'brain_entities'],
    ['characters', 'brain_size'],
  ] as const)(
    'beyond the most %s of a workspace are refused, with the limit that could be raised',
    async (of, limit) => {
      vi.spyOn(rig.ports.brainWriter, 'put').mockResolvedValueOnce({ kind: 'too_much', of, limit: 7 });
      const { json } = await put([ACME]);
      expect(json).toMatchObject({ status: 409, code: 'conflict', did_it_happen: 'no' });
      expect(json['detail']).toContain('more than 7');
      expect(json['detail']).toContain(`raise limits.${limit}.`);
    },
  );

  it('say everything that is wrong with them, and where; then nothing is put', async () => {
    const answer = await put([
      { type: 'team', id: 'sound', name: 'Sound' },
      { type: '1team', id: 7, nam: 'x', attributes: [], links: {} },
      { type: 'team', id: 'a\u202eb', name: ' ', links: [{ rel: 'of', type: 'team' }, 5] },
      { type: 'team', id: 'sound', name: 'Twice' },
      { type: 'team', id: 'deep', name: 'Deep', attributes: nested(9) },
      { type: 'team', id: 'large', name: 'Large', attributes: { text: 'x'.repeat(17_000) } },
      { type: 'team', id: 'l', name: 'L', links: twice({ rel: 'of', type: 'team', id: 'l' }) },
      'team',
    ]);
    expect(answer.status).toBe(400);
    expect(faults(answer).map(({ path }) => path)).toEqual([
      '/entities/1/nam',
      '/entities/1/type',
      '/entities/1/id',
      '/entities/1/name',
      '/entities/1/attributes',
      '/entities/1/links',
      '/entities/2/id',
      '/entities/2/name',
      '/entities/2/links/0/id',
      '/entities/2/links/1',
      '/entities/3',
      '/entities/4/attributes/a/a/a/a/a/a/a/a',
      '/entities/5',
      '/entities/6/links/1',
      '/entities/7',
    ]);
    expect(faults(answer)[0]?.message).toContain("'name'");
    expect(faults(answer)[2]?.message).toContain('quotes');
    expect((await rig.send('GET', `${ENTITIES}/team/sound`)).status).toBe(404);
  });

  it('say no more of what is wrong than anybody would mend', async () => {
    const answer = await put(
      Array.from({ length: 100 }, () => ({ type: 1, id: 2, name: 3, attributes: [], links: {} })),
    );
    expect(answer.status).toBe(400);
    expect(faults(answer).length).toBeGreaterThanOrEqual(100);
    expect(faults(answer).length).toBeLessThan(110);
  });

  it.each([
    ['no entities', '{"entities":[]}'],
    [
      'a hundred and one',
      JSON.stringify({ entities: Array.from({ length: 101 }, (_, id) => ({ ...ACME, id: `${id}` })) }),
    ],
    ['a prototype', '{"entities":[{"type":"a","id":"b","name":"c","attributes":{"__proto__":{"x":1}}}]}'],
    ['a name twice', '{"entities":[{"type":"a","id":"b","name":"c","attributes":{"x":1,"x":2}}]}'],
  ])('are refused: %s', async (_what, raw) => {
    expect((await rig.send('PUT', ENTITIES, { key: rig.keys.admin, raw })).status).toBe(400);
  });

  it('are not told whose attributes every object inherits', async () => {
    await put([{ type: 'team', id: '__proto__', name: 'constructor', attributes: { constructor: 'yes' } }]);
    const one = await rig.send('GET', `${ENTITIES}/team/__proto__`);
    expect(one.json).toMatchObject({ id: '__proto__', attributes: { constructor: 'yes' } });
    expect((await rig.send('GET', `${ENTITIES}/team/constructor`)).status).toBe(404);
    expect((await search('query=__proto__&entity_type=constructor')).json['entities']).toEqual([]);
  });
});

describe('who may', () => {
  it('a key of one agent changes nothing that policies read, whatever its scopes', async () => {
    for (const key of [rig.keys.agent, rig.keys.runner, rig.keys.account, rig.keys.readonly])
      expect((await put([ACME], key)).status).toBe(403);
  });

  it('with governance:write, a key of no agent puts and deletes, and one of an agent does neither', async () => {
    const path = `${ENTITIES}/team/governed`;
    const team = { type: 'team', id: 'governed', name: 'Governed' };
    const refused = await put([team], rig.keys.governingAgent);
    expect([refused.status, refused.json['code']]).toEqual([403, 'wrong_key_kind']);
    expect((await rig.send('GET', path)).status).toBe(404);
    expect((await put([team], rig.keys.governor)).json).toMatchObject({ created: 1 });
    const kept = await rig.send('DELETE', path, { key: rig.keys.governingAgent });
    expect([kept.status, kept.json['code']]).toEqual([403, 'wrong_key_kind']);
    expect((await rig.send('GET', path)).status).toBe(200);
    expect((await rig.send('DELETE', path, { key: rig.keys.governor })).status).toBe(200);
  });

  it('a key that is limited to other tools does not see business data', async () => {
    const limited = await search('query=acme&entity_type=customer', rig.keys.restricted);
    expect([limited.status, limited.json['code']]).toEqual([403, 'insufficient_scope']);
    expect((await rig.send('GET', ENTITIES, { key: rig.keys.restricted })).status).toBe(403);
    expect((await rig.send('GET', `${ENTITIES}/customer/cus_1`, { key: rig.keys.restricted })).status).toBe(403);
    expect((await search('query=acme&entity_type=customer', rig.keys.stranger)).status).toBe(403);
    expect((await search('query=acme&entity_type=customer', rig.keys.agent)).status).toBe(200);
  });
});

describe('searches', () => {
  it.each([
    ['query=a', 'no type'],
    ['query=%20.%20&entity_type=customer', 'no word'],
    [`query=${'a'.repeat(257)}&entity_type=customer`, 'too long'],
    ['query=a&entity_type=no%20type', 'no such type'],
    ['query=a&entity_type=customer&limit=0', 'no hits'],
    ['query=a&entity_type=customer&limit=51', 'too many'],
    ['query=a&entity_type=customer&join_to=*', 'no such type to join'],
  ])('are refused: %s (%s)', async (query) => {
    expect((await search(query)).status).toBe(400);
  });
});

describe('a search that comes before the entities are read', () => {
  it('is told so, and when to ask again', async () => {
    vi.spyOn(rig.ports.brain, 'query').mockRejectedValueOnce(new BrainNotReady('They are still being read.'));
    const { status, json, headers } = await search('query=acme&entity_type=customer');
    expect([status, json['code'], headers['retry-after']]).toEqual([503, 'not_ready', '2']);
  });
});

describe('at rest and in logs', () => {
  it('nothing of what an entity says can be read', async () => {
    await put([{ ...ACME, id: 'cus_secret', name: 'Zanzibar Bank', attributes: { iban: 'DE8937040044' } }]);
    await rig.send('GET', `${ENTITIES}/customer/cus_secret`);
    await search('query=zanzibar&entity_type=customer');
    for (const word of ['Zanzibar', 'DE8937040044', 'iban']) expect(rig.logs()).not.toContain(word);
    const folder = rig.storeFolder();
    const stored = readdirSync(folder, { recursive: true, withFileTypes: true })
      .filter((file) => file.isFile())
      .map((file) => readFileSync(join(file.parentPath, file.name), 'latin1'))
      .join('\n');
    expect(stored).toContain('cus_secret');
    for (const word of ['Zanzibar', 'DE8937040044', 'iban']) expect(stored).not.toContain(word);
  });
});

function nested(levels: number): unknown {
  return levels === 0 ? 1 : { a: nested(levels - 1) };
}

function twice<T>(of: T): T[] {
  return [of, of];
}
