import { statSync } from 'node:fs';
import { readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { svc as inProcess } from '../cli/run.ts';
import { DEEP } from '../deep.ts';
import { until } from '../redis/servers.ts';
import { type Bucket, startBucket } from '../s3/bucket.ts';
import { clockOf } from './clocks.ts';
import { svc } from './command-line.ts';
import { makeApiKey, send, type TestGateway } from './gateway.ts';
import { freshKey, refund, startWorld, type World, worldFiles } from './world.ts';

/** The issue asks for 50,000 and a kill at every step; records/archive kills at each of them, one at a time. */
const KILLS = DEEP ? 12 : 2;
const AT_ONCE = 16;
const PATIENCE_MS = DEEP ? 3_600_000 : 240_000;

/** Three hours pass at the first restart, and records age after one. */
const clock: Record<string, string> = {};

interface Made {
  readonly id: string;
  readonly body: Record<string, unknown>;
  readonly target: string;
  readonly receipt: unknown;
}

let bucket: Bucket;
let world: World;
let gateway: TestGateway;
let auditor = '';
const made: Made[] = [];

/** Where the archive is: as the configuration says it, and as a file of the workspace is read there. */
interface Place {
  readonly effects: number;
  readonly name: 'a folder' | 'a bucket that fails at times';
  readonly configured: () => string;
  readonly fileOf: (name: string) => string;
}

const PLACES: readonly Place[] = [
  {
    name: 'a folder',
    effects: DEEP ? 50_000 : 400,
    configured: () => './archive',
    fileOf: (name) => join(gateway.folder, 'archive', 'demo', name),
  },
  {
    name: 'a bucket that fails at times',
    effects: DEEP ? 5_000 : 150,
    configured: () => `{ url: "${bucket.url}/svc", access_key: "\${KEY:-S3RVER}", secret_key: "\${SECRET:-S3RVER}" }`,
    fileOf: (name) => bucket.fileOf(`svc/demo/${name}`),
  },
];

/** One answer in eight is an error, and one in eight is lost after the bucket has done what was asked. */
const failing: Bucket['meddle'] = async ({ pass }) => {
  const chance = Math.random();
  if (chance < 1 / 8) return { status: 503, headers: {}, body: Buffer.from('<Code>SlowDown</Code>') };
  const answer = await pass();
  return chance > 7 / 8 ? null : answer;
};

beforeAll(async () => {
  bucket = await startBucket();
});
afterAll(() => bucket.close());

async function begin(place: Place): Promise<void> {
  made.length = 0;
  Object.assign(clock, { ...clockOf(1), SVC_TEST_CLOCK_OFFSET_MS: String(-3 * 3_600_000) });
  bucket.meddle = failing;
  const files = (url: string) => {
    const { config, policies } = worldFiles(url);
    const archived = config.replace(
      'path: "${SVC_TEST_DATA}"',
      `path: "\${SVC_TEST_DATA}", archive: ${place.configured()}`,
    );
    return { config: `${archived}\nretention: { effects: 1h }\n`, policies };
  };
  // What is checked at the end knows of no archive: `svc fsck` is run here.
  world = await startWorld({ files, env: clock, lost: true });
  ({ gateway } = world);
  auditor = await makeApiKey(gateway, 'olga', { profile: 'auditor', workspace: 'demo' });
}

const command = (...words: readonly string[]): ReturnType<typeof svc> => svc(gateway.folder, {}, ...words);
const get = async (path: string) => (await send(gateway.url, auditor, 'GET', `/v1/workspaces/demo${path}`)).body;
const size = (): number => statSync(join(gateway.dataFolder, 'store.db')).size;

async function restart(how: 'SIGTERM' | 'SIGKILL'): Promise<void> {
  gateway.kill(how);
  await gateway.ended;
  gateway = await gateway.restart();
}

async function call(): Promise<void> {
  const body = refund({ amount: 1 }, freshKey());
  // Until it has read the archive of a workspace, the gateway admits nothing there.
  let { body: said } = await world.run(body);
  await until(async () => {
    if (said.code === 'store_unavailable') ({ body: said } = await world.run(body));
    return said.code !== 'store_unavailable';
  });
  if (said.decision !== 'committed') throw new Error(JSON.stringify(said));
  const { effect_id: id, receipt } = said;
  made.push({ id, body, target: `payment:pay_${String(body['idempotency_key'])}`, receipt });
}

/** How many effects are in the segments that the store has taken. */
async function archived({ fileOf }: Place): Promise<number> {
  const { n }: { readonly n: number } = JSON.parse(await readFile(fileOf('head.json'), 'utf8'));
  let effects = 0;
  for (let segment = 1; segment <= n; segment += 1) {
    const text = await readFile(fileOf(`${String(segment).padStart(9, '0')}.jsonl`), 'utf8');
    effects += Number(/"rows":(\d+)\}\n/.exec(text)?.[1]);
  }
  return effects;
}

