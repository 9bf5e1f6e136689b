import { execFile } from 'node:child_process';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { node24 } from '../node-24.mjs';

const SUITE = join(
  dirname(createRequire(import.meta.url).resolve('@modelcontextprotocol/conformance/package.json')),
  'dist/index.js',
);

/**
 * Runs the official conformance suite against a server, on a Node that it supports. What it thinks of the server stands
 * in its files in `output`; it exits with 1 where any check has failed.
 */
export async function runSuite(url: string, output: string, options: readonly string[]): Promise<void> {
  const words = [SUITE, 'server', '--url', url, '-o', output, ...options];
  await new Promise<void>((resolve) => void execFile(node24(), words, { cwd: output }, () => resolve()));
}
