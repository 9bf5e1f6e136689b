import type { Names } from './expression.ts';
import type { Catalogue } from './match.ts';
import type { Reporter } from './reporter.ts';
import type { BudgetPlan } from './rule-plan.ts';
import type { SchedulePlan } from './schedules.ts';

/** Names outside its file that a rule may use. */
export interface Surroundings extends Catalogue {
  readonly pools: ReadonlyMap<string, number>;
  readonly roles: readonly string[];
  readonly rolesOf: ReadonlyMap<string, readonly string[]>;
  /** Names that the configuration declares, by the fact that has them (`env`, `agent.team`); none where it declares none. */
  readonly declared: ReadonlyMap<string, readonly string[]>;
  /** When the files are checked, ms since the epoch. */
  readonly now: number;
}

export interface SetContext {
  readonly set: string;
  readonly zone: string;
  readonly names: Names;
  readonly budgets: ReadonlyMap<string, BudgetPlan>;
  /** `null`: it is faulty. */
  readonly schedules: ReadonlyMap<string, SchedulePlan | null>;
  readonly surroundings: Surroundings;
  readonly report: Reporter;
}
