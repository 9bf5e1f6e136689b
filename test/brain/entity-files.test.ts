import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { readEntityFiles } from '../../src/brain/entity-files.ts';
import { NO_ENTITIES, packEntities, unpackPiece } from '../../src/brain/packed-entities.ts';
import { createReading } from '../../src/diagnostics/file-reading.ts';
import { InvalidFiles } from '../../src/diagnostics/render.ts';

const LIMITS = { entities: 1000, characters: 1_000_000 };

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-entities-'));
  mkdirSync(join(folder, 'more'));
});
afterEach(() => rmSync(folder, { recursive: true }));

function write(files: Readonly<Record<string, string>>): void {
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
}

const read = (limits = LIMITS) => readEntityFiles([{ path: folder, workspace: 'demo' }], limits);

/** Faults as `file:line:column code message | hint`, the folder left out. */
async function faults(files: Readonly<Record<string, string>>, limits = LIMITS): Promise<string[]> {
  write(files);
  const error = await read(limits).then(
    () => null,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof InvalidFiles)) throw new Error('the files were accepted');
  return error.findings.map(({ at, code, message, hint }) =>
    `${at === null ? '-' : `${at.file}:${at.line}:${at.column}`} ${code} ${message} | ${hint ?? ''}`.replaceAll(
      `${folder}/`,
      '',
    ),
  );
}

it('reads lists and `entities:` in YAML, JSON Lines, and folders of both, with the line of each', async () => {
  write({
    'a.yaml': '- { type: customer, id: c1, name: Acme }\n- type: customer\n  id: c2\n  name: Beta\n',
    'b.yml': 'entities:\n  - { type: customer, id: c3, name: Gamma, attributes: { tier: gold } }\n',
    'more/c.jsonl': '{"type":"order","id":"1","name":"One"}\r\n\n{"type":"order","id":"2","name":"Two"}',
    'more/.d.jsonl': 'not read',
    'README.md': 'not read',
  });
  const { byWorkspace, files } = await read();
  const all = byWorkspace.get('demo') ?? [];
  expect(all.map(({ entity, file, line }) => [entity.id, file.slice(folder.length + 1), line])).toEqual([
    ['c1', 'a.yaml', 1],
    ['c2', 'a.yaml', 2],
    ['c3', 'b.yml', 2],
    ['1', 'more/c.jsonl', 1],
    ['2', 'more/c.jsonl', 3],
  ]);
  expect(all[2]?.entity.attributes).toEqual({ tier: 'gold' });
  expect(files).toEqual([folder, ...['a.yaml', 'b.yml', 'more/c.jsonl'].map((name) => join(folder, name))]);
});

it.each([
  [256 * 1024 * 1024, 1],
  [256 * 1024 * 1024 + 1, 0],
])('of a file of %i bytes %i entities are read', async (bytes, count) => {
  write({ 'a.jsonl': '{"type":"order","id":"1","name":"One"}\n' });
  const reading = { ...createReading(), size: async () => bytes };
  const { byWorkspace } = await readEntityFiles([{ path: folder, workspace: 'demo' }], LIMITS, reading).catch(() => ({
    byWorkspace: new Map<string, readonly unknown[]>(),
  }));
  expect(byWorkspace.get('demo')?.length ?? 0).toBe(count);
});

it('what a path has belongs to its workspace alone', async () => {
  write({
    'a.yaml': '- { type: customer, id: c1, name: Acme }\n',
    'more/c.jsonl': '{"type":"order","id":"1","name":"One"}\n',
  });
  const paths = [
    { path: join(folder, 'a.yaml'), workspace: 'demo' },
    { path: join(folder, 'more'), workspace: 'other' },
  ];
  const { byWorkspace } = await readEntityFiles(paths, LIMITS);
  const ids = [...byWorkspace].map(([workspace, found]) => [workspace, found.map(({ entity }) => entity.id)]);
  expect(ids).toEqual([
    ['demo', ['c1']],
    ['other', ['1']],
  ]);
});

