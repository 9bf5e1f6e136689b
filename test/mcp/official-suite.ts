import { execFile } from 'node:child_process';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { node24 } from '../node-24.mjs';

/** The line of the suite that knows both eras, and the one before it. */
type Suite = '@modelcontextprotocol/conformance' | 'conformance-0.1';

/**
 * Runs the official conformance suite against a server, on a Node that it supports. What it thinks of the server stands
 * in its files in `output`; it exits with 1 where any check has failed.
 */
export async function runSuite(
  url: string,
  output: string,
  options: readonly string[],
  suite: Suite = '@modelcontextprotocol/conformance',
): Promise<void> {
  const program = join(dirname(createRequire(import.meta.url).resolve(`${suite}/package.json`)), 'dist/index.js');
  const words = [program, 'server', '--url', url, '-o', output, ...options];
  await new Promise<void>((resolve) => void execFile(node24(), words, { cwd: output }, () => resolve()));
}