async function exported(query: string): Promise<string> {
  const answer = await fetch(`${gateway.url}/v1/workspaces/demo/export?${query}`, {
    headers: { 'x-api-key': auditor },
  });
  expect(answer.status).toBe(200);
  return answer.text();
}

/** Of all pages: each looks at a part of the list. */
async function idsOf(query: string): Promise<readonly string[]> {
  const found: string[] = [];
  let cursor = '';
  do {
    const { effects, next_cursor: next } = await get(`/effects?${query}${cursor}`);
    found.push(...effects.map(({ id }: { readonly id: string }) => id));
    cursor = next === null ? '' : `&cursor=${next}`;
  } while (cursor !== '');
  return found;
}

/** By id, key, target and time, and with a receipt that is valid for who has the keys. */
async function expectAllFound(): Promise<void> {
  const step = Math.ceil(made.length / 20);
  for (const { id, body, target, receipt } of made.filter((_, n) => n % step === 0)) {
    expect(await get(`/effects/${id}`)).toMatchObject({ effect: { id, state: 'committed', target } });
    expect(await idsOf(`target=${encodeURIComponent(target)}`)).toEqual([id]);
    expect((await world.run(body)).body).toMatchObject({ decision: 'duplicate_blocked', effect_id: id, receipt });
  }
  const trust = join(gateway.folder, 'jwks.json');
  await writeFile(trust, await (await fetch(`${gateway.url}/.well-known/jwks.json`)).text());
  const bundle = join(gateway.folder, 'bundle.jsonl');
  const text = await exported('format=bundle');
  await writeFile(bundle, text);
  const verified = await inProcess('verify', bundle, '--trust', trust, '--json');
  expect(JSON.parse(verified.out)).toMatchObject({ verdict: 'VALID' });
  const ids = [...text.matchAll(/^\{"type":"effect","id":"([^"]+)"/gm)].map(([, id]) => id);
  expect(ids.length).toBe(new Set(ids).size);
  expect(new Set(ids)).toEqual(new Set(made.map(({ id }) => id)));
}

/** What needs a segment that is gone says which, and where it was expected: people, and no agent. */
async function expectMissingNamed(file: string): Promise<void> {
  await rename(file, `${file}.away`);
  await restart('SIGTERM');
  const id = /^\["([^"]+)"/m.exec(await readFile(`${file}.away`, 'utf8'))?.[1] ?? '';
  const read = (key: string) => send(gateway.url, key, 'GET', `/v1/workspaces/demo/effects/${id}`);
  const { status, body } = await read(auditor);
  expect([status, body.code]).toEqual([503, 'store_unavailable']);
  expect(body.detail).toContain(`Segment 1 of the workspace demo is not in the archive: it was expected at ${file}.`);
  expect((await read(world.keys.bot)).body.detail).not.toContain(file);
  await rename(`${file}.away`, file);
  expect((await read(auditor)).status).toBe(200);
}

describe.each(PLACES)('an archive in $name', (place) => {
  beforeAll(() => begin(place));
  afterAll(() => world.close());

  it(
    'records that age out are found and proven after restarts, kills and a restore, and the file is smaller',
    async () => {
      await Promise.all(
        Array.from({ length: AT_ONCE }, async () => {
          while (made.length < place.effects - AT_ONCE + 1) await call();
        }),
      );
      await gateway.stop();
      const full = size();

      // The machine was off for three hours: else the time is counted by how long it is up.
      const mark = join(gateway.dataFolder, 'install.json');
      await writeFile(mark, (await readFile(mark, 'utf8')).replace(/"boot":"[^"]*"/, '"boot":"before"'));
      clock['SVC_TEST_CLOCK_OFFSET_MS'] = '0';
      gateway = await gateway.restart();
      for (let kill = 0; kill < KILLS; kill += 1) {
        await delay((Math.random() * place.effects) / 2);
        await restart('SIGKILL');
      }
      await until(async () => (await archived(place)) === made.length, 600_000);
      // Pages are given back some with each sweep.
      await until(async () => {
        const before = size();
        await delay(3_000);
        return size() === before;
      }, 600_000);
      await restart('SIGTERM');
      const small = size();
      bucket.meddle = ({ pass }) => pass();
      await expectAllFound();

      const backup = join(gateway.folder, 'backup');
      expect(await command('backup', backup)).toMatchObject({ code: 0 });
      gateway.kill('SIGKILL');
      await gateway.ended;
      expect(await command('restore', backup, '--replace')).toMatchObject({ code: 0 });
      gateway = await gateway.restart();
      await expectAllFound();
      if (place.name === 'a folder') await expectMissingNamed(place.fileOf('000000001.jsonl'));
      await gateway.stop();
      expect(await command('fsck')).toMatchObject({ code: 0 });
      if (DEEP) console.log(`${made.length} effects: ${full} bytes, then ${small}`);
      const { effects } = await world.upstream.ledger();
      expect(effects).toHaveLength(made.length);
      // Some pages stay for the next calls, which of a few hundred effects is all.
      if (place.effects >= 400) expect(small).toBeLessThan((DEEP ? 0.7 : 1) * full);
    },
    PATIENCE_MS,
  );
});