describe('what cannot be used is told with its place and what to do', () => {
  it('in YAML', async () => {
    expect(
      await faults({
        'a.yaml': '- type: customer\n  id: 7\n  name: Acme\n- { type: customer, id: c2, nmae: Beta }\n',
        'b.yaml': 'customers: []\n',
        'c.yaml': '- { type: customer\n',
      }),
    ).toEqual([
      'a.yaml:2:7 bad_entity id must be a text of 1 to 256 characters without control characters; write it in quotes | ',
      'a.yaml:4:3 bad_entity name is missing; it must be a text of 1 to 512 characters without control characters | ',
      "a.yaml:4:35 bad_entity nmae is not known here; did you mean 'name'? | ",
      'b.yaml:1:1 no_entities The file has to be a list of entities | - { type: customer, id: cus_1, name: "Acme" }',
      expect.stringMatching(/^c\.yaml:\d:\d+ yaml_syntax /),
    ]);
  });

  it('in JSON Lines', async () => {
    expect(
      await faults({
        'a.jsonl': '{"type":"order","id":"1","name":"One"}\n{"type":"order"\n[]\n{"type":"order","type":"x"}\n',
        'b.ndjson': '{"type":"order","id":"1","name":"Again"}\n',
        'c.jsonl': '\n',
      }),
    ).toEqual([
      expect.stringMatching(/^a\.jsonl:2:\d+ bad_line The line is not one JSON object: .+ \| write each entity/),
      'a.jsonl:3:1 bad_entity the entity must be an object with type, id and name | ',
      expect.stringMatching(/^a\.jsonl:4:\d+ bad_line /),
      'b.ndjson:1:1 duplicate_entity order 1 stands in a.jsonl:1 already | one type and id is one entity: remove one of them',
      expect.stringMatching(/^c\.jsonl:1:1 empty_file /),
    ]);
  });

  it('and the first hundred of many, none of which quotes what an entity says', async () => {
    const lines = Array.from({ length: 5000 }, (_, at) => `{"type":"order","id":"${at}","nam":"secret-${at}"}`);
    const told = await faults({ 'a.jsonl': lines.join('\n') });
    expect(told).toHaveLength(101);
    expect(told.at(-1)).toContain('There are more faults');
    expect(told.join('\n')).not.toContain('secret');
  });

  it('where a file is no text, or is none of entities although it was named', async () => {
    writeFileSync(join(folder, 'a.yaml'), Buffer.from([0x2d, 0x20, 0xff, 0xfe]));
    expect(await faults({})).toEqual([expect.stringMatching(/^- unreadable_file Cannot read a\.yaml \| .*UTF-8/)]);
    write({ 'people.csv': 'type,id,name' });
    await expect(readEntityFiles([{ path: join(folder, 'people.csv'), workspace: 'demo' }], LIMITS)).rejects.toThrow(
      /people\.csv is not a file of entities/,
    );
  });

  it('where there are too many, or nothing is at the path', async () => {
    const two = '{"type":"order","id":"1","name":"One"}\n{"type":"order","id":"2","name":"Two"}\n';
    expect(await faults({ 'a.jsonl': two }, { entities: 1, characters: 1000 })).toEqual([
      '- too_many_entities The files have 2 entities for the workspace demo; it may hold 1 | leave some out, or raise limits.brain_entities',
    ]);
    expect(await faults({}, { entities: 5, characters: 40 })).toEqual([
      expect.stringContaining('characters of entities for the workspace demo; it may hold 40'),
    ]);
    const [fault = ''] = await faults({}, { entities: 5, characters: 40 });
    const characters = Number(/\d+/.exec(fault)?.[0]);
    await expect(read({ entities: 2, characters })).resolves.toMatchObject({ byWorkspace: { size: 1 } });
    expect(await faults({}, { entities: 2, characters: characters - 1 })).toHaveLength(1);
    await expect(readEntityFiles([{ path: join(folder, 'none'), workspace: 'demo' }], LIMITS)).rejects.toThrow(
      /There is no file of entities or folder/,
    );
    await expect(
      readEntityFiles(
        [
          { path: join(folder, 'a.jsonl'), workspace: 'demo' },
          { path: folder, workspace: 'other' },
        ],
        {
          entities: 2,
          characters: 1000,
        },
      ),
    ).resolves.toMatchObject({ byWorkspace: { size: 2 } });
  });
});

it('packs what is read into pieces that are put at once, with a digest of what is said and where', async () => {
  const lines = (tier: string): string =>
    Array.from(
      { length: 250 },
      (_, at) => `{"type":"order","id":"${at}","name":"Order","attributes":{"tier":"${tier}"}}`,
    ).join('\n');
  write({ 'a.jsonl': lines('gold') });
  const one = packEntities(await read());
  const pieces = one.byWorkspace.get('demo')?.pieces ?? [];
  expect(pieces.map((piece) => unpackPiece(piece).length)).toEqual([100, 100, 50]);
  expect(packEntities(await read()).digest).toBe(one.digest);
  write({ 'a.jsonl': `\n${lines('gold')}` });
  expect(packEntities(await read()).digest).toBe(one.digest);
  write({ 'a.jsonl': lines('tin') });
  expect(packEntities(await read()).digest).not.toBe(one.digest);
  const inTin = packEntities(await read()).digest;
  write({ 'b.jsonl': lines('tin') });
  rmSync(join(folder, 'a.jsonl'));
  expect(packEntities(await read()).digest).not.toBe(inTin);
  expect(NO_ENTITIES.byWorkspace.size).toBe(0);
});

it('a piece has 64 Ki characters, unless one entity alone has more', async () => {
  const line = (id: string, characters: number): string =>
    JSON.stringify({ type: 'order', id, name: 'Order', attributes: { note: 'x'.repeat(characters) } });
  write({ 'a.jsonl': Array.from({ length: 9 }, (_, at) => line(`${at}`, 16_000)).join('\n') });
  const pieces = packEntities(await read()).byWorkspace.get('demo')?.pieces ?? [];
  expect(pieces.map((piece) => unpackPiece(piece).length)).toEqual([4, 4, 1]);
});
