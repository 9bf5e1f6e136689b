import { defineConfig } from 'vitest/config';

/** `unit` needs no service and no build; `system` starts real processes from `dist/`. Two cores: two workers. */
const SYSTEM = [
  'test/decisions/**',
  'test/parity/**',
  'test/torture/**',
  'test/hostile/**',
  'test/system/**',
  'test/browser/**',
];

/** What needs no service either, and takes its time: exhaustive and random searches, builds. Not part of `npm run verify`. */
const LONG = [
  'test/policy/property.test.ts',
  'test/policy/weakening.test.ts',
  'test/simulator/*.test.ts',
  'test/cli/launcher.test.ts',
];

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
          testTimeout: 30_000,
        },
        // The command line's tests take the client from its sources: they need no build.
        resolve: { alias },
      },
      { test: { name: 'long', include: LONG, testTimeout: 120_000 }, resolve: { alias } },
      {
        test: {
          name: 'system',
          include: SYSTEM.map((folder) => `${folder}/*.test.ts`),
          testTimeout: 120_000,
          hookTimeout: 60_000,
        },
      },
    ],
  },
});
