// Which tests run when, from `selection.json`. `form`: with `npm run verify`. `deep`: with `npm run test:deep`. `once`: on the
// first of two Nodes only, as nothing in them can differ on the second. Who names a file to vitest runs it in any case.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const groups = JSON.parse(readFileSync(new URL('selection.json', import.meta.url), 'utf8'));

/** What a run leaves to another. */
const LEFT = { first: ['form', 'deep'], second: ['form', 'deep', 'once'] };

/** Patterns of the files that a run leaves out; `undefined`: not one of `run.mjs`. */
export function leftOut(run) {
  return (LEFT[run] ?? []).flatMap((group) => groups[group].flatMap(({ files }) => files));
}

/** The same for a person: what is left out, and why. */
export function leftOutInWords(run) {
  return (LEFT[run] ?? []).flatMap((group) => groups[group].map(({ files, why }) => `${files.join(' ')}: ${why}`));
}

/**
 * The files of a group.
 * @throws Error when a pattern has none: it would leave out nothing, and say that it does
 */
export function filesOf(root, group) {
  const all = testFiles(root);
  const patterns = groups[group].flatMap(({ files }) => files.flatMap(withoutBraces));
  return patterns.flatMap((pattern) => {
    const found = all.filter((file) => asExpression(pattern).test(file));
    if (found.length === 0) throw new Error(`test/selection.json: there is no ${pattern}`);
    return found;
  });
}

/** Files that `npm run test:deep` runs as well, on more inputs: those with properties, and torture. */
export function deeper(root) {
  const isDeeper = /from 'fast-check'|\bDEEP\b|\bSHARE\b/;
  return testFiles(root).filter((file) => isDeeper.test(readFileSync(join(root, file), 'utf8')));
}

function testFiles(root) {
  return ['test', 'client/test'].flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('.test.ts'))
      .map((file) => join(folder, file)),
  );
}

/** Of `{one,another}.ts` both. */
function withoutBraces(pattern) {
  const [, before, names, after] = /^(.*)\{(.*)\}(.*)$/.exec(pattern) ?? [];
  return names === undefined ? [pattern] : names.split(',').map((name) => `${before}${name}${after}`);
}

function asExpression(pattern) {
  return new RegExp(`^${pattern.replaceAll('.', '\\.').replaceAll('*', '[^/]*')}$`);
}
