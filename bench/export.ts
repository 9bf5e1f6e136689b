import { readFile } from 'node:fs/promises';
import { createWriteStream } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { linesOf } from '../src/cli/verify.ts';
import { policyVersion } from '../src/policy/bundle.ts';
import { verifyBundle } from '../src/receipts/verify-bundle.ts';
import { parseStrictJson } from '../src/json/strict.ts';
import { isJsonObject } from '../src/json/value.ts';
import { median } from './cpu.ts';
import { count, load, newWrite } from './load.ts';
import type { BenchOptions, BenchResult } from './result.ts';
import { type Gateway, openStage } from './stage.ts';

const MOST = 100_000;
const CONNECTIONS = 64;
/** Callers that go on while the export is made. */
const BESIDE = 4;
const CALM_CALLS = 4_000;

/** A bundle of all effects of a store, beside calls: how long it takes, what it does to the calls, and whether it is valid. */
export async function run(options: BenchOptions): Promise<BenchResult[]> {
  const effects = Math.min(options.effects, MOST);
  const stage = await openStage();
  try {
    const gateway = await stage.gateway({ name: 'export' });
    await load({
      url: gateway.url,
      connections: CONNECTIONS,
      next: count(effects, () => newWrite(gateway.key)),
      expected: [201],
    });
    const calm = await load({
      url: gateway.url,
      connections: BESIDE,
      next: count(CALM_CALLS, () => newWrite(gateway.key)),
      expected: [201],
    });
    const before = gateway.residentBytes() ?? 0;
    let most = before;
    const watch = setInterval(() => (most = Math.max(most, gateway.residentBytes() ?? 0)), 100);
    let isDone = false;
    const file = join(gateway.folder, 'bundle.jsonl');
    const begun = performance.now();
    const exporting = exported(gateway, file).finally(() => (isDone = true));
    const beside = await load({
      url: gateway.url,
      connections: BESIDE,
      next: () => (isDone ? null : newWrite(gateway.key)),
      expected: [201],
    });
    await exporting;
    const ms = performance.now() - begun;
    clearInterval(watch);
    const verdict = await verified(gateway, file);
    const rate = (beside.calls / beside.ms) * 1000;
    const calmRate = (calm.calls / calm.ms) * 1000;
    const shown = effects.toLocaleString('en');
    return [
      {
        name: `a bundle of ${shown} effects beside ${BESIDE} callers: ${verdict}`,
        value: Math.round(ms / 100) / 10,
        unit: 's',
        peer: null,
        ratio: null,
        target: '<= 60',
      },
      {
        name: 'calls beside the export',
        value: Math.round(rate),
        unit: 'calls/s',
        peer: `without it ${Math.round(calmRate)}/s; median ${median(beside.times).toFixed(1)} and ${median(calm.times).toFixed(1)} ms`,
        ratio: rate / calmRate,
        target: '>= 0.5',
      },
      {
        name: 'resident memory that the export adds at most',
        value: Math.round((most - before) / 1024 / 1024),
        unit: 'MB',
        peer: null,
        ratio: null,
        target: '<= 100',
      },
    ];
  } finally {
    await stage.stop();
  }
}

async function exported({ url, folder }: Gateway, file: string): Promise<void> {
  const administrative = await readFile(join(folder, 'admin.key'), 'utf8');
  const made = await fetch(`${url}/v1/beta/users/bench/keys`, {
    method: 'POST',
    headers: { 'x-api-key': administrative, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'audit', profile: 'auditor', workspace: 'bench' }),
  });
  const { key }: { readonly key?: string } = JSON.parse(await made.text());
  if (key === undefined) throw new Error('no key for the auditor');
  const answer = await fetch(`${url}/v1/workspaces/bench/export?format=bundle`, { headers: { 'x-api-key': key } });
  if (answer.status !== 200 || answer.body === null) throw new Error(`the export answered ${answer.status}`);
  await pipeline(Readable.fromWeb(answer.body), createWriteStream(file));
}

async function verified({ url }: Gateway, file: string): Promise<string> {
  const trust = parseStrictJson(await (await fetch(`${url}/.well-known/jwks.json`)).text(), {
    depth: 16,
    values: 1_000,
    name: 1_000,
  });
  if (!trust.ok || !isJsonObject(trust.value)) throw new Error('no keys');
  const { verdict, checks } = await verifyBundle(linesOf(file), trust.value, policyVersion);
  return `${verdict}, ${checks[0]?.detail ?? ''}`;
}
