import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { type Stand, type TortureReport, torture } from './harness.ts';

/** 40 % of the upstream's answers are faulty. */
const FAULTS = {
  drop_after: 0.08,
  error_after: 0.08,
  late: 0.06,
  unavailable: 0.06,
  reset_reused: 0.04,
  half: 0.04,
  redirect: 0.02,
  drop_before: 0.02,
};

/** What has to be zero, in the table and for the exit code. */
const BROKEN = [
  'executedMoreThanOnce',
  'falseFailed',
  'falseCommitted',
  'stuck',
  'overspentUnits',
  'leakedHolds',
] as const;

const { values } = parseArgs({
  options: {
    store: { type: 'string', default: 'embedded' },
    library: { type: 'string' },
    ops: { type: 'string', default: '10000' },
    kills: { type: 'string', default: '100' },
    seed: { type: 'string' },
    json: { type: 'string' },
  },
});
const stand = standOf(values.library ?? values.store);
const seed = values.seed === undefined ? Math.floor(Math.random() * 2 ** 31) : Number(values.seed);
console.log(`seed ${seed} (--seed ${seed} replays the schedule)`);
const report: TortureReport = await torture({
  stand,
  ops: Number(values.ops),
  kills: Number(values.kills),
  seed,
  concurrency: 32,
  faults: FAULTS,
});
for (const [name, value] of Object.entries(report)) console.log(`${name.padEnd(24)} ${value ?? '-'}`);
if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify(report, null, 2)}\n`);
const broken = BROKEN.filter((name) => report[name] > 0);
if (broken.length > 0) {
  console.error(`broken: ${broken.join(', ')}`);
  process.exit(1);
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
