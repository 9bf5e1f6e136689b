import { didYouMean } from '../diagnostics/nearest.ts';
import type { DataPath } from '../diagnostics/yaml-source.ts';
import { namelessPlace } from '../effects/model/param-template.ts';
import type { Tool } from '../effects/model/tool.ts';
import { holds } from './compiled-condition.ts';
import type { CompiledRule } from './compiled-rule.ts';
import type { Reporter } from './reporter.ts';
import type { RulePlan } from './rule-plan.ts';
import { inputOfTool } from './tool-index.ts';
import type { PolicyFile } from './schema.ts';

/**
 * Finds params in the names of claims and pools that the tools of the rule do not have: each call without is refused.
 * Where no tool of the rule can give it one, that is an error.
 */
export function reportNameless(
  plans: readonly RulePlan[],
  rules: readonly CompiledRule[],
  file: PolicyFile,
  tools: readonly Tool[],
  report: Reporter,
): void {
  for (const [place, { id, obligations = [] }] of file.rules.entries()) {
    const index = plans.findIndex((plan) => plan.id === `${file.name}/${id}`);
    const rule = rules[index];
    const names = (plans[index]?.obligations ?? []).flatMap((one) =>
      one.kind === 'claim' ? [one.on] : one.kind === 'reserve' ? [one.pool] : [],
    );
    if (rule === undefined || names.length === 0) continue;
    const paths = obligations.flatMap(({ claim, reserve }, at): DataPath[] =>
      claim !== undefined ? [[at, 'claim', 'on']] : reserve !== undefined ? [[at, 'reserve', 'pool']] : [],
    );
    const own = tools.filter((tool) => holds(rule.perTool, inputOfTool(tool), undefined, rule.unknownIs));
    for (const [at, { parts }] of names.entries())
      for (const fact of parts) {
        if (typeof fact === 'string' || 'amount' in fact || fact.root !== 'params') continue;
        const faults = own.flatMap((tool) => {
          const fault = namelessPlace(fact.steps, fact.text, tool.paramsSchema);
          return fault === null ? [] : [{ ...fault, tool: tool.name }];
        });
        const [first] = faults;
        if (first === undefined) continue;
        const known = first.known.map((path) => `params${path}`);
        report[faults.length === own.length && faults.every(({ isCertain }) => isCertain) ? 'error' : 'warning'](
          'nameless',
          ['rules', place, 'obligations', ...(paths[at] ?? [])],
          [
            `${first.message.replace('param ', '')} in calls of ${first.tool}: each is refused`,
            didYouMean(fact.text, known) ?? (known.length > 0 ? `known: ${known.join(', ')}` : null),
          ],
        );
      }
  }
}
