import { WARN_AT } from '../effects/run/to-outcome.ts';
import type { BudgetRow } from '../effects/model/budget.ts';
import type { Json } from '../json/value.ts';
import { budgetToWire } from '../effects/run/render.ts';
import type { Agent } from '../effects/model/principal.ts';
import type { CompiledPolicies } from '../policy/policies.ts';
import type { CompiledBudget } from '../policy/compiled-rule.ts';
import type { ApiApp } from './app.ts';
import { callerOf } from './caller.ts';
import type { Lists } from './lists.ts';
import type { ApiPorts } from './ports.ts';
import { type Static, Type } from 'typebox';
import { BUDGET } from './effect-answers.ts';
import { answers, component, InWorkspace, List, NoQuery } from './schema.ts';

const BudgetRowAnswer = component(
  'BudgetRow',
  Type.Object(
    { ...BUDGET, bucket: Type.Optional(Type.String()), window: Type.Optional(Type.String()) },
    { description: 'A budget as it stands. An agent sees no bucket of what it shares.' },
  ),
);
const Budgets = Type.Object({ budgets: List(BudgetRowAnswer) });

/** `GET …/budgets`: rows whose window has not ended. */
export function addBudgetRoutes(app: ApiApp, ports: ApiPorts, lists: Lists): void {
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
        response: answers({ 200: Budgets }),
      },
    },
    async (request, reply) => {
      const { ws } = request.params;
      const caller = callerOf(request);
      const { view } = caller;
      const agent = view.kind === 'own' ? ports.directory.agent(ws, view.agentId) : null;
      if (view.kind === 'own' && agent === null) return { budgets: [] };
      return lists.make(caller, async () => {
        const { set } = ports.policies();
        const shown = await ports.store.turns.map(await ports.store.budgets(ws), (row) => shownTo(agent, row, set));
        return lists.send(
          reply,
          Budgets,
          'budgets',
          shown.filter((row) => row !== null),
          (row) => row,
          {},
        );
      });
    },
  );
}

/** @param agent sees no more than its own and what it shares; `null`: somebody who sees everything */
function shownTo(agent: Agent | null, row: BudgetRow, set: CompiledPolicies): Static<typeof BudgetRowAnswer> | null {
  const sharing = agent === null ? 'own' : sharingWith(agent, row, set);
  switch (sharing) {
    case 'own':
      return rowToWire(row, set);
    case 'shared':
      return budgetToWire({ row, sharing, warnAt: warnAtOf(row, set) }, true);
    case 'hidden':
      return null;
  }
}

function warnAtOf(row: BudgetRow, set: CompiledPolicies): number {
  return budgetOf(row.budget, set)?.warnAt ?? WARN_AT;
}

function rowToWire(row: BudgetRow, set: CompiledPolicies) {
  return {
    ...budgetToWire({ row, sharing: 'own', warnAt: warnAtOf(row, set) }, false),
    bucket: row.bucket,
    window: row.window,
  };
}

/**
 * How an agent may see a row. `own`: the budget is kept by agent, and the row is this agent's. `shared`: others use the
 * row too, and its values about agents (team, owner, …) fit this one. Otherwise it is hidden; so is a row whose budget
 * no rule names any more.
 */
function sharingWith(agent: Agent, row: BudgetRow, set: CompiledPolicies): 'own' | 'shared' | 'hidden' {
  const budget = budgetOf(row.budget, set);
  const values = bucketValues(row.bucket);
  if (budget === null || values === null) return 'hidden';
  const fits = budget.by.facts.every(({ text }, index) => {
    if (!text.startsWith('agent.')) return true;
    const value = values[index];
    switch (text) {
      case 'agent.id':
        return value === agent.id;
      case 'agent.team':
        return value === agent.team;
      case 'agent.owner':
        return value === agent.owner;
      default: {
        const attribute = text.slice('agent.'.length).replace(/^attributes\./, '');
        return Object.hasOwn(agent.attributes, attribute) && value === agent.attributes[attribute];
      }
    }
  });
  return fits ? budget.by.sharing : 'hidden';
}

function budgetOf(id: string, set: CompiledPolicies): CompiledBudget | null {
  for (const { obligations } of set.rules)
    for (const obligation of obligations)
      if (obligation.kind === 'budget' && obligation.budget.id === id) return obligation.budget;
  return null;
}

/** The values in a bucket's name; `null` if it has only their digest. */
function bucketValues(bucket: string): readonly Json[] | null {
  if (!bucket.startsWith('[')) return null;
  const values: Json = JSON.parse(bucket);
  return Array.isArray(values) ? values : null;
}
