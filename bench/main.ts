import { writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { describeShares, sumOf } from './cpu.ts';
import type { BenchOptions, BenchResult } from './result.ts';
import { stageTable } from './stages.ts';

interface Suite {
  readonly run: (options: BenchOptions) => Promise<readonly BenchResult[]>;
}

/** Runs the benchmarks of one Node version. */
const SUITES: Readonly<Record<string, () => Promise<Suite>>> = {
  decision: () => import('./decision.ts'),
  receipt: () => import('./receipt.ts'),
  store: () => import('./store.ts'),
  governed: () => import('./governed.ts'),
  redis: () => import('./redis.ts'),
  single: () => import('./single.ts'),
  mcp: () => import('./mcp.ts'),
  duplicates: () => import('./duplicates.ts'),
  listers: () => import('./listers.ts'),
  moved: () => import('./moved.ts'),
  growth: () => import('./growth.ts'),
  export: () => import('./export.ts'),
  forms: () => import('./forms.ts'),
  streams: () => import('./streams.ts'),
  memory: () => import('./memory.ts'),
  console: () => import('./console.ts'),
};

/** Take minutes: run only when they are asked for. */
const LONG = ['growth', 'listers', 'memory', 'export', 'console'];

const { values } = parseArgs({
  options: { json: { type: 'string' }, only: { type: 'string' }, effects: { type: 'string', default: '1000000' } },
});
const { only } = values;
const options: BenchOptions = { effects: Number(values.effects) };
if (only !== undefined && !(only in SUITES))
  throw new Error(`there is no benchmark ${only}; there are ${Object.keys(SUITES).join(', ')}`);
if (!Number.isSafeInteger(options.effects) || options.effects < 1) throw new Error('--effects is a number from 1 on');
const node = `node ${process.versions.node.split('.')[0]}`;
const results: (BenchResult & { readonly node: string })[] = [];
for (const [name, loadSuite] of Object.entries(SUITES)) {
  if (only === undefined ? LONG.includes(name) : only !== name) continue;
  const { run } = await loadSuite();
  for (const result of await run(options)) {
    results.push({ ...result, node });
    print(result);
  }
}
if (values.json !== undefined) await writeFile(values.json, JSON.stringify(results));

function print({ name, value, unit, peer, ratio, target, cpu = {}, stages = [] }: BenchResult): void {
  const words = [
    `${node}  ${name}: ${value} ${unit}`,
    ...(ratio === null ? [] : [`ratio ${ratio.toFixed(2)}`]),
    ...(peer === null ? [] : [`(${peer})`]),
    ...(target === null ? [] : [`target ${target}`]),
  ];
  console.log(words.join('  '));
  for (const [who, shares] of Object.entries(cpu))
    console.log(`         CPU µs a call, ${who}: ${describeShares(shares)}; in all ${Math.round(sumOf(shares))}`);
  if (stages.length > 0) console.log(stageTable(stages));
}
