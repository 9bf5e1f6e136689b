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
          exclude: [...SYSTEM, 'node_modules/**'],
          testTimeout: 30_000,
        },
        // The command line's tests take the client from its sources: they need no build.
        resolve: { alias: { '@svc-gateway/client': new URL('./client/src/index.ts', import.meta.url).pathname } },
      },
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
