import type { KeyKind, Principal, Scope } from '../effects/model/principal.ts';

/**
 * A row of the table. What a kind of key may do: `workspace`: everything in its workspace. `own`: what belongs to its
 * agent. `any`: in every workspace. A list: it needs one of these scopes. A kind that is not named may not.
 */
export interface Endpoint {
  /** What the row is about, for people. */
  readonly does: string;
  readonly routes: readonly string[];
  /** Whether the endpoint changes something. Then a read-only key is refused. */
  readonly changes: boolean;
  readonly account?: 'workspace';
  readonly agent?: 'own';
  readonly administrative?: 'any';
  readonly profile?: 'workspace' | readonly [Scope, ...Scope[]];
}

const overMcp = (tool: string): string => `svc.${tool} over MCP`;
const WS = '/v1/workspaces/{ws}';

/** Accounts in their workspace, agents what is theirs. */
const OWN = { account: 'workspace', agent: 'own' } as const;
const OWN_OR_ANY = { ...OWN, administrative: 'any' } as const;
const WORKSPACE_OR_ANY = { account: 'workspace', administrative: 'any' } as const;

/** The permission table. Every route that needs a key names its row, and only this table decides what a key may do. */
export const ENDPOINTS = {
  'effects.run': {
    does: 'Run an action; with an account key the request names the agent',
    routes: [
      `POST ${WS}/effects`,
      'a write through the proxy',
      'POST /mcp, tools/call',
      'POST /mcp/{upstream}, tools/call',
    ],
    changes: true,
    ...OWN,
    profile: ['effects:run'],
  },
  'proxy.read': {
    does: 'Read from an upstream through the proxy; be in a session with an MCP server',
    routes: [
      'a read through the proxy',
      'GET /mcp',
      'POST /mcp',
      'DELETE /mcp',
      'GET /mcp/{upstream}',
      'POST /mcp/{upstream}',
      'DELETE /mcp/{upstream}',
    ],
    changes: false,
    ...OWN,
    profile: ['effects:run'],
  },
  'effects.preview': {
    does: 'Ask what an action would get',
    routes: [`POST ${WS}/effects/preview`],
    changes: false,
    ...OWN,
    profile: ['effects:preview', 'effects:run'],
  },
  'effects.read': {
    does: 'Read effects, their receipts and runs',
    routes: [
      `GET ${WS}/effects`,
      `GET ${WS}/effects/{id}`,
      `GET ${WS}/effects/{id}/receipt`,
      `GET ${WS}/effects/{id}/run`,
      `GET ${WS}/effects/stream`,
      `GET ${WS}/observed-reads`,
    ],
    changes: false,
    ...OWN,
    profile: ['traces:read'],
  },
  'ledger.read': {
    does: 'Read the ledger: who did what, and who changed what; no key of one agent may',
    routes: [`GET ${WS}/ledger`],
    changes: false,
    ...WORKSPACE_OR_ANY,
    profile: ['ledger:read'],
  },
  'ledger.export': {
    does: 'Export effects, receipts and events; no key of one agent may',
    routes: [`GET ${WS}/export`],
    changes: false,
    account: 'workspace',
    profile: ['ledger:read'],
  },
  'ledger.users': {
    does: 'Read who came, went and got which roles, and passkeys: people are the same for all workspaces',
    routes: ['GET /v1/beta/ledger, with kind user or passkey, or one of theirs'],
    changes: false,
    administrative: 'any',
    profile: ['ledger:read'],
  },
  'ledger.installation': {
    does: 'Read all of the ledger of what belongs to no workspace: administrative keys, policies in force, the store',
    routes: ['GET /v1/beta/ledger'],
    changes: false,
    administrative: 'any',
  },
  'effects.resolve': {
    does: 'Settle an unknown outcome',
    routes: [`POST ${WS}/effects/{id}/resolve`],
    changes: true,
    account: 'workspace',
  },
  'effects.probe': {
    does: 'Start the probe of an unknown outcome',
    routes: [`POST ${WS}/effects/{id}/probe`, 'svc.executions.probe over MCP'],
    changes: true,
    ...OWN,
  },
  'effects.erase': {
    does: 'Forget params, salts and the kept answer of an effect that is over',
    routes: [`DELETE ${WS}/effects/{id}/params`],
    changes: true,
    account: 'workspace',
  },
  'approvals.decide': {
    does: "Approve or reject another user's request; revoke what was allowed ahead",
    routes: [
      `POST ${WS}/approvals/{id}/approve`,
      `POST ${WS}/approvals/{id}/reject`,
      `DELETE ${WS}/allowances/{id}`,
      'the page /approve/{ws}/{id}, with approvals.read',
    ],
    changes: true,
    account: 'workspace',
    profile: ['approvals:decide'],
  },
  'approvals.read': {
    does: 'Read requests for approval, and what was allowed ahead',
    routes: [`GET ${WS}/approvals`, `GET ${WS}/approvals/{id}`, `GET ${WS}/allowances`],
    changes: false,
    ...OWN,
    profile: ['approvals:read'],
  },
  'claims.write': {
    does: 'Take, renew and release claims',
    routes: [`POST ${WS}/claims`, `POST ${WS}/claims/{id}/renew`, `DELETE ${WS}/claims/{id}`],
    changes: true,
    ...OWN,
    profile: ['claims:write'],
  },
  'claims.read': {
    does: 'Read claims',
    routes: [`GET ${WS}/claims`],
    changes: false,
    ...OWN,
    profile: ['governance:read'],
  },
  'reservations.write': {
    does: 'Make and release reservations',
    routes: [`POST ${WS}/reservations`, `DELETE ${WS}/reservations/{id}`],
    changes: true,
    ...OWN,
    profile: ['claims:write'],
  },
  'reservations.read': {
    does: 'Read reservations',
    routes: [`GET ${WS}/reservations`],
    changes: false,
    ...OWN,
    profile: ['governance:read'],
  },
  'pauses.write': {
    does: 'Pause and resume',
    routes: [`POST ${WS}/pauses`, `DELETE ${WS}/pauses/{id}`],
    changes: true,
    ...WORKSPACE_OR_ANY,
    profile: ['governance:write'],
  },
  'pauses.read': {
    does: 'Read pauses',
    routes: [`GET ${WS}/pauses`],
    changes: false,
    ...OWN_OR_ANY,
    profile: ['governance:read'],
  },
  'budgets.read': {
    does: 'Read budgets; what a call took of them no key of one agent may read',
    routes: [`GET ${WS}/budgets`, `GET ${WS}/effects/{id}/budgets`],
    changes: false,
    ...OWN,
    profile: ['governance:read'],
  },
  'brain.read': {
    does: 'Read and search the entities of the company brain',
    routes: [`GET ${WS}/brain/entities`, `GET ${WS}/brain/entities/{type}/{id}`, `GET ${WS}/brain/search`],
    changes: false,
    ...OWN_OR_ANY,
    profile: ['brain:read'],
  },
  'brain.write': {
    does: 'Put and delete entities of the company brain, which policies read; no key of one agent may',
    routes: [`PUT ${WS}/brain/entities`, `DELETE ${WS}/brain/entities/{type}/{id}`],
    changes: true,
    administrative: 'any',
    profile: ['governance:write'],
  },
  'policies.read': {
    does: 'Read the active policies',
    routes: [`GET ${WS}/policies`],
    changes: false,
    ...OWN_OR_ANY,
    profile: ['governance:read'],
  },
  'policies.suggest': {
    does: 'Read which rules are suggested after repeated approvals; calls of tools that the key may not call stay out',
    routes: [`GET ${WS}/policies/suggestions`],
    changes: false,
    account: 'workspace',
  },
  'policies.history': {
    does: 'Read which policies were in force or proposed, who put them there, and what they said',
    routes: ['activations', 'versions/{version}', 'proposals'].map((path) => `GET /v1/beta/policies/${path}`),
    changes: false,
    administrative: 'any',
    profile: ['ledger:read'],
  },
  'policies.activate': {
    does: 'Put policies in force, or those of before; propose, confirm and withdraw them',
    routes: [
      'POST /v1/beta/policies/activations',
      'POST /v1/beta/policies/rollback',
      'POST /v1/beta/policies/proposals/{id}/confirm',
      'DELETE /v1/beta/policies/proposals/{id}',
    ],
    changes: true,
    administrative: 'any',
  },
  'notifications.read': {
    does: 'Read which notifications wait, were delivered, or could not be',
    routes: ['GET /v1/beta/notifications'],
    changes: false,
    administrative: 'any',
  },
  'notifications.resend': {
    does: 'Have a notification sent again',
    routes: ['POST /v1/beta/notifications/{id}/resend'],
    changes: true,
    administrative: 'any',
  },
  'tools.read': {
    does: 'Read the declared tools',
    routes: [`GET ${WS}/tools`],
    changes: false,
    ...OWN_OR_ANY,
    profile: ['tools:read', 'governance:read'],
  },
  'pins.read': {
    does: 'Read what was approved of the tools of MCP servers, and what they say now; no key of one agent may',
    routes: [`GET ${WS}/pins`, `GET ${WS}/pins/{upstream}`],
    changes: false,
    ...WORKSPACE_OR_ANY,
    profile: ['governance:read'],
  },
  'agents.read': {
    does: 'Read the registered agents',
    routes: [`GET ${WS}/agents`],
    changes: false,
    ...OWN_OR_ANY,
    profile: ['governance:read', 'tools:read'],
  },
  'agents.register': {
    does: 'Register an agent of its own user, without team, roles or attributes',
    routes: [`POST ${WS}/agents`],
    changes: true,
    ...WORKSPACE_OR_ANY,
  },
  'agents.describe': {
    does: 'Register an agent with team, roles or attributes, or of another owner',
    routes: [`POST ${WS}/agents`],
    changes: true,
    administrative: 'any',
  },
  'keys.manage': {
    does: 'Make, list, revoke and rotate keys',
    routes: [
      'POST /v1/beta/users/{user_id}/keys',
      'GET /v1/beta/users/{user_id}/keys',
      'DELETE /v1/beta/users/{user_id}/keys/{key_id}',
      'POST /v1/beta/users/{user_id}/keys/{key_id}/rotate',
      'GET /v1/beta/keys',
      'DELETE /v1/beta/keys/{key_id}',
      'POST /v1/beta/keys/{key_id}/rotate',
    ],
    changes: true,
    administrative: 'any',
  },
  'passkeys.read': {
    does: 'List the passkeys of a user: of its own, with an administrative key of anybody',
    routes: ['GET /v1/beta/users/{user_id}/passkeys'],
    changes: false,
    ...WORKSPACE_OR_ANY,
    profile: ['approvals:decide'],
  },
  'passkeys.write': {
    does: 'Add own passkeys, and remove them; with an administrative key those of anybody',
    routes: ['the console', 'DELETE /v1/beta/users/{user_id}/passkeys/{passkey_id}'],
    changes: true,
    ...WORKSPACE_OR_ANY,
    profile: ['approvals:decide'],
  },
  'workspaces.manage': {
    does: 'Make and list workspaces',
    routes: ['POST /v1/workspaces', 'GET /v1/workspaces'],
    changes: true,
    administrative: 'any',
  },
  'state.verify': {
    does: 'Compare assumed with live state',
    routes: ['POST /state/verify'],
    changes: false,
    ...OWN_OR_ANY,
    profile: ['policy:simulate'],
  },
  'outcomes.reconcile': {
    does: 'Decide whether a retry is safe',
    routes: ['POST /outcomes/reconcile'],
    changes: false,
    ...OWN_OR_ANY,
    profile: ['policy:simulate'],
  },
  'mcp.connect': {
    does: 'The MCP control plane; each tool asks for the scope it names',
    routes: ['GET /v1/mcp', 'POST /v1/mcp'],
    changes: false,
    ...OWN_OR_ANY,
    profile: 'workspace',
  },
  'mcp.tools': {
    does: 'Find and describe tools over MCP',
    routes: ['svc.tools.search over MCP', 'svc.tools.describe over MCP'],
    changes: false,
    ...OWN_OR_ANY,
    profile: ['tools:read'],
  },
  'mcp.simulate': {
    does: 'Ask over MCP what policy says to a call',
    routes: ['svc.preflight.check over MCP', 'svc.policy.simulate over MCP', 'svc.policy.explain over MCP'],
    changes: false,
    ...OWN,
    profile: ['policy:simulate'],
  },
  'mcp.brain': {
    does: 'Query the company brain over MCP; where `allowed_tools` of the key is set, it has to name the tool',
    routes: ['svc.company_brain.query over MCP'],
    changes: false,
    ...OWN,
    profile: ['brain:read'],
  },
  'mcp.approvals': {
    does: 'Read requests for approval over MCP',
    routes: ['svc.approvals.list over MCP', 'svc.approvals.get over MCP'],
    changes: false,
    ...OWN,
    profile: ['approvals:read'],
  },
  'mcp.traces': {
    does: 'Read effects and verify receipts over MCP',
    routes: ['executions.list', 'executions.get', 'executions.trace', 'receipts.verify'].map(overMcp),
    changes: false,
    ...OWN,
    profile: ['traces:read'],
  },
  'mcp.observability': {
    does: 'Read the summary of what happened over MCP',
    routes: ['svc.observability.summary over MCP'],
    changes: false,
    ...OWN,
    profile: ['observability:read'],
  },
  'mcp.governance': {
    does: 'Read over MCP whether the gateway governs as it should',
    routes: ['svc.governance.readiness over MCP'],
    changes: false,
    ...WORKSPACE_OR_ANY,
    profile: ['governance:read'],
  },
  'console.enter': {
    does: 'Sign in to the console, by the key itself or by a one-time link that it makes',
    routes: ['POST /v1/beta/console/links', 'the sign-in page of the console'],
    changes: false,
    ...WORKSPACE_OR_ANY,
    profile: 'workspace',
  },
  'key_profiles.read': {
    does: 'Read the key profiles',
    routes: ['GET /v1/mcp/key-profiles'],
    changes: false,
    ...OWN_OR_ANY,
    profile: 'workspace',
  },
} as const satisfies Readonly<Record<string, Endpoint>>;

