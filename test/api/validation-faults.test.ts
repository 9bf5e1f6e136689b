import { Ajv2020 } from 'ajv/dist/2020.js';
import { expect, test } from 'vitest';
import { validationFaults } from '../../src/api/validation-faults.ts';
import { MOST_FAULTS } from '../../src/diagnostics/stop-at.ts';
import { createCatalog } from '../../src/upstreams/catalog.ts';
import { shortest } from '../shortest.ts';
import { makeTool } from '../upstreams/tool.ts';

const COUNT = 60_000;

test.each<[object, unknown, string]>([
  [{ type: 'integer' }, 'x', 'must be an integer'],
  [{ type: 'boolean' }, 'x', 'must be a boolean'],
  [{ const: 'UNKNOWN' }, 'DONE', 'must be "UNKNOWN"'],
  [{ enum: ['a', 'b'] }, 'c', 'must be one of "a", "b"'],
  [{ type: 'string', minLength: 1 }, '', 'must not be empty'],
  [{ type: 'string', minLength: 3 }, 'ab', 'must have at least 3 characters'],
  [{ type: 'string', maxLength: 2 }, 'abc', 'must have at most 2 characters'],
  [{ type: 'string', pattern: '^eff_' }, 'x', 'must match ^eff_'],
  [{ type: 'string', pattern: '^eff_', examples: ['eff_1'] }, 'x', 'must match ^eff_, such as eff_1'],
  [{ type: 'object', minProperties: 1 }, {}, 'must have at least 1 field'],
  [{ type: 'object', maxProperties: 1 }, { a: 1, b: 2 }, 'must have at most 1 field'],
  [{ type: 'object', maxProperties: 2 }, { a: 1, b: 2, c: 3 }, 'must have at most 2 fields'],
])('of %j, %j is told as people say it', (schema, value, message) => {
  const fits = new Ajv2020({ allErrors: true, verbose: true, strict: false }).compile({
    type: 'object',
    properties: { it: schema },
  });
  expect(fits({ it: value })).toBe(false);
  const errors = (fits.errors ?? []).map((error) => ({ ...error }));
  expect(validationFaults(errors, 'body')).toEqual([{ path: '/it', message }]);
  expect(validationFaults(errors, 'querystring')).toEqual([{ path: '/query/it', message }]);
  expect(validationFaults(errors, 'params')).toEqual([{ path: '/params/it', message }]);
});

test('a name of any length is shown by its beginning', () => {
  const fits = new Ajv2020({ verbose: true }).compile({ type: 'object', properties: {}, additionalProperties: false });
  expect(fits({ ['x'.repeat(500)]: 1 })).toBe(false);
  const errors = (fits.errors ?? []).map((error) => ({ ...error }));
  expect(validationFaults(errors, 'body')).toEqual([
    { path: `/${'x'.repeat(300)}`, message: `unknown field "${'x'.repeat(100)}"` },
  ]);
});

test('of very many unknown fields the first hundred are named, in no time', async () => {
  const errors = Array.from({ length: COUNT }, (_, n) => ({
    keyword: 'additionalProperties',
    instancePath: '',
    schemaPath: '#/additionalProperties',
    params: { additionalProperty: `tool_${n}` },
    parentSchema: { properties: { tool: {}, target: {}, params: {} } },
  }));
  let faults: ReturnType<typeof validationFaults> = [];
  const judge = (): number => {
    const began = performance.now();
    faults = validationFaults([...errors, ...errors.slice(0, 50)], 'body');
    return performance.now() - began;
  };
  expect(await shortest(1000, judge)).toBeLessThan(1000);
  expect(faults).toHaveLength(MOST_FAULTS);
  expect(faults[0]).toEqual({ path: '/tool_0', message: `unknown field "tool_0"; did you mean 'tool'?` });
});

test('of very many unknown params the first hundred are named', async () => {
  const tool = makeTool({ target: null, request: { method: 'POST', path: '/x', query: [], headers: {}, body: [] } });
  const catalog = createCatalog([tool]);
  const params = Object.fromEntries(Array.from({ length: COUNT }, (_, n) => [`z${n}`, 1]));
  let faults: ReturnType<typeof catalog.check> = [];
  const judge = (): number => {
    const began = performance.now();
    faults = catalog.check(tool, params);
    return performance.now() - began;
  };
  expect(await shortest(1000, judge)).toBeLessThan(1000);
  expect(faults).toHaveLength(MOST_FAULTS);
});
