import { expect, test } from 'vitest';
import { validationFaults } from '../../src/api/validation-faults.ts';
import { createCatalog } from '../../src/upstreams/catalog.ts';
import { makeTool } from '../upstreams/tool.ts';

const COUNT = 60_000;

test('very many unknown fields are judged in linear time, and all are counted', () => {
  const errors = Array.from({ length: COUNT }, (_, n) => ({
    keyword: 'additionalProperties',
    instancePath: '',
    schemaPath: '#/additionalProperties',
    params: { additionalProperty: `tool_${n}` },
    parentSchema: { properties: { tool: {}, target: {}, params: {} } },
  }));
  const began = performance.now();
  const faults = validationFaults([...errors, ...errors.slice(0, 50)], 'body');
  expect(performance.now() - began).toBeLessThan(1000);
  expect(faults).toHaveLength(COUNT);
  expect(faults[0]).toEqual({ path: '/tool_0', message: `unknown field "tool_0"; did you mean 'tool'?` });
});

test('very many unknown params are judged in linear time, and all are found', () => {
  const tool = makeTool({ target: null, request: { method: 'POST', path: '/x', query: [], headers: {}, body: [] } });
  const catalog = createCatalog([tool]);
  const params = Object.fromEntries(Array.from({ length: COUNT }, (_, n) => [`z${n}`, 1]));
  const began = performance.now();
  const faults = catalog.check(tool, params);
  expect(performance.now() - began).toBeLessThan(1000);
  expect(faults).toHaveLength(COUNT);
});
