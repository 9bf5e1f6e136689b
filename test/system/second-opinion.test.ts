import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { FAULTS } from '../planted-faults.ts';
import { send } from './gateway.ts';
import { freshKey, startWorld, type World, worldFilesWith } from './world.ts';

const FILES = worldFilesWith({
  tools: `
  - { name: notes.loose, title: Note, upstream: payments, kind: write, request: { method: POST, path: /v1/notes, body: "*" }, params_schema: { type: object } }
routes:`,
  routes: '\npools:',
  policy: `
  - { id: loose, effect: allow, match: { tools: [notes.loose] } }
  - { id: large, effect: deny, match: { tools: [notes.loose] }, when: { params.amounts: { some: { item: { gt: 5 } } } } }
`,
});

let world: World | null = null;
let folder: string | null = null;
afterEach(async () => {
  await world?.close();
  world = null;
  if (folder !== null) await rm(folder, { recursive: true });
  folder = null;
});

/** The gateway's program with a fault in what rules are compiled to: a restriction that is unknown lets calls pass. */
async function faultyProgram(): Promise<string> {
  folder = await mkdtemp(join(tmpdir(), 'svc-faulty-'));
  await cp('dist', join(folder, 'dist'), { recursive: true });
  await mkdir(join(folder, 'test'));
  for (const name of ['package.json', 'node_modules']) await symlink(join(process.cwd(), name), join(folder, name));
  const { line, instead } = FAULTS['unknown-elements-do-not-restrict'];
  const file = join(folder, 'dist', 'src', 'policy', 'compiled-condition.js');
  const text = await readFile(file, 'utf8');
  expect(text.split(line)).toHaveLength(2);
  await writeFile(file, text.replace(line, instead));
  const entry = join(folder, 'test', 'module-a-file.mjs');
  await cp(join('test', 'module-a-file.mjs'), entry);
  return entry;
}

async function started(entry?: string, asked = '1s'): Promise<World> {
  const files = (url: string) => {
    const { config, policies } = FILES(url);
    return { config: config.replace('policies: {', `policies: { second_opinion: ${asked},`), policies };
  };
  world = await startWorld({ files, ...(entry === undefined ? {} : { entry }) });
  return world;
}

const loose = (amounts: unknown) => ({ tool: 'notes.loose', params: { amounts }, idempotency_key: freshKey() });

interface Said {
  readonly notes: readonly { readonly message: string }[];
  readonly metric: string;
}

async function said({ gateway }: World): Promise<Said> {
  const ready = await send(gateway.url, gateway.administrativeKey, 'GET', '/readyz');
  const metrics = await fetch(`${gateway.url}/metrics`, { headers: { 'x-api-key': gateway.administrativeKey } });
  const lines = (await metrics.text()).split('\n');
  return {
    notes: ready.body.notes ?? [],
    metric: lines.find((line) => line.startsWith('svc_policy_differences_total{')) ?? '',
  };
}

it('a rule that is compiled wrongly is named by the engine while the gateway runs: alert, metric, and /readyz', async () => {
  const running = await started(await faultyProgram());
  await expect
    .poll(
      async () => {
        // What decides is wrong: the amounts are no list, and so may be too large.
        expect((await running.run(loose('9'))).body.decision).toBe('committed');
        return running.gateway.log();
      },
      { timeout: 30_000, interval: 500 },
    )
    .toContain('"alert":"policy_difference"');
  expect(running.gateway.log()).toMatch(/"alert":"policy_difference","rule":"world\/large","tool":"notes\.loose"/);
  const { notes, metric } = await said(running);
  expect(metric).toBe('svc_policy_differences_total{rule="world/large"} 1');
  expect(notes.map(({ message }) => message).join('\n')).toContain(
    'The rule world/large did not match a call of notes.loose; json-rules-engine says otherwise.',
  );
});

it('with `second_opinion: never` the engine is not asked, until it is set otherwise', async () => {
  const running = await started(await faultyProgram(), 'never');
  for (let calls = 0; calls < 3; calls += 1) {
    expect((await running.run(loose('9'))).body.decision).toBe('committed');
    await new Promise((resolve) => setTimeout(resolve, 600));
  }
  expect((await said(running)).metric).toBe('');
  const { configFile } = running.gateway;
  await writeFile(
    configFile,
    (await readFile(configFile, 'utf8')).replace('second_opinion: never', 'second_opinion: 100ms'),
  );
  await expect
    .poll(
      async () => {
        await running.run(loose('9'));
        return (await said(running)).metric;
      },
      { timeout: 30_000, interval: 100 },
    )
    .toBe('svc_policy_differences_total{rule="world/large"} 1');
});

it('a gateway without a fault has no difference', async () => {
  const running = await started();
  for (const amounts of ['9', [1, 9], [1], null]) {
    const { body } = await running.run(loose(amounts));
    expect(body.decision).toBe(Array.isArray(amounts) && amounts.length === 1 ? 'committed' : 'denied_policy');
    // One decision a second is asked about.
    await new Promise((resolve) => setTimeout(resolve, 1_050));
  }
  const { notes, metric } = await said(running);
  expect([notes.filter(({ message }) => message.includes('json-rules-engine')), metric]).toEqual([[], '']);
  expect(running.gateway.log()).not.toContain('policy_difference');
});