export type EndpointId = keyof typeof ENDPOINTS;

/** What a permitted key sees: things of one agent, of its workspace, or of any workspace. */
export type View =
  | { readonly kind: 'own'; readonly workspace: string; readonly agentId: string }
  | { readonly kind: 'workspace'; readonly workspace: string }
  | { readonly kind: 'any' }
  /** For a profile key without a workspace: only what belongs to no workspace, such as the checks. */
  | { readonly kind: 'none' };

export type Permission =
  | { readonly ok: true; readonly view: View }
  | {
      readonly ok: false;
      readonly code: 'wrong_key_kind' | 'insufficient_scope' | 'read_only_key' | 'wrong_workspace';
      /** For people: what the key lacks. */
      readonly detail: string;
    };

/**
 * Whether a key may use an endpoint, by the table above.
 * @param workspace the one in the path; `null` for endpoints without one. It does not need to exist.
 */
export function permit(principal: Principal, endpoint: EndpointId, workspace: string | null = null): Permission {
  const row: Endpoint = ENDPOINTS[endpoint];
  const grant = row[principal.kind];
  if (grant === undefined) {
    const kinds = KINDS.filter((kind) => row[kind] !== undefined);
    return refuse('wrong_key_kind', `${AN[principal.kind]} key may not do this. It takes: ${kinds.join(', ')} key.`);
  }
  if (principal.kind === 'profile' && typeof grant === 'object' && !grant.some((one) => principal.scopes.includes(one)))
    return refuse('insufficient_scope', `The key needs the scope ${grant.join(' or ')}.`);
  if (row.changes && principal.readOnly) return refuse('read_only_key', 'The key is read-only and can change nothing.');
  const view = viewOf(principal);
  if (workspace !== null && view.kind !== 'any' && (view.kind === 'none' || view.workspace !== workspace))
    return refuse('wrong_workspace', 'The key does not belong to the workspace in the path.');
  return { ok: true, view };
}

function viewOf(principal: Principal): View {
  switch (principal.kind) {
    case 'account':
      return { kind: 'workspace', workspace: principal.workspace };
    case 'agent':
      return { kind: 'own', workspace: principal.workspace, agentId: principal.agentId };
    case 'administrative':
      return { kind: 'any' };
    case 'profile':
      if (principal.workspace === null) return { kind: 'none' };
      return principal.agentId === null
        ? { kind: 'workspace', workspace: principal.workspace }
        : { kind: 'own', workspace: principal.workspace, agentId: principal.agentId };
  }
}

const KINDS = ['account', 'agent', 'administrative', 'profile'] as const satisfies readonly KeyKind[];
const AN: Readonly<Record<KeyKind, string>> = {
  account: 'An account',
  agent: 'An agent',
  administrative: 'An administrative',
  profile: 'A profile',
};

function refuse(code: Exclude<Permission, { ok: true }>['code'], detail: string): Permission {
  return { ok: false, code, detail };
}
