import type { ApprovalRecord } from '../effects/model/approval.ts';
import { LEAST_APPROVALS } from './suggest.ts';

/** Most groups that rules are drafted for, and the newest approvals of each that are looked into. */
const MOST_GROUPS = 10;
const MOST_LOOKED_INTO = 50;

/** Requests of one tool that one rule alone asked about, all approved as they stood. */
export interface ApprovedGroup {
  readonly rule: string;
  readonly tool: string;
  /** Newest first. */
  readonly approvals: readonly ApprovalRecord[];
}

/**
 * Finds what people approve time and again. One rejection, or one approval with changes, and asking has shown its use:
 * that rule and tool are left alone.
 * @param approvals newest first
 * @param digestOf of a rule as it is now; `null` where it does not ask. What it asked in another form counts for nothing
 */
export function oftenApproved(
  approvals: readonly ApprovalRecord[],
  digestOf: (rule: string) => string | null,
): readonly ApprovedGroup[] {
  const groups = new Map<string, ApprovedGroup & { readonly approvals: ApprovalRecord[] }>();
  const useful = new Set<string>();
  const keyOf = (tool: string, rule: string): string => JSON.stringify([tool, rule]);
  for (const approval of approvals) {
    const { tool, requirements, status, changed, isForged } = approval;
    if (isForged === true) continue;
    if (status === 'rejected' || changed !== undefined)
      for (const { rule } of requirements) useful.add(keyOf(tool, rule));
    const [only, ...others] = requirements;
    const isApproved = status === 'granted' || status === 'used';
    if (!isApproved || only === undefined || others.length > 0 || only.ruleDigest !== digestOf(only.rule)) continue;
    const group = groups.get(keyOf(tool, only.rule)) ?? { rule: only.rule, tool, approvals: [] };
    group.approvals.push(approval);
    groups.set(keyOf(tool, only.rule), group);
  }
  return [...groups]
    .filter(([key, group]) => !useful.has(key) && group.approvals.length >= LEAST_APPROVALS)
    .map(([, group]) => group)
    .toSorted((a, b) => b.approvals.length - a.approvals.length)
    .slice(0, MOST_GROUPS)
    .map((group) => ({ ...group, approvals: group.approvals.slice(0, MOST_LOOKED_INTO) }));
}
