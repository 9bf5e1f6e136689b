import { INSTALLATION } from '../effects/model/ledger.ts';
import type { BudgetDefinition, PolicyActivation } from '../effects/store.ts';
import type { RowStore } from '../stores/port.ts';
import { ONLY, policyRows } from './control-rows.ts';
import { budgetGroup } from './figures.ts';
import { jsonKind, stock } from './kind.ts';
import { readRecord, type StepRunner } from './runner.ts';

type Definition = Pick<BudgetDefinition, 'unit' | 'window'>;

/** What decides the rows of each budget. */
export const definitionRows = stock(jsonKind<Readonly<Record<string, Definition>>>('budget_definitions', () => []));

/** How many figures of a workspace are searched for budgets in use. */
const FIGURES = 100_000;

export interface Policies {
  activate(
    version: string,
    budgets: readonly BudgetDefinition[],
    workspaces: () => Promise<readonly string[]>,
  ): Promise<PolicyActivation>;
  /** Brings the installation's policy into a workspace. @returns whether it was another there */
  bring(workspace: string): Promise<boolean>;
}

export function createPolicies(store: RowStore, runner: StepRunner): Policies {
  async function groupsInUse(workspaces: readonly string[]): Promise<ReadonlySet<string>> {
    const groups = new Set<string>();
    for (const workspace of workspaces) for (const { group } of await store.sums(workspace, FIGURES)) groups.add(group);
    return groups;
  }

  /**
   * If there are several activations at once, the last one counts. So look again after bringing one, until it is the
   * one in force.
   */
  async function bring(workspace: string): Promise<boolean> {
    for (let isOther = false; ; isOther = true) {
      const policy = await readRecord(runner, policyRows, INSTALLATION, ONLY);
      if (policy === null) return isOther;
      const { said } = await runner.run(workspace, (draft) => {
        if (policyRows.get(draft, ONLY) === policy) return false;
        policyRows.put(draft, ONLY, policy);
        return true;
      });
      if (!said) return isOther;
    }
  }

  return {
    bring,
    async activate(version, budgets, workspaces) {
      const before = await workspaces();
      const defined = (await readRecord(runner, definitionRows, INSTALLATION, ONLY)) ?? {};
      const redefined = budgets.flatMap((definition) => {
        const was = Object.hasOwn(defined, definition.budget) ? defined[definition.budget] : undefined;
        if (was === undefined || (was.unit === definition.unit && was.window === definition.window)) return [];
        return [{ definition, was }];
      });
      const inUse = redefined.length === 0 ? new Set<string>() : await groupsInUse(before);
      const refused = redefined.filter(
        ({ definition }) => !definition.reset && inUse.has(budgetGroup(definition.budget)),
      );
      if (refused.length > 0) {
        return {
          kind: 'budget_redefined',
          budgets: refused.map(({ definition, was }) => ({
            budget: definition.budget,
            was: `${was.unit} per ${was.window}`,
            is: `${definition.unit} per ${definition.window}`,
          })),
        };
      }
      if (redefined.length > 0)
        for (const workspace of before)
          await runner.run(workspace, (draft) => {
            for (const { definition } of redefined) draft.reset(budgetGroup(definition.budget));
          });
      await runner.run(INSTALLATION, (draft) => {
        const there = definitionRows.get(draft, ONLY) ?? {};
        const next = Object.fromEntries([
          ...Object.entries(there),
          ...budgets.map(({ budget, unit, window }) => [budget, { unit, window }] as const),
        ]);
        if (JSON.stringify(next) !== JSON.stringify(there)) definitionRows.put(draft, ONLY, next);
        if (policyRows.get(draft, ONLY) !== version) policyRows.put(draft, ONLY, version);
      });
      // Workspaces that were entered meanwhile may have got the previous policy.
      for (const workspace of await workspaces()) await bring(workspace);
      return { kind: 'active', version };
    },
  };
}
