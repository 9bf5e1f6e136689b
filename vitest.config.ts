import { defineConfig } from 'vitest/config';
import { plantFaults } from './test/planted-faults.ts';

/** `unit` needs no service and no build; `system` starts real processes from `dist/`. Two cores: two workers. */
const SYSTEM = [
  'test/decisions/**',
  'test/parity/**',
  'test/torture/**',
  'test/hostile/**',
  'test/sdks/**',
  'test/system/**',
  'test/browser/**',
];

/** What needs no service either, and takes its time: exhaustive and random searches, builds. Not part of `npm run verify`. */
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
 * What claims how soon something happens, or takes all that the machine has: after all others, one file at a time, so that
 * the time is the product's and not a neighbour's.
 */
const TIMED = [
  'test/hostile/battery.test.ts',
  'test/hostile/overload.test.ts',
  'test/system/fleet-control.test.ts',
  'test/system/fleet-policies.test.ts',
  'test/system/lifecycle.test.ts',
  'test/system/sentinel-store.test.ts',
  'test/system/sentinel.test.ts',
  'test/system/unconfirmed.test.ts',
  'test/torture/contention.test.ts',
  'test/torture/failover.test.ts',
];

/** Longer than anything takes on a machine that is busy with other things as well. */
const PATIENCE_MS = 240_000;

/** For what has to come, and how soon is not the question: it costs nothing where it comes. */
const expect = { poll: { timeout: 30_000, interval: 20 } };

const SEED = ['test/property-seed.ts'];

const alias = { '@svc-gateway/client': new URL('./client/src/index.ts', import.meta.url).pathname };

export default defineConfig({
  test: {
    pool: 'forks',
    maxWorkers: 2,
    reporters: ['default'],
    projects: [
      {
        test: {
          name: 'unit',
          include: ['test/**/*.test.ts', 'client/test/**/*.test.ts'],
          exclude: [...SYSTEM, ...LONG, 'node_modules/**'],
          setupFiles: SEED,
          testTimeout: PATIENCE_MS,
          hookTimeout: PATIENCE_MS,
          expect,
        },
        plugins: [plantFaults()],
        // The command line's tests take the client from its sources: they need no build.
        resolve: { alias },
      },
      {
        test: {
          name: 'long',
          include: LONG,
          setupFiles: SEED,
          testTimeout: PATIENCE_MS,
          hookTimeout: PATIENCE_MS,
          expect,
        },
        plugins: [plantFaults()],
        resolve: { alias },
      },
      {
        test: {
          name: 'system',
          include: SYSTEM.map((folder) => `${folder}/*.test.ts`),
          exclude: [...TIMED, 'node_modules/**'],
          testTimeout: PATIENCE_MS,
          hookTimeout: PATIENCE_MS,
          expect,
        },
      },
      {
        test: {
          name: 'timed',
          include: TIMED,
          testTimeout: PATIENCE_MS,
          hookTimeout: PATIENCE_MS,
          expect,
          maxWorkers: 1,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
