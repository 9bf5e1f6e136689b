/**
 * `node build.mjs`: builds the pages into `dist/src/console/pages` of the gateway, where they are newer than what is there. Each
 * file gets a compressed one beside it, so that a gateway compresses nothing.
 */
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const here = dirname(fileURLToPath(import.meta.url));
const pages = join(here, '..', 'dist', 'src', 'console', 'pages');
const index = join(pages, 'index.html.gz');

/** What the pages share with the gateway. */
const shared = join(here, '..', 'src', 'effects', 'model', 'money.ts');

if (!existsSync(index) || Math.max(newest(here), statSync(shared).mtimeMs) > statSync(index).mtimeMs) await make();

async function make() {
  const { build } = await import('vite');
  await build({
    root: here,
    configFile: false,
    base: '/console/',
    logLevel: 'warn',
    oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
    build: {
      outDir: pages,
      emptyOutDir: true,
      target: 'es2022',
      // The content security policy allows no inline data.
      assetsInlineLimit: 0,
      modulePreload: { polyfill: false },
    },
  });
  for (const name of filesOf(pages)) {
    const file = join(pages, name);
    writeFileSync(`${file}.gz`, gzipSync(readFileSync(file), { level: 9 }));
  }
}

function filesOf(folder) {
  return readdirSync(folder, { recursive: true }).filter((name) => statSync(join(folder, name)).isFile());
}

/** The newest modification of what the pages are made from. */
function newest(folder) {
  const names = readdirSync(folder, { recursive: true }).filter((name) => !/^(node_modules|dist)\b/.test(name));
  return Math.max(...names.map((name) => statSync(join(folder, name)).mtimeMs));
}
