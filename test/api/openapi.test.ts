import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import swagger from '@fastify/swagger';
import { expect, it } from 'vitest';
import { MCP_PATHS, MCP_SCHEMAS } from '../../src/mcp/openapi.ts';
import { components } from '../../src/api/schema.ts';
import { clientTypes } from '../client-types.ts';
import { PAGE_PATHS } from './page-paths.ts';
import { startRig } from './rig.ts';

const ROOT = join(import.meta.dirname, '..', '..');

const TAGS = [
  { name: 'effects', description: 'Actions run by the gateway.' },
  { name: 'approvals', description: 'What waits for people.' },
  { name: 'claims', description: 'Exclusive rights on targets.' },
  { name: 'reservations', description: 'Units of pools, set aside.' },
  { name: 'pauses', description: 'Stop switches.' },
  { name: 'budgets', description: 'What is spent, held and left.' },
  { name: 'checks', description: 'State verification and outcome reconciliation, standing alone.' },
  { name: 'keys', description: 'Keys and their profiles.' },
  { name: 'workspaces', description: 'Workspaces and agents.' },
  { name: 'catalog', description: 'Tools and policies.' },
  { name: 'mcp', description: 'The Model Context Protocol: the control plane, and servers behind the gateway.' },
  { name: 'receipts', description: 'Keys that receipts are checked with.' },
  { name: 'health', description: 'For operators.' },
  { name: 'pages', description: 'For people.' },
];

it('schemas/openapi.json is what the schemas of the routes say', async () => {
  const rig = await startRig({}, {}, async (app) => {
    for (const schema of components()) app.addSchema(schema);
    await app.register(swagger, {
      openapi: {
        openapi: '3.1.0',
        info: {
          title: 'svc-gateway',
          version: '',
          description:
            'Runs the tool calls of agents as effects that happen at most once, within budget and policy, and can be proven afterwards. Every answer that is not 2xx carries `x-should-retry`, and says whether the action happened and what to do next.',
        },
        tags: TAGS,
        components: {
          securitySchemes: {
            apiKey: { type: 'apiKey', in: 'header', name: 'X-API-Key' },
            bearer: { type: 'http', scheme: 'bearer' },
            queryKey: { type: 'apiKey', in: 'query', name: 'api_key', description: 'Deprecated.' },
          },
        },
        security: [{ apiKey: [] }, { bearer: [] }, { queryKey: [] }],
      },
      refResolver: {
        buildLocalReference: (schema, _base, _fragment, index) =>
          typeof schema['$id'] === 'string' ? schema['$id'] : `schema-${index}`,
      },
      // Routes of other doors have no operation id and are not in this document.
      transform: ({ schema, url }) => ({
        schema: { ...schema, ...(schema?.operationId === undefined ? { hide: true } : {}) },
        url,
      }),
    });
  });
  try {
    const own = JSON.parse(JSON.stringify(rig.app.swagger()));
    const document = {
      ...own,
      servers: [{ url: '' }],
      paths: { ...own.paths, ...MCP_PATHS, ...PAGE_PATHS },
      components: { ...own.components, schemas: { ...own.components.schemas, ...MCP_SCHEMAS } },
    };
    const file = join(ROOT, 'schemas', 'openapi.json');
    await expect(`${JSON.stringify(document, null, 1)}\n`).toMatchFileSnapshot(file);
  } finally {
    await rig.close();
  }
});

/** What the client gives back, and what it makes results from. */
const RECORDS = [
  'Decision',
  'EffectState',
  'EffectPage',
  'EffectWithLedger',
  'Probed',
  'Run',
  'Preview',
  'ApprovalPage',
  'Voted',
  'Claim',
  'Reservation',
  'Pause',
  'ApiKey',
  'MadeKey',
  'BudgetRow',
  'PolicyHistory',
  'PolicyProposal',
  'PolicySuggestion',
  'EffectBudgets',
  'PolicyVersion',
  'NotificationPage',
  'PassedReadPage',
  'LedgerPage',
  'Passkey',
  'Allowance',
  'AllowancePage',
  'StateVerdict',
  'ReconcileVerdict',
  'Committed',
  'DuplicateBlocked',
  'AwaitingApproval',
  'InProgress',
  'DeniedBudget',
  'DeniedClaim',
  'DeniedPaused',
  'IdempotencyConflict',
  'Failed',
  'UnknownEffect',
];

it('client/src/wire-records.ts is what schemas/openapi.json says', async () => {
  const document = JSON.parse(readFileSync(join(ROOT, 'schemas', 'openapi.json'), 'utf8'));
  const text = `/** Made from schemas/openapi.json by \`npx vitest run test/api/openapi.test.ts -u\`. */
import type { Json, JsonObject } from './json.ts';

${clientTypes(document.components.schemas, RECORDS)}`;
  const biome = spawnSync(
    join(ROOT, 'node_modules', '.bin', 'biome'),
    ['format', '--stdin-file-path=client/src/wire-records.ts'],
    { input: text, encoding: 'utf8', cwd: ROOT },
  );
  expect(biome.status, biome.stderr).toBe(0);
  await expect(biome.stdout).toMatchFileSnapshot(join(ROOT, 'client', 'src', 'wire-records.ts'));
});
