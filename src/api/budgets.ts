import { type Standing, type Taken, takenOfBudgets } from '../effects/upkeep/budget-standing.ts';
import { rowName } from '../effects/upkeep/money-events.ts';
import { timeToWire } from '../effects/wire/time.ts';
import { WARN_AT } from '../effects/run/to-outcome.ts';
import type { BudgetRow } from '../effects/model/effect.ts';
import type { Json } from '../json/value.ts';
import { budgetToWire } from '../effects/run/render.ts';
import type { Agent } from '../effects/model/principal.ts';
import { budgetIn, type CompiledPolicies, limitInForce } from '../policy/policies.ts';
import { type ApiApp, guarded } from './app.ts';
import { callerOf, refuseAgents } from './caller.ts';
import type { Lists } from './lists.ts';
import type { ApiPorts } from './ports.ts';
import { type Static, Type } from 'typebox';
import { BUDGET } from './effect-answers.ts';
import { refuse } from './problem.ts';
import { answers, InWorkspace, List, Nullable, record, Time, WithId } from './schema.ts';

const BudgetRowAnswer = record('BudgetRow', 'A budget as it stands. An agent sees no bucket of what it shares.', {
  ...BUDGET,
  bucket: Type.Optional(Type.String()),
  window: Type.Optional(Type.String()),
});
const Budgets = Type.Object({ budgets: List(BudgetRowAnswer) });

const Count = Type.Integer({ minimum: 0 });
const Stood = Type.Object({ at: Time, spent: Count, held: Count });
const EffectBudgets = record('EffectBudgets', null, {
  hold_state: Type.Enum(['none', 'held', 'posted', 'voided']),
  budgets: List(
    Type.Object({
      budget: Type.String(),
      unit: Type.String(),
      bucket: Type.String(),
      window: Type.String(),
      amount: Type.Integer({ minimum: 0, description: 'What it held.' }),
      spent: Type.Integer({ minimum: 0, description: 'What is spent for it; more than it held where it cost more.' }),
      before: Type.Optional(Stood),
      after: Type.Optional(Stood),
      unknown: Type.Optional(
        Type.Enum(['rolling', 'too_many'], {
          description:
            'Why there is no `before` and `after`. `rolling`: what has left a rolling window is written nowhere. `too_many`: more happened in the window than is read.',
        }),
      ),
      now: Nullable(BudgetRowAnswer, '`null`: its window is over.'),
    }),
  ),
});

/** `GET …/budgets`: rows whose window has not ended. */
export function addBudgetRoutes(app: ApiApp, ports: ApiPorts, lists: Lists): void {
  const listBudgets = guarded('budgets.read', {
    operationId: 'listBudgets',
    summary: 'List budgets as they stand',
    description: 'An agent sees the figures of its own, and of those that it shares a level only.',
    params: InWorkspace,
    response: answers({ 200: Budgets }),
  });
  app.get('/v1/workspaces/:ws/budgets', listBudgets, async (request, reply) => {
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
  });
  addTakenRoute(app, ports, lists);
}

/** `GET …/effects/{id}/budgets`: what a call took of budgets, and how they stood before and after. */
function addTakenRoute(app: ApiApp, { store, policies }: ApiPorts, lists: Lists): void {
  const getEffectBudgets = guarded('budgets.read', {
    operationId: 'getEffectBudgets',
    summary: 'What a call took of budgets, and how these stood before and after',
    description:
      'Computed from the ledger, event by event. `before` and `after` are there for calendar windows in which not more happened than is read; else `unknown` says why not. A key that was made for one agent does not read it: others share the budgets.',
    params: WithId,
    response: answers({ 200: EffectBudgets }),
  });
  app.get('/v1/workspaces/:ws/effects/:id/budgets', getEffectBudgets, async (request) => {
    const caller = callerOf(request);
    refuseAgents(caller);
    const { ws, id } = request.params;
    const effect = await store.effect(ws, id);
    if (effect === null) throw refuse('not_found', 'There is no effect of this id in the workspace.');
    return lists.make(caller, async () => {
      const taken = await takenOfBudgets(store, effect);
      const rows = taken.length === 0 ? [] : await store.budgets(ws);
      const { set } = policies();
      return { hold_state: effect.holdState, budgets: taken.map((one) => takenToWire(one, rows, set)) };
    });
  });
}

function takenToWire({ hold, spent, around }: Taken, rows: readonly BudgetRow[], set: CompiledPolicies) {
  const row = rows.find((one) => rowName(one) === rowName(hold));
  const { budget, unit, bucket, window, amount } = hold;
  const stood = ({ at, ...figures }: Standing) => ({ at: timeToWire(at), ...figures });
  return {
    budget,
    unit,
    bucket,
    window,
    amount,
    spent,
    ...(around.kind === 'known'
      ? { before: stood(around.before), after: stood(around.after) }
      : { unknown: around.why }),
    now: row === undefined ? null : rowToWire(row, set),
  };
}

/** @param agent sees no more than its own and what it shares; `null`: somebody who sees everything */
function shownTo(agent: Agent | null, row: BudgetRow, set: CompiledPolicies): Static<typeof BudgetRowAnswer> | null {
  const sharing = agent === null ? 'own' : sharingWith(agent, row, set);
  switch (sharing) {
    case 'own':
      return rowToWire(row, set);
    case 'shared':
      return budgetToWire({ ...inForce(row, set), sharing }, true);
    case 'hidden':
      return null;
  }
}

function inForce(row: BudgetRow, set: CompiledPolicies): { readonly row: BudgetRow; readonly warnAt: number } {
  return { row: { ...row, limit: limitInForce(row, set) }, warnAt: budgetIn(set, row.budget)?.warnAt ?? WARN_AT };
}

function rowToWire(row: BudgetRow, set: CompiledPolicies) {
  return {
    ...budgetToWire({ ...inForce(row, set), sharing: 'own' }, false),
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
  const budget = budgetIn(set, row.budget);
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

/** The values in a bucket's name; `null` if it has only their digest. */
function bucketValues(bucket: string): readonly Json[] | null {
  if (!bucket.startsWith('[')) return null;
  const values: Json = JSON.parse(bucket);
  return Array.isArray(values) ? values : null;
}
