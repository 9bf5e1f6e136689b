import { expect, test } from 'vitest';
import { validationFaults } from '../../src/api/validation-faults.ts';
import { MOST_FAULTS } from '../../src/diagnostics/stop-at.ts';
import { createCatalog } from '../../src/upstreams/catalog.ts';
import { shortest } from '../shortest.ts';
import { makeTool } from '../upstreams/tool.ts';

const COUNT = 60_000;

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
