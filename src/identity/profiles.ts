import type { Scope } from '../effects/model/principal.ts';
import type { KeyProfile } from '../effects/model/key.ts';

/** Interface specification, 2.3. */
const READ_SCOPES = [
  'tools:read',
  'brain:read',
  'policy:simulate',
  'traces:read',
  'approvals:read',
  'observability:read',
  'governance:read',
] as const satisfies readonly Scope[];

const AUDITOR = 'auditor';

const SHIPPED: readonly KeyProfile[] = [
  {
    name: 'mcp_readonly',
    description: 'The starting point for MCP clients: look, ask and simulate; change nothing.',
    scopes: READ_SCOPES,
    allowedTools: ['svc.company_brain.query'],
    readOnly: true,
  },
  {
    name: 'mcp_operator',
    description: 'Sees all tools and may also ask what a call would get; changes nothing.',
    scopes: [...READ_SCOPES, 'effects:preview'],
    allowedTools: null,
    readOnly: true,
  },
  {
    name: 'mcp_agent',
    description: 'May also run effects, under policy, budgets and approvals.',
    scopes: [...READ_SCOPES, 'effects:preview', 'effects:run'],
    allowedTools: null,
    readOnly: false,
  },
  {
    name: AUDITOR,
    description:
      'Reads everything of its workspace, the ledger and exports too, but no params and no answers; changes nothing.',
    scopes: [...READ_SCOPES, 'ledger:read'],
    allowedTools: null,
    readOnly: true,
  },
];

/**
 * The shipped profiles, then the configured ones. A configured `auditor` takes the place of the shipped one: there were such
 * profiles before it was shipped.
 * @throws Error when two profiles have the same name
 */
export function allProfiles(configured: readonly KeyProfile[]): readonly KeyProfile[] {
  const all = SHIPPED.filter(({ name }) => name !== AUDITOR || !configured.some((own) => own.name === AUDITOR));
  for (const profile of configured) {
    if (all.some((other) => other.name === profile.name)) throw new Error(`There are two profiles ${profile.name}.`);
    all.push(profile);
  }
  return all;
}
