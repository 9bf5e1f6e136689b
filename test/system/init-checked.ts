import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'vitest';
import { loadConfiguration } from '../../src/config/load.ts';
import type { Tool } from '../../src/effects/model/tool.ts';
import { publishedDocument, type PublishedName } from '../public-documents.ts';

const run = promisify(execFile);
const measured = join(process.cwd(), 'test', 'system', 'measured.mjs');

/**
 * Documents whose tools are called as well, with how many operations have bodies that the mock finds no example of:
 * schemas that exclude one another.
 */
export const CALLED: readonly (readonly [name: PublishedName, unsampled: number])[] = [
  ['stripe.json', 0],
  ['twilio.json', 0],
  ['slack.json', 0],
  ['asana.json', 0],
  ['digitalocean.json', 12],
];

/**
 * Runs `svc init` for a document in a folder, with further words, and sees that it took under 20 s and 1 GB and that
 * every operation of the document is a tool or is named among those that were left out.
 */
export async function initChecked(name: PublishedName, folder: string, ...words: readonly string[]): Promise<void> {
  const document = publishedDocument(name);
  const { stderr } = await run(process.execPath, [measured, 'init', '--openapi', document, '--yes', ...words], {
    cwd: folder,
    maxBuffer: 64 * 1024 * 1024,
  });
  expect(stderr).not.toContain('could not be checked');
  const { kilobytes, cpuMs } = JSON.parse(stderr.trim().split('\n').at(-1) ?? '');
  // The processor's time: what other processes take meanwhile is not the product's.
  expect(cpuMs).toBeLessThan(20_000);
  expect(kilobytes).toBeLessThan(1_000_000);
  const text = readFileSync(join(folder, 'gateway.yaml'), 'utf8');
  const tools = text.match(/^ {2}- name: /gm)?.length ?? 0;
  const leftOut = text.split('# In the OpenAPI document and not declared:\n')[1]?.trim().split('\n').length ?? 0;
  expect(tools + leftOut).toBe(operations(document));
  // Of two paths of which one comes before the other both are declared.
  const alike = [...text.matchAll(/^# {3}\w+ (\S+): the same requests as (\S+)$/gm)];
  for (const [, path = '', other = ''] of alike) expect([path, other]).toSatisfy(isCrossed);
}

/**
 * Takes the comment off each proposed probe, and sees that the configuration holds, and that none of them ever concludes
 * that a call did not happen.
 * @returns the tools that have one
 */
export async function withProposedProbes(folder: string): Promise<readonly Tool[]> {
  const file = join(folder, 'gateway.yaml');
  const text = readFileSync(file, 'utf8');
  const probing = join(folder, 'probing.yaml');
  writeFileSync(probing, text.replaceAll('    # probe: {', '    probe: {'));
  const { configuration, warnings } = await loadConfiguration(probing);
  expect(warnings).toEqual([]);
  const tools = configuration.tools.filter(({ probe }) => probe !== undefined);
  expect(tools.length).toBe(text.split('    # probe: {').length - 1);
  expect(tools.filter(({ probe }) => Object.keys(probe?.notHappened ?? {}).length > 0)).toEqual([]);
  return tools;
}

/** Whether each of two paths has a fixed segment where the other has a param, or both have the same shape. */
function isCrossed([path = '', other = '']: readonly string[]): boolean {
  const [one, two] = [path, other].map((each) => each.split('/').map((part) => part.startsWith('{')));
  const onlyOne = one?.some((isParam, index) => isParam && two?.[index] === false);
  const onlyTwo = two?.some((isParam, index) => isParam && one?.[index] === false);
  return onlyOne === onlyTwo;
}

/** Counted without a parser: methods under paths. */
function operations(document: string): number {
  const text = readFileSync(document, 'utf8');
  if (!document.endsWith('.json')) {
    const [, paths = ''] = /^paths:\n((?: .*\n|\n)*)/m.exec(text) ?? [];
    return paths.match(/^ {4}(?:get|put|post|delete|options|patch):/gm)?.length ?? 0;
  }
  const { paths }: { readonly paths: Readonly<Record<string, object>> } = JSON.parse(text);
  const methods = new Set(['get', 'put', 'post', 'delete', 'options', 'patch']);
  return Object.values(paths).reduce(
    (count, item) => count + Object.keys(item).filter((method) => methods.has(method)).length,
    0,
  );
}
