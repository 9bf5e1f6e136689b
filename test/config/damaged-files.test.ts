import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { checkConfiguration } from '../../src/config/load.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const folder = mkdtempSync(join(tmpdir(), 'svc-config-'));
afterAll(() => rmSync(folder, { recursive: true }));

describe('damaged files', () => {
  const demo = readFileSync(join(ROOT, 'config', 'demo.yaml'), 'utf8');
  const scraps = [
    '',
    ' ',
    '\n',
    '\t',
    ':',
    '- ',
    '{',
    '}',
    '[',
    ']',
    '"',
    "'",
    '*',
    '&a',
    '!!x',
    '#',
    '|',
    '${',
    '0',
    '\u0000',
    '__proto__',
    '~',
    '<<: ',
    '---\n',
    '1e999',
    '😀',
  ];

  it('are refused with findings in their text, or load; nothing else happens', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.nat(demo.length), fc.nat(40), fc.constantFrom(...scraps)), { minLength: 1, maxLength: 4 }),
        async (cuts) => {
          const text = cuts.reduce(
            (now, [at, length, scrap]) => now.slice(0, at) + scrap + now.slice(at + length),
            demo,
          );
          const file = join(folder, 'damaged.yaml');
          writeFileSync(file, text);
          const { findings, exit } = await checkConfiguration(file);
          const lines = text.split('\n');
          for (const { at } of findings) {
            if (at === null) continue;
            expect(at.line).toBeLessThanOrEqual(lines.length);
            expect(at.column).toBeLessThanOrEqual((lines[at.line - 1] ?? '').length + 1);
          }
          expect(exit === 1).toBe(findings.some(({ severity }) => severity === 'error'));
        },
      ),
      {
        // The parser gives up early here; its own line numbers were wrong beyond.
        examples: [
          [
            [
              [0, 23, ''],
              [2325, 3, ''],
            ],
          ],
        ],
      },
    );
  });
});
