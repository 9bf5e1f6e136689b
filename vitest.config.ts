import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { defineConfig } from 'vitest/config';
import { needOwnProcess } from './test/own-process.ts';
import { plantFaults } from './test/planted-faults.ts';
import { leftOut } from './test/selection.mjs';

// Gateways of tests note how far their stores have come in a folder of their own, not in that of whoever runs them.
const state = mkdtempSync(join(tmpdir(), 'svc-state-'));
process.env['XDG_STATE_HOME'] = state;
process.once('exit', () => rmSync(state, { recursive: true, force: true }));

/** `unit` and `unit-alone` need no service and no build; `system` starts real processes from `dist/`. */
const SYSTEM = [
  'test/cost',
  'test/decisions',
  'test/golden',
  'test/parity',
  'test/torture',
  'test/hostile',
  'test/sdks',
  'test/system',
  'test/browser',
];

/** What holds the stores to their promises on real files: small files that take long, and would be alone at the end. */
const STORES = [
  'test/contract/embedded.test.ts',
  'test/port/{embedded,embedded-kill,records}.test.ts',
  'test/stores/{export-in-thread,fence,thread-restarts}.test.ts',
];

/** What needs no service either, and takes its time: exhaustive and random searches, builds. Not part of `npm run test:unit`. */
const LONG = [
  'client/test/package.test.ts',
  'test/config/damaged-files.test.ts',
  'test/policy/index.test.ts',
  'test/policy/windows.test.ts',
  'test/policy/property.test.ts',
  'test/policy/weakening.test.ts',
  'test/simulator/*.test.ts',
  'test/cli/launcher.test.ts',
];

/**
 * What counts on a processor that is mostly free, since something there keeps its times or is measured: an upstream that is
 * late by no more than it is declared to be, a pause, the time for which the event loop is held.
 */
const MEASURED = [
  'test/cost/cost.test.ts',
  'test/hostile/descriptors.test.ts',
  'test/hostile/large-uploads.test.ts',
  'test/hostile/loop-held.test.ts',
  'test/hostile/mcp-loop-held.test.ts',
  'test/hostile/small-pieces.test.ts',
  'test/system/cluster.test.ts',
  'test/system/port-redis-fleet.test.ts',
  'test/system/redis-claims.test.ts',
  'test/system/redis-durability.test.ts',
  'test/system/restart-in-flight.test.ts',
  'test/torture/embedded.test.ts',
  'test/torture/late-upstream.test.ts',
  'test/torture/peers.test.ts',
  'test/torture/probing.test.ts',
  'test/torture/redis.test.ts',
];

/**
 * What claims how soon something happens, or takes all that the machine has: after all others, one file at a time, so that
 * the time is the product's and not a neighbour's.
 */
const TIMED = [
  'test/hostile/battery.test.ts',
  'test/hostile/overload.test.ts',
  'test/system/fleet-control.test.ts',
  'test/system/fleet-policies.test.ts',
  'test/system/lifecycle.test.ts',
  'test/system/round-trips.test.ts',
  'test/system/sentinel-store.test.ts',
  'test/system/sentinel.test.ts',
  'test/system/unconfirmed.test.ts',
  'test/torture/contention.test.ts',
  'test/torture/failover.test.ts',
];

/**
 * One after the other: all that may share the machine; then what counts on a processor that is mostly free, and waits more
 * than it computes; then what has the machine. Within each, vitest takes the projects by their names and the larger files
 * first, and the small files of `unit` and `unit-alone` fill up what is left at the end.
 */
const SHARED = { maxWorkers: 4, sequence: { groupOrder: 0 } };
const SPACED = { maxWorkers: 3, sequence: { groupOrder: 1 } };
const SOLE = { maxWorkers: 1, sequence: { groupOrder: 2 } };

/** What changes or measures its process: it gets one of its own. */
const ALONE = needOwnProcess(['test', 'client/test']);
const SYSTEM_ALONE = needOwnProcess(SYSTEM);

/** Longer than anything takes on a machine that is busy with other things as well. */
const PATIENCE_MS = 240_000;

/** What all projects have. `expect`: for what has to come, and how soon is not the question; it costs nothing where it comes. */
const PATIENT = {
  testTimeout: PATIENCE_MS,
  hookTimeout: PATIENCE_MS,
  expect: { poll: { timeout: 30_000, interval: 20 } },
  // What differs stands in the message, which is all that the end of a long run repeats.
  chaiConfig: { truncateThreshold: 400 },
};

/** Not run by `npm test`, or not on its second Node: `test/selection.json` has the reasons. */
const skipped = ['node_modules/**', ...leftOut(process.env['SVC_TEST_RUN'])];

/** All tests below folders. */
const filesIn = (folders: readonly string[]) => folders.map((folder) => `${folder}/**/*.test.ts`);

const alias = { '@svc-gateway/client': new URL('./client/src/index.ts', import.meta.url).pathname };

interface Project {
  readonly name: string;
  readonly include: readonly string[];
  readonly exclude: readonly string[];
  readonly isolate?: boolean;
  readonly maxWorkers: number;
  readonly sequence: { readonly groupOrder: number };
}

/** A project whose tests start real processes from `dist/`. */
const ofBuild = ({ include, exclude, ...test }: Project) => ({
  test: { ...test, include: [...include], exclude: [...exclude], setupFiles: ['test/node-fetch.ts'], ...PATIENT },
});

/** A project whose tests take the sources, the command line's those of the client too: they need no build. */
const ofSources = ({ include, exclude, ...test }: Project) => ({
  test: {
    ...test,
    include: [...include],
    exclude: [...exclude],
    setupFiles: ['test/node-fetch.ts', 'test/property-seed.ts'],
    ...PATIENT,
  },
  plugins: [plantFaults()],
  resolve: { alias },
});

export default defineConfig({
  test: {
    pool: 'forks',
    reporters: ['default'],
    projects: [
      ofSources({
        name: 'unit',
        include: ['test/**/*.test.ts', 'client/test/**/*.test.ts'],
        // Files share a process, and what they import is read once: that was a third of the time that they took.
        isolate: false,
        exclude: [...filesIn(SYSTEM), ...LONG, ...STORES, ...ALONE, ...skipped],
        ...SHARED,
      }),
      ofSources({ name: 'stores', include: STORES, exclude: skipped, isolate: false, ...SHARED }),
      ofSources({
        name: 'unit-alone',
        include: [...ALONE],
        exclude: [...filesIn(SYSTEM), ...LONG, ...skipped],
        ...SPACED,
      }),
      ofSources({ name: 'long', include: LONG, exclude: skipped, ...SHARED }),
      ofBuild({
        name: 'system',
        include: filesIn(SYSTEM),
        isolate: false,
        exclude: [...MEASURED, ...TIMED, ...SYSTEM_ALONE, ...skipped],
        ...SHARED,
      }),
      ofBuild({ name: 'system-alone', include: SYSTEM_ALONE, exclude: [...MEASURED, ...TIMED, ...skipped], ...SHARED }),
      ofBuild({ name: 'measured', include: MEASURED, exclude: skipped, ...SPACED }),
      ofBuild({ name: 'timed', include: TIMED, exclude: skipped, ...SOLE }),
    ],
  },
});
