import { afterAll, beforeAll, expect, it } from 'vitest';
import { type Keys, type Rig, refund, startRig } from './rig.ts';

let rig: Rig;
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.close());

const COLUMNS: readonly (keyof Keys | 'none')[] = [
  'account',
  'agent',
  'otherAgent',
  'admin',
  'readonly',
  'operator',
  'auditor',
  'runner',
  'stranger',
  'expired',
  'revoked',
  'none',
];

const METHODS: Readonly<Record<string, 'GET' | 'PUT' | 'DELETE'>> = { get: 'GET', put: 'PUT', delete: 'DELETE' };

/**
 * Every route with every kind of key, with empty bodies: what passes authentication and permission is a 400, what
 * exists is a 200, and what may not be seen is a 404. A change of this table is a change of who may do what.
 */
it('who gets what, route by route', async () => {
  const made = await rig.send('POST', '/v1/workspaces/demo/effects', { key: rig.keys.agent, body: refund() });
  const claim = await rig.send('POST', '/v1/workspaces/demo/claims', {
    key: rig.keys.agent,
    body: { target: 'payment:pay_9', ttl_s: 600 },
  });
  const waiting = await rig.send('POST', '/v1/workspaces/demo/effects', {
    key: rig.keys.agent,
    body: refund({ params: { payment_id: 'pay_3', amount: 60_000, currency: 'EUR' } }),
  });
  const ids: Readonly<Record<string, string>> = {
    effects: String(made.json['effect_id']),
    claims: String(claim.json['id']),
    approvals: (waiting.json['approval'] as unknown as { id: string }).id,
  };
  const { json } = await rig.send('GET', '/openapi.json', { key: null });
  const paths = json['paths'] as unknown as Record<
    string,
    Record<string, { security?: unknown; tags: readonly string[] }>
  >;
  const routes = Object.entries(paths).flatMap(([path, operations]) =>
    Object.entries(operations)
      // What reads comes first, so that nothing is gone before it is asked for.
      // Messages of MCP stand in test/golden/permission-matrix.txt, by method.
      .filter(([, { security, tags }]) => security === undefined && !tags.includes('mcp'))
      .map(([method]) => ({ method: METHODS[method] ?? 'POST', path }) as const),
  );
  expect(routes.length).toBeGreaterThan(25);
  const order = { GET: 0, PUT: 1, POST: 2, DELETE: 3 };
  const lines = [`| route | ${COLUMNS.join(' | ')} |`, `|---|${'---|'.repeat(COLUMNS.length)}`];
  for (const { method, path } of routes.toSorted(
    (a, b) => order[a.method] - order[b.method] || a.path.localeCompare(b.path),
  )) {
    const url = path
      .replace('{ws}', 'demo')
      .replace('{id}', ids[path.split('/')[4] ?? ''] ?? 'nothing')
      .replace('{user_id}', 'maria')
      .replace('{key_id}', 'key_nothing');
    const cells: string[] = [];
    // The ones that may least come first: who may delete does so last.
    for (const column of COLUMNS.toReversed()) {
      const key = column === 'none' ? null : rig.keys[column];
      const answer = await rig.send(method, url, {
        key,
        ...(method === 'POST' || method === 'PUT' ? { body: {} } : {}),
      });
      const reason = answer.json['reason'] as unknown as { code: string } | undefined;
      const code = typeof answer.json['code'] === 'string' ? answer.json['code'] : (reason?.code ?? '');
      if (answer.status >= 300) expect(answer.headers['x-should-retry']).toMatch(/^(true|false)$/);
      cells.unshift(`${answer.status} ${code}`.trim());
    }
    lines.push(`| ${method} ${path} | ${cells.join(' | ')} |`);
  }
  await expect(`${lines.join('\n')}\n`).toMatchFileSnapshot('./golden/matrix.md');
});
