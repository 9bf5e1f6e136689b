import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import type { openEmbeddedRows } from '../../src/stores/embedded/open.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

export interface CompiledStore {
  /** The compiled form of a file of the repository. */
  file(source: string): string;
  /** The store's opener, whose thread can run (threads do not run TypeScript on every Node). */
  openEmbeddedStore(): Promise<typeof openEmbeddedStore>;
  openEmbeddedRows(): Promise<typeof openEmbeddedRows>;
  /** Changes what was compiled: each text is there once. */
  alter(source: string, from: string, to: string): void;
  remove(): void;
}

/** Compiles the store, and programs of tests, within the repository so that packages are found. */
export function compileStore(programs: readonly string[] = ['test/stores/load.ts']): CompiledStore {
  const cache = join(ROOT, 'node_modules/.cache');
  mkdirSync(cache, { recursive: true });
  const folder = mkdtempSync(join(cache, 'store-test-'));
  const settings = join(folder, 'tsconfig.json');
  const files = [
    join(ROOT, 'src/gateway/embedded-store.ts'),
    join(ROOT, 'src/stores/embedded/open.ts'),
    join(ROOT, 'src/stores/threads/worker.ts'),
    ...programs.map((program) => join(ROOT, program)),
  ];
  writeFileSync(
    settings,
    JSON.stringify({
      extends: join(ROOT, 'tsconfig.json'),
      compilerOptions: {
        noEmit: false,
        noCheck: true,
        outDir: folder,
        rootDir: ROOT,
        typeRoots: [join(ROOT, 'node_modules/@types')],
      },
      files,
      include: [],
    }),
  );
  execFileSync(process.execPath, [join(ROOT, 'node_modules/typescript/bin/tsc'), '-p', settings], { stdio: 'inherit' });
  const scripts = 'src/stores/redis/scripts';
  cpSync(join(ROOT, scripts), join(folder, scripts), { recursive: true });
  const file = (source: string): string => join(folder, source.replace(/\.ts$/, '.js'));
  return {
    file,
    async openEmbeddedStore() {
      const module: { openEmbeddedStore: typeof openEmbeddedStore } = await import(
        pathToFileURL(file('src/gateway/embedded-store.ts')).href
      );
      return module.openEmbeddedStore;
    },
    async openEmbeddedRows() {
      const module: { openEmbeddedRows: typeof openEmbeddedRows } = await import(
        pathToFileURL(file('src/stores/embedded/open.ts')).href
      );
      return module.openEmbeddedRows;
    },
    alter(source, from, to) {
      const parts = readFileSync(file(source), 'utf8').split(from);
      if (parts.length !== 2) throw new Error(`${source} has ${from} ${parts.length - 1} times`);
      writeFileSync(file(source), parts.join(to));
    },
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}
