import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, it } from 'vitest';
import { GATEWAY_FILE } from '../../src/config/schema.ts';
import { readYamlSource } from '../../src/diagnostics/yaml-source.ts';
import { policyJsonSchema } from '../../src/policy/schema.ts';
import { parseDuration, parseSize } from '../../src/config/units.ts';
import { configurationMarkdown } from './configuration-page.ts';
import { gatewayJsonSchema } from './schema-for-editors.ts';

const ROOT = join(import.meta.dirname, '..', '..');

/** Files that are made from the code. `npx vitest run --project unit test/config/generated.test.ts -u` makes them anew. */
describe('generated files agree with the code', () => {
  it('schemas/gateway.schema.json', async () => {
    const text = `${JSON.stringify(gatewayJsonSchema(), null, 2)}\n`;
    await expect(text).toMatchFileSnapshot(join(ROOT, 'schemas', 'gateway.schema.json'));
  });

  it('schemas/policy-v1.schema.json', async () => {
    const text = `${JSON.stringify(policyJsonSchema(), null, 2)}\n`;
    await expect(text).toMatchFileSnapshot(join(ROOT, 'schemas', 'policy-v1.schema.json'));
  });

  it('docs/operating/configuration.md', async () => {
    await expect(configurationMarkdown()).toMatchFileSnapshot(join(ROOT, 'docs', 'operating', 'configuration.md'));
  });
});

describe('schemas for editors', () => {
  const check = (schema: object) => new Ajv2020({ strict: false, allErrors: true }).compile(schema);
  const gateway = check(gatewayJsonSchema());
  const policy = check(policyJsonSchema());
  const yamlIn = (folder: string) =>
    readdirSync(join(ROOT, folder))
      .filter((name) => name.endsWith('.yaml'))
      .map((name) => ({
        name: join(folder, name),
        data: readYamlSource(name, readFileSync(join(ROOT, folder, name), 'utf8')).value,
      }));
  const shipped = [...yamlIn('config'), ...yamlIn('policies')].filter(({ name }) => !name.endsWith('.test.yaml'));

  it.each(shipped)('accept $name', ({ name, data }) => {
    const validate = /policy|policies/.test(name) ? policy : gateway;
    expect(validate(data), JSON.stringify(validate.errors)).toBe(true);
  });

  it.each<[string, unknown, boolean]>([
    ['a misspelt field', { server: { prot: 1 } }, false],
    ['a misspelt section', { sever: {} }, false],
    ['what comes later', { policies: { paths: [{ path: 'a', scope: 'b' }] } }, false],
    ['a wrong port', { server: { port: 70_000 } }, false],
    ['a port from the environment', { server: { port: '${PORT}' } }, true],
    ['a port in words', { server: { port: 'eighty' } }, false],
    ['a word from the environment', { policies: { mode: '${MODE:-enforce}' } }, true],
    ['a wrong word', { policies: { mode: 'enforced' } }, false],
    ['a missing id', { workspaces: [{ env: 'prod' }] }, false],
    ['left out defaults', { workspaces: [{ id: 'a' }], store: {} }, true],
  ])('%s', (_what, data, isRight) => {
    expect(gateway(data)).toBe(isRight);
  });

  it('describe every field', () => {
    const bare: string[] = [];
    const look = (schema: unknown, path: string): void => {
      if (typeof schema !== 'object' || schema === null) return;
      const fields: unknown = Reflect.get(schema, 'properties');
      for (const [name, field] of Object.entries(fields ?? {})) {
        const description: unknown =
          typeof field === 'object' && field !== null ? Reflect.get(field, 'description') : '';
        if (typeof description !== 'string' || description.length < 5) bare.push(`${path}/${name}`);
      }
      for (const [name, inner] of Object.entries(schema)) look(inner, `${path}/${name}`);
    };
    look(gatewayJsonSchema(), '');
    expect(bare).toEqual([]);
  });
});

describe('docs/operating/limits.md', () => {
  const page = readFileSync(join(ROOT, 'docs', 'operating', 'limits.md'), 'utf8');
  const rows = [...page.matchAll(/^\| (.+?) \| (\S+) \| (.+?) \| .+ \|$/gm)].map(
    ([, what = '', value = '', set = '']) => {
      const [, kind, name = ''] = /^(fixed: |)`(?:limits\.)?(.+)`$/.exec(set) ?? [];
      return { what, value, set, name, kind: kind === undefined ? 'form' : kind === '' ? 'configured' : 'fixed' };
    },
  );
  const configured = rows.filter(({ kind }) => kind === 'configured');
  const fixed = rows.filter(({ kind }) => kind === 'fixed');

  it('has a row for each limit that can be set, with its default, in the words of the schema', () => {
    const settings = Object.entries(GATEWAY_FILE.properties.limits.properties).map(([name, setting]) => ({
      name,
      value: String(Reflect.get(setting, 'default')),
      what: String(Reflect.get(setting, 'description')).replace(/\.$/, ''),
    }));
    const stated = configured.map(({ name, value, what }) => ({ name, value, what }));
    expect(stated.toSorted(byName)).toEqual(settings.toSorted(byName));
  });

  it('names a constant for nearly each of the others', () => {
    const lines = page.split('\n').filter((line) => line.startsWith('| '));
    expect(rows.length, 'rows that can be read').toBe(lines.length);
    expect(fixed.length).toBeGreaterThan(60);
    expect(rows.filter(({ set }) => set === 'fixed').length).toBe(2);
  });

  it.each(fixed)('$name is $value', ({ name, value }) => {
    const [file = '', constant = ''] = name.split('#');
    expect(constantIn(readFileSync(join(ROOT, file), 'utf8'), constant)).toBe(numberOf(value, constant));
  });
});

function byName(one: { readonly name: string }, other: { readonly name: string }): number {
  return one.name < other.name ? -1 : 1;
}

/** The value of `const NAME = 24 * 60 * 1000;` or of a field of `const NAME = { field: 16 }`. */
function constantIn(source: string, constant: string): number {
  const [name = '', field] = constant.split('.');
  const text = new RegExp(`const ${name}(?:: \\w+)? = ([^;]+);`).exec(source)?.[1] ?? '';
  const product = field === undefined ? text : (new RegExp(`\\b${field}: ([0-9_ *]+)`).exec(text)?.[1] ?? '');
  expect(product, `${constant} is a number`).toMatch(/^[0-9_ *]+$/);
  return product.split('*').reduce((total, factor) => total * Number(factor.trim().replaceAll('_', '')), 1);
}

function numberOf(value: string, constant: string): number {
  if (/^[0-9]+$/.test(value)) return Number(value);
  const milliseconds = parseDuration(value);
  if (milliseconds === null) return parseSize(value) ?? Number.NaN;
  return constant.endsWith('_S') ? milliseconds / 1000 : milliseconds;
}
