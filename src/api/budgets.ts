import type { BudgetRow } from '../effects/controls.ts';
import type { Json, JsonObject } from '../effects/json.ts';
import { budgetToWire } from '../effects/render.ts';
import type { ApiApp } from './app.ts';
import { callerOf } from './caller.ts';
import type { ApiPorts } from './ports.ts';
import { AnyObject, InWorkspace, NoQuery, answers } from './schema.ts';

/** `GET …/budgets`: rows whose window is not over. */
export function addBudgetRoutes(app: ApiApp, ports: ApiPorts): void {
  app.get(
    '/v1/workspaces/:ws/budgets',
    {
      config: { endpoint: 'budgets.read' },
      schema: {
        operationId: 'listBudgets',
        summary: 'List budgets as they stand',
        description: 'An agent sees the figures of its own, and of those that it shares a level only.',
        tags: ['budgets'],
        params: InWorkspace,
        querystring: NoQuery,
        response: answers({ 200: AnyObject('`budgets`.') }),
      },
    },
    async (request) => {
      const { ws } = request.params;
      const { view } = callerOf(request);
      const rows = await ports.store.budgets(ws);
      if (view.kind !== 'own') return { budgets: rows.map((row) => rowToWire(row)) };
      const agent = ports.directory.agent(ws, view.agentId);
      if (agent === null) return { budgets: [] };
      const budgets: Json[] = [];
      for (const row of rows) {
        const sharing = ports.budgetView(row, agent);
        if (sharing === 'own') budgets.push(rowToWire(row));
        else if (sharing === 'shared') budgets.push(budgetToWire({ row, sharing }, true));
      }
      return { budgets };
    },
  );
}

function rowToWire(row: BudgetRow): JsonObject {
  return { ...budgetToWire({ row, sharing: 'own' }, false), bucket: row.bucket, window: row.window };
}
