import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  renameSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { createReading, digestOf } from '../../src/diagnostics/file-reading.ts';
import { FileReader, FilesNotRead } from '../../src/gateway/file-reader.ts';
import { answerRead } from '../../src/gateway/read-files.ts';
import { FilesRefused, type InForce, readFiles, type Reread, rereadFiles } from '../../src/gateway/in-force.ts';
import { evaluatePolicies } from '../../src/policy/evaluate.ts';
import { httpCall } from '../config/http-call.ts';
import { call } from '../policy/fixtures.ts';

let folder = '';
let configFile = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-reread-'));
  configFile = join(folder, 'gateway.yaml');
  mkdirSync(join(folder, 'policies'));
  writeFileSync(configFile, CONFIG());
  writeFileSync(join(folder, 'policies', 'a.yaml'), set('a', 'one'));
  writeFileSync(join(folder, 'policies', 'b.yaml'), set('b', 'two'));
});
afterEach(() => rmSync(folder, { recursive: true }));

const CONFIG = (title = 'Note'): string => `
upstreams: [{ id: up, url: "http://127.0.0.1:9" }]
policies: { paths: ["${join(folder, 'policies')}"] }
tools:
  - { name: up.note, title: ${title}, upstream: up, kind: write, action_type: note.add, request: { method: POST, path: /v1/notes, body: [text] }, params_schema: { type: object, properties: { text: { type: string } }, additionalProperties: false } }
`;
const set = (name: string, rule: string): string =>
  `apiVersion: svc-gateway/v1\nkind: PolicySet\nname: ${name}\nrules:\n  - { id: ${rule}, effect: allow, match: { tools: [up.note] } }\n`;

function again(before: InForce, entry: URL | null = null, longestMs = 60_000): Promise<Reread> {
  return rereadFiles(new FileReader({ entry, longestMs }), configFile, {}, before);
}

