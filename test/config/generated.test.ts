import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { LIMITS, limitsMarkdown, type Limit } from '../../src/config/limits.ts';
import { configurationMarkdown } from '../../src/config/reference.ts';
import { gatewayJsonSchema } from '../../src/config/schema.ts';
import { parseDuration, parseSize } from '../../src/config/units.ts';

const ROOT = join(import.meta.dirname, '..', '..');

/** Files that are made from the code. `npx vitest run --project unit test/config/generated.test.ts -u` makes them anew. */
describe('generated files agree with the code', () => {
  it('schemas/gateway.schema.json', async () => {
    const text = `${JSON.stringify(gatewayJsonSchema(), null, 2)}\n`;
    await expect(text).toMatchFileSnapshot(join(ROOT, 'schemas', 'gateway.schema.json'));
  });

  it('docs/operating/limits.md', async () => {
    await expect(limitsMarkdown()).toMatchFileSnapshot(join(ROOT, 'docs', 'operating', 'limits.md'));
  });

  it('docs/operating/configuration.md', async () => {
    await expect(configurationMarkdown()).toMatchFileSnapshot(join(ROOT, 'docs', 'operating', 'configuration.md'));
  });
});

describe('limits', () => {
  const fixed = Object.entries<Limit>(LIMITS).flatMap(([name, { value, source }]) =>
    source === null || source === 'configuration' ? [] : [{ name, value, source }],
  );

  it('most have a constant to be compared with', () => {
    expect(fixed.length).toBeGreaterThan(15);
  });

  it.each(fixed)('$name is what $source says', ({ value, source }) => {
    const [file = '', constant = ''] = source.split('#');
    expect(constantIn(readFileSync(join(ROOT, file), 'utf8'), constant)).toBe(numberOf(value, constant));
  });
});

/** The value of `const NAME = 24 * 60 * 1000;` or of a field of `const NAME = { field: 16 }`. */
function constantIn(source: string, constant: string): number {
  const [name = '', field] = constant.split('.');
  const text = new RegExp(`const ${name}(?:: \\w+)? = ([^;]+);`).exec(source)?.[1] ?? '';
  const product = field === undefined ? text : (new RegExp(`\\b${field}: ([0-9_ *]+)`).exec(text)?.[1] ?? '');
  expect(product, `${constant} is a number`).toMatch(/^[0-9_ *]+$/);
  return product.split('*').reduce((total, factor) => total * Number(factor.trim().replaceAll('_', '')), 1);
}

function numberOf(value: string | number, constant: string): number {
  if (typeof value === 'number') return value;
  const milliseconds = parseDuration(value);
  if (milliseconds === null) return parseSize(value) ?? Number.NaN;
  return constant.endsWith('_S') ? milliseconds / 1000 : milliseconds;
}
