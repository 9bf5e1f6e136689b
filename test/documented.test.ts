import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { Documented, documented } from './documented.ts';

const CLAIM = {
  id: 'clm_1',
  workspace: 'demo',
  target: 'payment:pay_1',
  agent_id: 'bot',
  created_at: '2026-01-31T12:00:00.000Z',
  expires_at: '2026-01-31T12:05:00.000Z',
  running_effects: [],
  extended_until: null,
};
const PATH = '/v1/workspaces/demo/claims';
const faultOf = (body: unknown, change: Partial<Parameters<typeof documented.faultOf>[0]> = {}): string | null =>
  documented.faultOf({
    method: 'GET',
    path: PATH,
    status: 200,
    contentType: 'application/json; charset=utf-8',
    text: JSON.stringify(body),
    ...change,
  });

it('finds what of an answer is not as documented, and says where', () => {
  expect(faultOf({ claims: [CLAIM] })).toBeNull();
  expect(faultOf({ claims: [{ ...CLAIM, extended_until: 'soon' }] })).toMatch(/^GET .*\/claims 200: \/claims\/0\//);
  const { target: _, ...without } = CLAIM;
  expect(faultOf({ claims: [without] })).toMatch(/"missingProperty":"target"/);
  expect(faultOf({ claims: [{ ...CLAIM, salary: 1 }] })).toMatch(/"additionalProperty":"salary"/);
  expect(faultOf({}, { status: 204 })).toMatch(/this status is not documented/);
  expect(faultOf({}, { contentType: 'text/html' })).toMatch(/text\/html is not documented/);
  expect(faultOf({}, { status: 404, contentType: 'application/problem+json' })).toMatch(/missingProperty/);
  expect(faultOf({ x: 1 }, { method: 'PATCH' })).toMatch(/PATCH .* is not documented/);
  expect(faultOf({ x: 1 }, { path: '/payments/v1/payments' })).toBeNull();
});

it('each schema of an answer compiles, and none of a 2xx is any object', () => {
  const text = readFileSync(new URL('../schemas/openapi.json', import.meta.url), 'utf8');
  const { paths } = JSON.parse(text);
  const fresh = new Documented(text);
  const open: string[] = [];
  for (const [path, operations] of Object.entries<Record<string, { responses: Responses }>>(paths))
    for (const [method, { responses }] of Object.entries(operations))
      for (const [key, { content = {} }] of Object.entries(responses))
        for (const [contentType, { schema }] of Object.entries(content)) {
          const status = Number(key.replace('XX', '00'));
          expect(() => fresh.faultOf({ method, path, status, contentType, text: '{}' })).not.toThrow();
          const isOpen = schema.type === 'object' && schema.properties === undefined;
          if (key.startsWith('2') && isOpen) open.push(`${method} ${path} ${key}`);
        }
  expect(open).toEqual([]);
});

type Responses = Readonly<Record<string, { readonly content?: Readonly<Record<string, { readonly schema: Schema }>> }>>;

interface Schema {
  readonly type?: string;
  readonly properties?: object;
}
