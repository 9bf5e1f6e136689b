import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { checkConfiguration } from '../../src/config/load.ts';
import type { Finding } from '../../src/diagnostics/finding.ts';

/**
 * `broken/*.cases`: files with faults. Each case is `### name`, the YAML, and one line `#= line:column code | message |
 * hint` per finding, in order. Everything that is found is compared, so that a fault is told once, in its place.
 */
const FOLDER = join(import.meta.dirname, 'broken');

const ENVIRONMENT = { SVC_TEST_EMPTY: '', SVC_TEST_TEXT: 'some-text', SVC_TEST_LINES: 'a\r\nx: y' };

interface Case {
  readonly name: string;
  readonly yaml: string;
  readonly expected: readonly string[];
}

function readCases(text: string): Case[] {
  return text
    .split(/^### /m)
    .slice(1)
    .map((block) => {
      const [name = '', ...lines] = block.trimEnd().split('\n');
      const yaml = lines.filter((line) => !line.startsWith('#= '));
      return {
        name,
        yaml: yaml.length === 0 ? '' : `${yaml.join('\n')}\n`,
        expected: lines.filter((line) => line.startsWith('#= ')).map((line) => line.slice(3)),
      };
    });
}

function written({ at, severity, code, message, hint }: Finding): string {
  const place = at === null ? '-' : `${at.line}:${at.column}`;
  const level = severity === 'warning' ? 'warning ' : '';
  return `${place} ${level}${code} | ${message}${hint === null ? '' : ` | ${hint}`}`;
}

const files = readdirSync(FOLDER).map((name) => ({ name, cases: readCases(readFileSync(join(FOLDER, name), 'utf8')) }));

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-config-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

it('has the whole corpus', () => {
  expect(files.flatMap(({ cases }) => cases).length).toBeGreaterThan(130);
});

/** What only certificates of the day have, which `upstream-tls.test.ts` makes. */
const OF_CERTIFICATES: readonly string[] = ['too_many_cas', 'certificate_expired', 'certificate_not_yet_valid'];

it('has a case for each code that the configuration is refused or warned with', () => {
  const sources = readdirSync('src/config').map((name) => readFileSync(join('src/config', name), 'utf8'));
  const codes = sources.flatMap((text) => [...text.matchAll(/(?:\.(?:error|warn)|\bfault)\(\s*'([a-z_]+)'/g)]);
  const asked = files.flatMap(({ cases }) =>
    cases.flatMap(({ expected }) => expected.map((line) => line.split(' | ')[0])),
  );
  const known = new Set(asked.map((line) => line?.split(' ').at(-1)));
  expect(codes.length).toBeGreaterThan(75);
  const missing = codes.map(([, code = '']) => code).filter((code) => !known.has(code));
  expect([...new Set(missing)].toSorted()).toEqual(OF_CERTIFICATES.toSorted());
});

for (const { name, cases } of files) {
  describe(name, () => {
    it.each(cases)('$name', async ({ yaml, expected }) => {
      const file = join(folder, 'gateway.yaml');
      writeFileSync(file, yaml);
      const report = await checkConfiguration(file, { environment: ENVIRONMENT, color: false });
      expect(report.findings.map(written)).toEqual(expected);
      expect(expected.length).toBeGreaterThan(0);
      const hasError = report.findings.some(({ severity }) => severity === 'error');
      expect(report.exit).toBe(hasError ? 1 : 0);
      for (const { at } of report.findings) if (at !== null) expect(report.text).toContain(`${at.line}:${at.column}`);
      for (const secret of [
        'hunter2',
        'HUNTER2',
        'x: y\r\n',
        '51H8abcdefghijklmnop',
        'IOSFODNN7',
        'MC4CAQAwBQ',
        'c2lnbmF0dXJl',
        'some-text',
        'aHVudGVyM',
      ])
        expect(report.text).not.toContain(secret);
    });
  });
}
