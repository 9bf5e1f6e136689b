import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { concluded, type Stand, torture, type TortureReport } from './harness.ts';

/** Exit code of a run that shows nothing, because the upstream did not keep what is declared of it. */
const NO_VERDICT = 3;

const words = process.argv.slice(2);
// A bare `--json` prints to standard output.
const bare = words.findIndex((word, index) => word === '--json' && !/^[^-]/.test(words[index + 1] ?? ''));
if (bare >= 0) words[bare] = '--json=-';

const { values } = parseArgs({
  args: words,
  options: {
    store: { type: 'string', default: 'embedded' },
    library: { type: 'string' },
    ops: { type: 'string', default: '10000' },
    kills: { type: 'string' },
    seed: { type: 'string' },
    json: { type: 'string' },
  },
});
// What was started and mounted goes when the process exits, also when somebody has seen enough.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
const stand = standOf(values.library ?? values.store);
const ops = numberOf('ops', values.ops);
const kills = values.kills === undefined ? killsFor(stand, ops) : numberOf('kills', values.kills);
const seed = values.seed === undefined ? Math.floor(Math.random() * 2 ** 31) : numberOf('seed', values.seed);
// Standard output belongs to the JSON where that goes there.
const say = values.json === '-' ? console.error : console.log;
say(`seed ${seed} (--seed ${seed} gives the same operations and troubles again)`);
const report = await torture({ stand, ops, kills, seed, concurrency: 32, tell: (line) => console.error(line) });
const counts = wireOf(report);
for (const [name, value] of Object.entries(counts)) say(`${name.padEnd(24)} ${shown(value)}`);
const json = `${JSON.stringify({ stand, ...counts }, null, 2)}\n`;
if (values.json === '-') process.stdout.write(json);
else if (values.json !== undefined) writeFileSync(values.json, json);
const conclusion = concluded(report);
// What the harness is to show of a library is no failure of ours.
if (values.library === undefined && conclusion.kind === 'broken') {
  console.error(`broken: ${conclusion.what.map(wireName).join(', ')}`);
  process.exit(1);
}
if (values.library === undefined && conclusion.kind === 'no_verdict') {
  console.error(conclusion.why);
  process.exit(NO_VERDICT);
}

/** One kill for a hundred calls; of a primary, which takes its time, one for a thousand. */
function killsFor(of: Stand, count: number): number {
  return Math.max(2, Math.ceil(count / (of === 'redis-failover' ? 1000 : 100)));
}

function numberOf(name: string, text: string): number {
  if (!/^\d+$/.test(text)) throw new Error(`--${name} is a whole number, not ${text}`);
  return Number(text);
}

function wireName(name: string): string {
  return name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

type Wire = number | null | Readonly<Record<string, number>>;

function wireOf(of: TortureReport): Readonly<Record<string, Wire>> {
  return Object.fromEntries(Object.entries(of).map(([name, value]) => [wireName(name), value]));
}

function shown(value: Wire): string {
  if (value === null) return '-';
  if (typeof value === 'number') return String(value);
  return Object.entries(value)
    .map(([name, times]) => `${name} ${times}`)
    .join(', ');
}

function standOf(word: string): Stand {
  switch (word) {
    case 'embedded':
    case 'redis':
    case 'redis-failover':
    case 'node-idempotency':
    case 'powertools':
      return word;
    default:
      throw new Error(
        `${word}: there are --store embedded|redis|redis-failover and --library node-idempotency|powertools`,
      );
  }
}
