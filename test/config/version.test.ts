import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { VERSION } from '../../src/version.ts';

it.each(['package.json', 'client/package.json'])('the version in the code is that of %s', (file) => {
  expect(VERSION).toBe(JSON.parse(readFileSync(file, 'utf8')).version);
});
