// The last step of the build: what runs becomes a few files in `dist/bundle/`, packages of npm included. A start of two
// thousand modules is mostly the reading of files; and an install of the gateway needs no packages but those that are named
// below. What a module reads from beside itself stays where the compiler put it: `import.meta.url` is that place still.
import { cpSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { rolldown } from 'rolldown';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const dist = join(root, 'dist');
const folder = join(dist, 'bundle');
/** Native, or with files of their own that they find by their names. */
const { dependencies, optionalDependencies } = readJson(join(root, 'package.json'));

/**
 * What is begun from outside: by the launcher, by a program that starts the gateway with ports of its own (tests do), as a
 * thread, and by the threads of the store.
 */
const ENTRIES = {
  main: 'src/main.js',
  gateway: 'src/gateway/start.js',
  worker: 'src/stores/threads/worker.js',
  program: 'src/records/program.js',
  export: 'src/records/export.js',
  'read-worker': 'src/gateway/read-worker.js',
  'passkey-worker': 'src/identity/passkeys/passkey-worker.js',
};

/** Modules that name an entry beside themselves: it is beside the bundle. */
const NAMES_ENTRY = new Set([
  'src/stores/threads/thread.js',
  'src/gateway/file-reader.js',
  'src/identity/passkeys/verifier.js',
]);

/** The text of a module with its place in it. */
function placed(code, id) {
  const place = relative(dist, id);
  if (place.startsWith('..') || NAMES_ENTRY.has(place) || !code.includes('import.meta.url')) return null;
  const [entry] = Object.entries(ENTRIES).find(([, file]) => file === place) ?? [];
  const path = JSON.stringify(entry === undefined ? relative(folder, id) : `./${entry}.js`);
  return code.replaceAll('import.meta.url', `new URL(${path}, import.meta.url).href`);
}

/** Compiled schemas take the place of the module that compiles them: see there. Their code asks for what is beside it. */
async function compiled(id) {
  if (relative(dist, id) !== 'src/config/validators.js') return null;
  const { default: standalone } = await import('ajv/dist/standalone/index.js');
  const { compileFile, compileDialect, DIALECT } = await import(pathToFileURL(id).href);
  const lines = [`export const DIALECT = ${JSON.stringify(DIALECT)};`];
  for (const [name, { ajv, validate }] of [
    ['fileValidator', compileFile(true)],
    ['schemaValidator', compileDialect(true)],
  ]) {
    writeFileSync(join(dirname(id), `${name}.cjs`), standalone.default(ajv, validate));
    lines.push(`import ${name}Code from './${name}.cjs';`, `export const ${name} = () => ${name}Code;`);
  }
  return { code: lines.join('\n'), moduleType: 'js' };
}

const build = await rolldown({
  input: Object.fromEntries(Object.entries(ENTRIES).map(([name, file]) => [name, join(dist, file)])),
  platform: 'node',
  external: Object.keys({ ...dependencies, ...optionalDependencies }),
  logLevel: 'warn',
  plugins: [{ name: 'place', load: compiled, transform: placed }],
});
const { output } = await build.write({ dir: folder, format: 'esm', chunkFileNames: '[name]-[hash].js' });
await build.close();
writeFileSync(join(folder, 'LICENSES.txt'), licences(output.flatMap(({ moduleIds = [] }) => moduleIds)));
// The checker of OpenAPI documents reads schemas beside itself.
const checker = output
  .flatMap(({ moduleIds = [] }) => moduleIds)
  .find((id) => id.endsWith('openapi-schema-validator/index.js'));
if (checker !== undefined) cpSync(join(dirname(checker), 'schemas'), join(folder, 'schemas'), { recursive: true });
const made = new Set([...output.map(({ fileName }) => fileName), 'LICENSES.txt', 'schemas']);
for (const file of readdirSync(folder)) if (!made.has(file)) rmSync(join(folder, file), { recursive: true });

/** The licences of the packages that the bundle holds, which ask to be passed on with them. */
function licences(modules) {
  const packages = new Set(modules.map((id) => /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(id)?.[0]).filter(Boolean));
  return [...packages].map(licence).sort().join('\n\n');
}

function licence(path) {
  const { name, version, license } = readJson(join(path, 'package.json'));
  const file = readdirSync(path).find((one) => /^licen[cs]e/i.test(one));
  const text = file === undefined ? '' : readFileSync(join(path, file), 'utf8');
  return `${name} ${version} (${license})\n\n${text.trim()}`;
}

function readJson(file) {
  return JSON.parse(readFileSync(file, 'utf8'));
}
