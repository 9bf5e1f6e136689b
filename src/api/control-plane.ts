import type { FastifyRequest, RouteOptions } from 'fastify';
import { addAllowanceRoutes } from './allowances.ts';
import { addApprovalRoutes } from './approvals.ts';
import { addApproverPage } from './approver/routes.ts';
import type { ApiApp } from './app.ts';
import { addBrainRoutes } from './brain.ts';
import { addBudgetRoutes } from './budgets.ts';
import { checkQuery, identifyCaller } from './caller.ts';
import { addCatalogRoutes } from './catalog.ts';
import { addCheckRoutes } from './checks.ts';
import { addClaimRoutes } from './claims.ts';
import { addConsoleLinkRoute } from './console-links.ts';
import { addDocsPages } from './docs-pages.ts';
import { addEffectStream } from './effect-stream.ts';
import { addEffectRoutes } from './effects.ts';
import { addEraseRoute } from './erase.ts';
import { addExportRoute } from './export.ts';
import { addObservedReadsRoute } from './observed-reads.ts';
import { addHealthRoutes } from './health.ts';
import { addLedgerRoutes } from './ledger.ts';
import { acceptStrictJson } from './json-body.ts';
import { refuseKeysInTexts } from './keys-in-texts.ts';
import { addKeyRoutes, addKeyProfileRoutes } from './keys.ts';
import { addOpenApi } from './openapi.ts';
import { addNotificationRoutes } from './notifications.ts';
import { addPasskeyRoutes } from './passkeys.ts';
import { addPauseRoutes } from './pauses.ts';
import { addPinRoutes } from './pins.ts';
import { addPolicyActivationRoutes } from './policy-activations.ts';
import type { ApiPorts } from './ports.ts';
import { NoQuery } from './schema.ts';
import { addSuggestionRoute } from './suggestions.ts';
import { addReservationRoutes } from './reservations.ts';
import { addWellKnownRoutes } from './well-known.ts';
import { addWorkspaceRoutes } from './workspaces.ts';

/**
 * Adds the control plane to the server, in its own scope, so that its hooks and parsers do not apply to other doors.
 * @param version of the product, for the OpenAPI document
 * @param healthElsewhere health and metrics have their own port (`server.admin_port`)
 */
export async function addControlPlane(
  server: ApiApp,
  ports: ApiPorts,
  version: string,
  healthElsewhere = false,
): Promise<void> {
  await server.register(async (scope) => {
    const app: ApiApp = scope;
    acceptStrictJson(app, () => ports.settings().jsonLimits);
    app.addHook('onRoute', takesNoQuery);
    app.addHook('onRequest', identifyCaller(ports, ports.invalidKeys));
    app.addHook('onRequest', checkQuery);
    app.addHook('preValidation', absentBodyIsEmpty);
    app.addHook('preValidation', refuseKeysInTexts);
    app.addHook('onResponse', logRequest);

    addOpenApi(app, () => ports.settings().publicUrl, version, healthElsewhere);
    const { lists } = ports;
    addEffectRoutes(app, ports, lists);
    addEffectStream(app, ports);
    addEraseRoute(app, ports);
    addLedgerRoutes(app, ports, lists);
    addExportRoute(app, ports);
    addObservedReadsRoute(app, ports, lists);
    addApprovalRoutes(app, ports, lists);
    addAllowanceRoutes(app, ports, lists);
    addClaimRoutes(app, ports, lists);
    addReservationRoutes(app, ports, lists);
    addPauseRoutes(app, ports);
    addBudgetRoutes(app, ports, lists);
    addBrainRoutes(app, ports, lists);
    addKeyRoutes(app, ports, lists);
    addPasskeyRoutes(app, ports, lists);
    addKeyProfileRoutes(app, ports);
    addWorkspaceRoutes(app, ports);
    addCatalogRoutes(app, ports);
    addPinRoutes(app, ports, lists);
    addPolicyActivationRoutes(app, ports, lists);
    addSuggestionRoute(app, ports, lists);
    addNotificationRoutes(app, ports, lists);
    addConsoleLinkRoute(app, ports);
    addCheckRoutes(app);
    addWellKnownRoutes(app, ports);
    if (!healthElsewhere) addHealthRoutes(app, ports);
    addDocsPages(app);
  });
  await server.register(async (scope) => {
    scope.addHook('onResponse', logRequest);
    addApproverPage(scope, ports);
  });
}

/** Adds only health and metrics, to a server for `server.admin_port`. */
export async function addHealth(
  server: ApiApp,
  ports: Pick<ApiPorts, 'store' | 'impediments' | 'notes' | 'metrics'>,
): Promise<void> {
  await server.register(async (scope) => {
    addHealthRoutes(scope, ports);
  });
}

/** A route of the permission table takes no query, except for what it declares. */
function takesNoQuery({ config, schema }: RouteOptions): void {
  if (config?.endpoint !== undefined && schema !== undefined) schema.querystring ??= NoQuery;
}

/** If nothing was sent, the answer still names every missing field. */
async function absentBodyIsEmpty(request: FastifyRequest): Promise<void> {
  if (request.method === 'POST' && request.body === undefined) request.body = {};
}

/** One line per request: never the query, never a key. Health checks only if they fail. */
async function logRequest(
  request: FastifyRequest,
  reply: { readonly statusCode: number; readonly elapsedTime: number; getHeader(name: string): unknown },
): Promise<void> {
  const isOpen = request.routeOptions.config.endpoint === undefined && request.caller === null;
  const level = reply.statusCode >= 500 ? 'error' : isOpen ? 'debug' : 'info';
  request.log[level](
    {
      method: request.method,
      path: request.url.split('?', 1)[0],
      status: reply.statusCode,
      ms: Math.round(reply.elapsedTime * 100) / 100,
      key_id: request.caller?.principal.keyId ?? null,
      decision: reply.getHeader('svc-decision') ?? null,
    },
    'request',
  );
}
