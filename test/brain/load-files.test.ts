import { createSecretKey } from 'node:crypto';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { FileEntity } from '../../src/brain/entity-files.ts';
import { FileLoader } from '../../src/brain/load-files.ts';
import { packEntities, type PackedWorkspace } from '../../src/brain/packed-entities.ts';
import { type BrainWriter, createBrainWriter } from '../../src/brain/writer.ts';
import { InvalidFiles } from '../../src/diagnostics/render.ts';
import type { EffectStore } from '../../src/effects/store.ts';
import type { Entity } from '../../src/effects/model/entity.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { embeddedIn } from '../contract/embedded-store.ts';
import { RETENTION, type StoreUnderTest } from '../contract/fixture.ts';

const WS = 'demo';
const GATEWAY = { type: 'gateway', id: 'g1' } as const;
const MARIA = { type: 'user', id: 'maria' } as const;

let opened: StoreUnderTest;
let store: EffectStore;
let writer: BrainWriter;
let loader: FileLoader;
let limits = { entities: 1000, characters: 1_000_000 };
beforeEach(async () => {
  limits = { entities: 1000, characters: 1_000_000 };
  opened = await embeddedIn(openEmbeddedStore, 'never')({ retention: RETENTION, clock: () => 1_750_000_000_000 });
  store = opened.store;
  const key = createSecretKey(Buffer.alloc(32, 7));
  writer = createBrainWriter({ store, digestKey: () => key, limits: () => limits });
  loader = new FileLoader({ store, writer, turns: store.turns, actor: GATEWAY });
});
afterEach(() => opened.close());

const customer = (id: string, tier = 'gold'): Entity => ({
  type: 'customer',
  id,
  name: `Name ${id}`,
  attributes: { tier },
  links: [],
});

function said(entities: readonly Entity[], file = 'a.yaml', firstLine = 1): PackedWorkspace | null {
  const all = entities.map((entity, at): FileEntity => ({ entity, file, line: firstLine + at }));
  return packEntities({ byWorkspace: new Map([[WS, all]]), files: [] }).byWorkspace.get(WS) ?? null;
}

async function there(): Promise<string[]> {
  const { items } = await store.entityPage(WS, { type: null, limit: 1000, cursor: null });
  return items
    .map(
      ({ id, origin, version }) =>
        `${id} ${origin.kind === 'file' ? `${origin.file}:${origin.line}` : 'api'} v${version}`,
    )
    .toSorted();
}

it('writes what differs and nothing else: a line that moved is no change', async () => {
  expect(await loader.load(WS, said([customer('c1'), customer('c2')]), 'load')).toEqual({
    kind: 'loaded',
    put: 2,
    removed: 0,
  });
  expect(await there()).toEqual(['c1 a.yaml:1 v1', 'c2 a.yaml:2 v1']);
  expect(await loader.load(WS, said([customer('c1'), customer('c2')], 'a.yaml', 50), 'load')).toEqual({ kind: 'same' });
  expect(
    await loader.load(WS, said([customer('c0'), customer('c1'), customer('c2', 'tin')], 'a.yaml', 1), 'load'),
  ).toEqual({ kind: 'loaded', put: 2, removed: 0 });
  expect(await there()).toEqual(['c0 a.yaml:1 v2', 'c1 a.yaml:1 v1', 'c2 a.yaml:3 v2']);
});

it('removes what no file names any more, and nothing that came through the API; takes over what a file names', async () => {
  await writer.put(
    WS,
    [customer('api'), customer('both', 'tin')].map((entity) => ({ entity, origin: { kind: 'api', by: MARIA } })),
    MARIA,
  );
  const many = Array.from({ length: 250 }, (_, at) => customer(`c${at}`));
  await loader.load(WS, said([...many, customer('both')]), 'load');
  expect(await there()).toContain('both a.yaml:251 v4');
  expect(await loader.load(WS, said([customer('c7')], 'b.yaml'), 'load')).toEqual({
    kind: 'loaded',
    put: 1,
    removed: 250,
  });
  expect((await there()).map((line) => line.split(' v')[0])).toEqual(['api api', 'c7 b.yaml:1']);
  // The setting was taken out.
  expect(await loader.load(WS, null, 'load')).toEqual({ kind: 'loaded', put: 0, removed: 1 });
  expect(await there()).toEqual(['api api v1']);
  expect(await loader.load(WS, null, 'load')).toEqual({ kind: 'same' });
  expect(await loader.load('elsewhere', null, 'load')).toEqual({ kind: 'same' });
});

it('leaves newer files of another gateway in the store, unless it is told to', async () => {
  const [old, newer] = [said([customer('c1')]), said([customer('c1', 'tin')])];
  await loader.load(WS, old, 'leave');
  await loader.load(WS, newer, 'leave');
  expect(await loader.load(WS, old, 'leave')).toEqual({ kind: 'older' });
  // Nor those that were followed by files that were followed in turn.
  const newest = said([customer('c1', 'tin'), customer('c2')]);
  await loader.load(WS, newest, 'leave');
  for (const before of [old, newer]) expect(await loader.load(WS, before, 'leave')).toEqual({ kind: 'older' });
  expect((await store.entities(WS, [{ type: 'customer', id: 'c1' }]))[0]?.body).toContain('tin');
  expect(await loader.load(WS, old, 'load')).toMatchObject({ kind: 'loaded', put: 1, removed: 1 });
  expect(await loader.load(WS, old, 'leave')).toEqual({ kind: 'same' });
});

it('makes room before it puts, and says so where there is not enough', async () => {
  limits = { entities: 3, characters: 1_000_000 };
  await loader.load(WS, said([customer('c1'), customer('c2'), customer('c3')]), 'load');
  expect(await loader.load(WS, said([customer('c4'), customer('c5'), customer('c6')]), 'load')).toEqual({
    kind: 'loaded',
    put: 3,
    removed: 3,
  });
  await writer.put(WS, [], MARIA);
  const four = said(['c4', 'c5', 'c6', 'c7'].map((id) => customer(id)));
  const refused = await loader.load(WS, four, 'load').catch((error: unknown) => error);
  expect(refused).toBeInstanceOf(InvalidFiles);
  expect(String(refused)).toContain('raise limits.brain_entities');
  limits = { entities: 4, characters: 1_000_000 };
  expect(await loader.load(WS, four, 'load')).toMatchObject({ kind: 'loaded', put: 1 });
});

it('goes on where it was interrupted', async () => {
  let left = 1;
  const broken = new FileLoader({
    store,
    writer: {
      ...writer,
      put: async (...request) => {
        left -= 1;
        if (left < 0) throw new Error('the power is gone');
        return writer.put(...request);
      },
    },
    turns: store.turns,
    actor: GATEWAY,
  });
  const many = said(Array.from({ length: 250 }, (_, at) => customer(`c${at}`)));
  await expect(broken.load(WS, many, 'load')).rejects.toThrow('the power is gone');
  expect(await there()).toHaveLength(100);
  expect(await loader.load(WS, many, 'leave')).toEqual({ kind: 'loaded', put: 150, removed: 0 });
});
