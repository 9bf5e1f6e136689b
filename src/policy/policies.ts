import type { BudgetDefinition } from '../effects/store.ts';
import type { CompiledRule } from './compiled-rule.ts';
import type { ToolIndex } from './tool-index.ts';

/** All policy sets of a gateway, compiled against its tools. Immutable. */
export interface CompiledPolicies {
  /** SHA-256 of the canonical form of all sets and the list files they name, base64url. */
  readonly version: string;
  readonly budgets: readonly BudgetDefinition[];
  /** In the order of report: effect, priority, set, position. */
  readonly rules: readonly CompiledRule[];
  readonly byTool: ReadonlyMap<string, ToolIndex>;
  /** Whether some rule could permit a call of the tool: what `tools/list` shows. */
  couldPermit(tool: string): boolean;
  /** Params of a tool that some rule masks, whether or not it matches a call. */
  redacted(tool: string): ReadonlySet<string>;
}