describe('files that are read again', () => {
  test('say the same: nothing is compiled, whatever their times are', async () => {
    const before = await readFiles(configFile, {});
    utimesSync(configFile, new Date(0), new Date(0));
    writeFileSync(join(folder, 'policies', 'a.yaml'), set('a', 'one'));
    const { configuration, policies, ...rest } = before;
    const known = {
      ...rest,
      configurationDigest: configuration.digest,
      filesVersion: policies.version,
      entitiesDigest: rest.entities.digest,
    };
    const answer = await answerRead({ configFile, environment: {}, known, shared: null });
    expect(answer.kind).toBe('unchanged');
    const found = await again(before);
    expect(found.kind).toBe('same');
    expect(found.inForce.policies).toBe(before.policies);
    expect(found.inForce.stamp).not.toBe(before.stamp);
    expect(found.inForce.content).toBe(before.content);
  });

  test('differ in what decides nothing: what is in force stays, and the content is known', async () => {
    const before = await readFiles(configFile, {});
    writeFileSync(join(folder, 'policies', 'a.yaml'), `# a comment\n${set('a', 'one')}`);
    const found = await again(before);
    expect(found.kind).toBe('same');
    expect(found.inForce.policies).toBe(before.policies);
    expect(found.inForce.content).not.toBe(before.content);
  });

  test('hold other entities under the same rules: those are known, and the rules stay', async () => {
    const entities = join(folder, 'entities.jsonl');
    const entity = (id: string): string => JSON.stringify({ type: 'order', id, name: id });
    writeFileSync(entities, `${entity('one')}\n`);
    writeFileSync(configFile, `${CONFIG()}brain: { files: ["${entities}"] }\nworkspaces: [{ id: demo }]\n`);
    const before = await readFiles(configFile, {});
    writeFileSync(entities, `${entity('two')}\n`);
    const { kind, inForce } = await again(before);
    expect([kind, inForce.policies === before.policies]).toEqual(['same', true]);
    expect(inForce.entities.packed?.digest).toBe((await readFiles(configFile, {})).entities.digest);
    expect(inForce.entities.digest).not.toBe(before.entities.digest);
  });

  test('a policy, a file more, the configuration itself', async () => {
    const before = await readFiles(configFile, {});
    writeFileSync(join(folder, 'policies', 'a.yaml'), set('a', 'other'));
    const changed = await again(before);
    expect(changed.kind).toBe('new');
    expect(changed.inForce.policies.rules.map(({ id }) => id)).toEqual(['a/other', 'b/two']);
    // The configuration is the same object: nobody has to take it on anew.
    expect(changed.inForce.configuration).toBe(before.configuration);

    writeFileSync(join(folder, 'policies', 'c.yaml'), set('c', 'three'));
    const more = await again(changed.inForce);
    expect(more.inForce.policies.rules.map(({ id }) => id)).toEqual(['a/other', 'b/two', 'c/three']);
    expect(more.inForce.files).toContain(join(folder, 'policies', 'c.yaml'));
    // Files that stay as they are were not checked again: what is kept of them is the same memory.
    const kept = [...changed.inForce.checked.values()];
    expect(kept.length).toBe(2);
    for (const memory of kept) expect([...more.inForce.checked.values()]).toContain(memory);

    writeFileSync(configFile, CONFIG('Notes'));
    const configured = await again(more.inForce);
    expect(configured.kind).toBe('new');
    expect(configured.inForce.catalog.tool('up.note')?.title).toBe('Notes');
    expect(configured.inForce.policies.version).toBe(more.inForce.policies.version);
    expect(Object.isFrozen(httpCall(configured.inForce.configuration.tools[0]).request)).toBe(true);
    expect(configured.inForce.configuration).toEqual((await readFiles(configFile, {})).configuration);
  });

  test('a pool and a tool of the configuration are those of now for rules that stay as they are', async () => {
    const configured = (units: number, tools: string): string =>
      `${CONFIG()}${tools}pools: [{ id: slots, units: ${units} }]\n`;
    const rule = set('a', 'one').replace(
      '[up.note] }',
      "['up.*'] }, obligations: [{ reserve: { pool: slots, units: 1 } }]",
    );
    writeFileSync(join(folder, 'policies', 'a.yaml'), rule);
    writeFileSync(configFile, configured(4, ''));
    const before = await readFiles(configFile, {});
    const more =
      '  - { name: up.more, title: More, upstream: up, kind: write, request: { method: POST, path: /v1/more } }\n';
    writeFileSync(configFile, configured(2, more));
    const { policies } = (await again(before)).inForce;
    expect(policies.version).toBe(before.policies.version);
    const verdict = evaluatePolicies(policies, call({ tool: { ...call().tool, name: 'up.more' } }));
    expect(verdict).toMatchObject({ kind: 'permit', obligations: [{ kind: 'reserve', pool: 'slots', capacity: 2 }] });
  });

  test('a broken one is refused with its place, and a set of the same name too', async () => {
    const before = await readFiles(configFile, {});
    writeFileSync(join(folder, 'policies', 'a.yaml'), set('a', 'one').replace('effect', 'efect'));
    await expect(again(before)).rejects.toThrow(FilesRefused);
    await expect(again(before)).rejects.toThrow(/a\.yaml:5:\d+.*efect/s);
    writeFileSync(join(folder, 'policies', 'a.yaml'), set('b', 'one'));
    await expect(again(before)).rejects.toThrow(/another set 'b'/);
  });

  test.each([
    ['dies', 60_000, 'ended with code 3'],
    ['throws', 60_000, 'failed: no memory left'],
    ['hangs', 50, 'not read and checked within 0.05 s'],
  ])('by a thread that %s: said in words', async (name, longestMs, message) => {
    const before = await readFiles(configFile, {});
    const entry = new URL(`./threads/${name}.mjs`, import.meta.url);
    const refused = again(before, entry, longestMs);
    await expect(refused).rejects.toThrow(FilesNotRead);
    await expect(refused).rejects.toThrow(message);
  });

  test('a thread that waits for them is used once, and its death is no loss', async () => {
    const program = join(folder, 'spare.mjs');
    const begun = join(folder, 'begun');
    writeFileSync(
      program,
      `import { appendFileSync } from 'node:fs';
       import { parentPort, threadId } from 'node:worker_threads';
       appendFileSync(${JSON.stringify(begun)}, 'thread ' + threadId + '\\n');
       parentPort.once('message', () => parentPort.postMessage({ kind: 'invalid', message: 'read by thread ' + threadId + '.' }));`,
    );
    const threads = (): readonly string[] =>
      existsSync(begun) ? readFileSync(begun, 'utf8').split('\n').slice(0, -1) : [];
    const reader = new FileReader({ entry: pathToFileURL(program), spare: true, spareAfterMs: 1 });
    const before = await readFiles(configFile, {});
    await vi.waitFor(() => expect(threads()).toHaveLength(1), 20_000);
    const refused = rereadFiles(reader, configFile, {}, before);
    // The one that waited has read; the next one waits.
    await expect(refused).rejects.toThrow(`read by ${threads()[0]}.`);
    await vi.waitFor(() => expect(threads()).toHaveLength(2), 20_000);
    // Of two at once, the one that waits serves one.
    const both = await Promise.allSettled([1, 2].map(() => rereadFiles(reader, configFile, {}, before)));
    const reasons = both.map((one) => (one.status === 'rejected' ? String(one.reason) : one.status));
    expect(reasons).toContainEqual(expect.stringContaining(`read by ${threads()[1]}.`));
    expect(new Set(reasons).size).toBe(2);
    for (const reason of reasons) expect(reason).toContain('read by thread ');
    await vi.waitFor(() => expect(threads()).toHaveLength(4), 20_000);
    await reader.close();
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(threads()).toHaveLength(4);
  });

  test('a reader that is closed gives up a thread that hangs', async () => {
    const reader = new FileReader({ entry: new URL('./threads/hangs.mjs', import.meta.url), longestMs: 60_000 });
    const before = await readFiles(configFile, {});
    const refused = expect(rereadFiles(reader, configFile, {}, before)).rejects.toThrow(FilesNotRead);
    await reader.close();
    await refused;
  });
});

