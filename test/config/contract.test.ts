import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { checkConfiguration, loadConfiguration } from '../../src/config/load.ts';

/** `contract/whole.yaml` is the format in full, as it is promised; `now.yaml` is what of it is supported. */
const file = (name: string): string => join(import.meta.dirname, 'contract', name);
const environment = { PAYMENTS_TOKEN: 'canary-4711', WEBHOOK_SECRET: 'whsec_canary4712canary4712canary471200' };

describe('the promised format', () => {
  it('is known in full: what is not supported yet says so, and nothing else is found', async () => {
    const { findings, text } = await checkConfiguration(file('whole.yaml'), { environment, color: false });
    expect(
      findings.map(({ code, message }) => (code === 'not_yet_supported' ? message.split(' ')[0] : message)),
    ).toEqual([
      'policies.paths[1].scope',
      'There is no lock file mcp/crm.lock.json',
      'There is no lock file mcp/files.lock.json',
      "There is no tool 'payments.get'",
      'There is no file or folder ./config/brain.yaml',
    ]);
    expect(text).not.toContain('canary');
  });

  it('means what it says', async () => {
    const { configuration, warnings } = await loadConfiguration(file('now.yaml'), { environment });
    expect(warnings).toEqual([]);
    expect(configuration).toMatchObject({
      server: { host: '127.0.0.1', port: 8080, publicUrl: 'http://127.0.0.1:8080', allowedHosts: [], adminPort: null },
      store: { kind: 'embedded', path: './data' },
      retention: { keysMs: 365 * 86_400_000, effectsMs: 30 * 86_400_000, denialsMs: 7 * 86_400_000 },
      secrets: { masterFile: './data/keys/master' },
      receipts: { keysDir: './data/keys', issuer: null },
      users: [{ id: 'maria', roles: ['finance-lead'] }],
      auth: {
        queryKey: 'allow',
        defaultExpiryMs: { account: null, agent: 90 * 86_400_000, administrative: null, profile: null },
        profiles: [{ name: 'auditor', scopes: ['traces:read'], allowedTools: null, readOnly: true }],
      },
      workspaces: [
        {
          id: 'demo',
          env: 'prod',
          agents: [{ id: 'support-bot', workspace: 'demo', team: 'support', owner: 'maria', attributes: { trust: 2 } }],
        },
      ],
      policies: { paths: ['./policies', './policies/payments.yaml'], mode: 'enforce', secondOpinionMs: 1000 },
      upstreams: [
        {
          id: 'payments',
          url: 'http://127.0.0.1:9090',
          timeoutMs: 10_000,
          connections: 128,
          network: 'any',
          env: null,
          credentials: { header: 'authorization', value: 'Bearer canary-4711' },
        },
      ],
      routes: [
        {
          upstream: 'payments',
          prefix: '/payments',
          undeclared: 'deny',
          setCookie: false,
          rules: [
            {
              method: 'POST',
              path: '/v1/payments/:payment_id/refunds',
              tool: 'payments.refund',
              idempotency: { kind: 'required' },
              onDuplicate: 'conflict',
              frames: null,
            },
            { method: 'GET', path: '/v1/payments/:payment_id', tool: 'payments.get', idempotency: { kind: 'none' } },
          ],
        },
      ],
      pools: [{ id: 'gpu', units: 4 }],
      limits: { bodyBytes: 1_048_576, paramsDepth: 64, responseKeptBytes: 65_536 },
      telemetry: { logLevel: 'info', budgetNearPercent: 90 },
      webhooks: [
        {
          name: 'hooks.example.com',
          format: 'standard',
          url: 'https://hooks.example.com/svc',
          secrets: ['canary4712canary4712canary471200'],
          events: ['approval.requested', 'execution.lost'],
          workspaces: null,
          network: 'any',
          retryFirstMs: 5000,
          retryForMs: 3 * 86_400_000,
        },
      ],
    });
    expect(configuration.rolesOf.get('maria')).toEqual(['finance-lead', 'finance']);
    expect(configuration.tools[0]).toMatchObject({
      name: 'payments.refund',
      title: 'Refund a payment',
      upstream: 'payments',
      kind: 'write',
      actionType: 'mcp.tool_call',
      tags: ['money'],
      risk: 'high',
      env: null,
      call: {
        kind: 'http',
        request: {
          method: 'POST',
          path: '/v1/payments/{payment_id}/refunds',
          query: [],
          headers: {},
          body: ['amount', 'currency', 'reason'],
        },
        outcomes: { committed: [], failed: [503], unknown: [500, 502, 504], body: [] },
        state: { method: 'GET', path: '/v1/payments/{payment_id}' },
      },
      target: 'payment:{payment_id}',
      timeoutMs: 5000,
      maxProcessingMs: 30_000,
      idempotent: { kind: 'header', header: 'idempotency-key', forMs: 86_400_000 },
    });
  });
});
