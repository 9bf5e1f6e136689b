import { expect, test } from 'vitest';
import { InvalidFiles } from '../../src/diagnostics/render.ts';
import { compilePolicies } from '../../src/policy/load.ts';
import { HEAD, tool } from './fixtures.ts';

const APPLY = tool('kube.apply', {
  paramsSchema: {
    type: 'object',
    properties: { metadata: { $ref: '#/$defs/meta' }, kind: { type: 'string' } },
    additionalProperties: false,
    $defs: {
      meta: {
        type: 'object',
        properties: { name: { type: 'string' }, labels: { type: 'object' } },
        additionalProperties: false,
      },
    },
  },
});
const OPEN = tool('kube.patch', { paramsSchema: { type: 'object', properties: { kind: { type: 'string' } } } });
const ANY = tool('kube.any', { paramsSchema: null });

/** What is found in one rule for some tools, as `line:column severity code message (hint)`. */
function found(tools: string, rest: string): readonly string[] {
  const text = `${HEAD}rules:\n  - { id: a, effect: constrain, match: { tools: [${tools}] }, ${rest} }\n`;
  const given = {
    tools: [APPLY, OPEN, ANY],
    upstreams: ['kube'],
    pools: new Map([['web', 1]]),
    roles: [],
    rolesOf: new Map(),
  };
  const findings = ((): InvalidFiles['findings'] => {
    try {
      return compilePolicies([{ file: 'p.yaml', text, lists: new Map() }], given).warnings;
    } catch (error) {
      if (error instanceof InvalidFiles) return error.findings;
      throw error;
    }
  })();
  return findings
    .filter(({ code }) => code === 'nameless')
    .map(({ at, severity, message, hint }) => `${at?.line}:${at?.column} ${severity} ${message} (${hint})`);
}

const claim = (on: string): string => `obligations: [{ redact: { params: [kind] } }, { claim: { on: '${on}' } }]`;
const PLACE = /^\d+:1[0-9]{2} /;

test.each([
  ['x:${params.metadata.nmae}', "'params.metadata.nmae'", "did you mean 'params.metadata.name'?"],
  ['x:${params.metadata}', "'params.metadata' is of type object", 'null'],
  ['x:${params.kind.name}', "'params.kind.name'", 'null'],
])('a claim on %s that no call of the tool can name is an error', (on, message, hint) => {
  const [first = '', ...others] = found('kube.apply', claim(on));
  expect(others).toEqual([]);
  expect(first).toMatch(PLACE);
  expect(first).toContain(' error ');
  expect(first).toContain(message);
  expect(first).toContain('in calls of kube.apply: each is refused');
  expect(first).toContain(`(${hint})`);
});

test('a pool is named so, too', () => {
  const [first] = found('kube.apply', 'obligations: [{ reserve: { pool: "${params.pool}" } }]');
  expect(first).toContain(
    " error There is no 'params.pool' in calls of kube.apply: each is refused (known: params.metadata",
  );
});

test('of several names that one is pointed at', () => {
  const obligations = "obligations: [{ claim: { on: '${params.kind}' } }, { reserve: { pool: '${params.pool}' } }]";
  const [first, ...others] = found('kube.apply', obligations);
  expect(others).toEqual([]);
  const before = '  - { id: a, effect: constrain, match: { tools: [kube.apply] }, ';
  const column = before.length + obligations.indexOf("'${params.pool") + 1;
  expect(first).toMatch(new RegExp(`^5:${column} error `));
});

test('what some tools of a rule cannot name, or a schema only does not list, is a warning', () => {
  expect(found('kube.apply, kube.any', claim('${params.pod}'))).toEqual([
    expect.stringContaining(" warning There is no 'params.pod' in calls of kube.apply: each is refused"),
  ]);
  expect(found('kube.patch', claim('${params.pod}'))).toEqual([expect.stringContaining(' warning ')]);
});

test.each(['${params.metadata.name}', '${params.metadata.labels["a/b"]}', '${params.kind}:${target}'])(
  '%s can be named',
  (on) => expect(found('kube.apply', claim(on))).toEqual([]),
);