describe('a credential in a file', () => {
  const withFile = (): string =>
    CONFIG().replace('9" }', `9", credentials: { header: authorization, file: "${join(folder, 'token')}" } }`);
  const valueOf = ({ configuration }: InForce) => configuration.upstreams[0]?.credentials?.value;

  test('is taken up when the file changes, or a link above it is swapped; what is being written is waited for', async () => {
    writeFileSync(configFile, withFile());
    mkdirSync(join(folder, '..1'));
    writeFileSync(join(folder, '..1', 'token'), 'Bearer first-one\n');
    symlinkSync('..1', join(folder, '..data'));
    symlinkSync(join('..data', 'token'), join(folder, 'token'));
    const first = await readFiles(configFile, {});
    expect(valueOf(first)).toBe('Bearer first-one');
    expect(first.files).toContain(join(folder, 'token'));

    writeFileSync(join(folder, '..1', 'token'), '');
    await expect(again(first)).rejects.toThrow(/gateway\.yaml:2:\d+.*token is empty/s);
    writeFileSync(join(folder, '..1', 'token'), 'Bearer second-one');
    const second = await again(first);
    expect([second.kind, valueOf(second.inForce)]).toEqual(['new', 'Bearer second-one']);
    // Nobody else has to have the same one at the same time.
    expect(second.inForce.configuration.sharedDigest).toBe(first.configuration.sharedDigest);

    mkdirSync(join(folder, '..2'));
    writeFileSync(join(folder, '..2', 'token'), 'Bearer third-one\n');
    symlinkSync('..2', join(folder, '..new'));
    renameSync(join(folder, '..new'), join(folder, '..data'));
    expect(valueOf((await again(second.inForce)).inForce)).toBe('Bearer third-one');
  });

  test('has 16 KiB at most, all of which count', async () => {
    writeFileSync(configFile, withFile());
    writeFileSync(join(folder, 'token'), 'b'.repeat(16_384));
    expect(valueOf(await readFiles(configFile, {}))).toHaveLength(16_384);
    writeFileSync(join(folder, 'token'), 'b'.repeat(16_385));
    await expect(readFiles(configFile, {})).rejects.toThrow('too long for a header');
  });

  test('ends with a line break of any system, which is not part of it', async () => {
    writeFileSync(configFile, withFile());
    writeFileSync(join(folder, 'token'), 'Bearer of-windows\r\n');
    expect(valueOf(await readFiles(configFile, {}))).toBe('Bearer of-windows');
  });

  test.each([
    ['two lines', 'canary-1\ncanary-2\n', 'cannot stand in a header'],
    ['a space at the end', 'canary-1 \n', 'cannot stand in a header'],
    ['other characters', 'canary-\u4e00', 'cannot stand in a header'],
    ['a long text', 'canary'.repeat(10_000), 'too long for a header'],
    ['nothing', null, 'cannot be read'],
  ])('that holds %s is refused, and not shown', async (_what, text, message) => {
    writeFileSync(configFile, withFile());
    if (text !== null) writeFileSync(join(folder, 'token'), text);
    const refused = readFiles(configFile, {});
    await expect(refused).rejects.toThrow(message);
    await expect(refused).rejects.not.toThrow('canary');
  });

  test('beside a value, or neither of the two, is refused', async () => {
    writeFileSync(configFile, withFile().replace('file:', 'value: x, file:'));
    await expect(readFiles(configFile, {})).rejects.toThrow("either 'value' or 'file'");
    writeFileSync(configFile, CONFIG().replace('9" }', '9", credentials: { header: authorization } }'));
    await expect(readFiles(configFile, {})).rejects.toThrow("either 'value' or 'file'");
  });
});

describe('files as of one moment', () => {
  test('each is read once; what changes meanwhile is noticed', async () => {
    const reading = createReading();
    const first = await reading.bytes(configFile);
    expect(await reading.isStill()).toBe(true);
    writeFileSync(configFile, CONFIG('Other'));
    expect(await reading.bytes(configFile)).toBe(first);
    expect(await reading.isStill()).toBe(false);
  });

  test('a file that comes into a folder, and a link that is swapped, are changes', async () => {
    symlinkSync('policies', join(folder, 'current'));
    const reading = createReading();
    const digest = await digestOf([join(folder, 'current')], reading);
    expect(await reading.isStill()).toBe(true);
    mkdirSync(join(folder, 'other'));
    symlinkSync('other', join(folder, 'current.new'));
    renameSync(join(folder, 'current.new'), join(folder, 'current'));
    expect(await reading.isStill()).toBe(false);
    expect(await digestOf([join(folder, 'current')], createReading())).not.toBe(digest);
    const next = createReading();
    await digestOf([join(folder, 'policies')], next);
    writeFileSync(join(folder, 'policies', 'c.yaml'), '');
    expect(await next.isStill()).toBe(false);
  });
});
