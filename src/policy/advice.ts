import { didYouMean } from '../diagnostics/nearest.ts';
import { type Json, isJsonObject } from '../json/value.ts';
import type { Tool } from '../effects/model/tool.ts';
import { holds, type Test } from './compiled-condition.ts';
import { type EngineCondition, isGroup, readOperator } from './engine-form.ts';
import { declaredParams } from './fact-path.ts';
import type { CompiledRule } from './compiled-rule.ts';
import type { Reporter } from './reporter.ts';
import { inputOfTool } from './tool-index.ts';
import type { PolicyFile } from './schema.ts';

/**
 * Warns of params that tools do not have. With a misspelt param, an allow rule never applies, and a deny rule denies
 * every call. Also warns of patterns that allow because of a part of a text.
 */
export function advise(
  rules: readonly CompiledRule[],
  file: PolicyFile,
  tools: readonly Tool[],
  report: Reporter,
): void {
  const closed = tools.filter((tool) => isClosed(tool.paramsSchema));
  const places = new Map(file.rules.map(({ id }, index) => [`${file.name}/${id}`, index]));
  for (const rule of rules) {
    const path = ['rules', places.get(rule.id) ?? 0, 'id'];
    if (rule.effect === 'allow' && finds(rule.conditions))
      report.warning('found_anywhere', path, [
        `'${rule.id}' allows where 'regex_find' finds its pattern anywhere in a text`,
        'write regex, which the whole text has to match',
      ]);
    const needed = neededParams(rule.perCall);
    if (needed.size === 0) continue;
    const own = closed.filter((tool) => holds(rule.perTool, inputOfTool(tool), undefined, rule.unknownIs));
    for (const param of needed) {
      const lacking = own.filter((tool) => !declaredParams(tool.paramsSchema).includes(param));
      const [first] = lacking;
      if (first === undefined) continue;
      const who =
        lacking.length === 1 ? `${first.name} has` : `${first.name} and ${lacking.length - 1} other tools have`;
      const near = didYouMean(param, declaredParams(first.paramsSchema));
      if (rule.effect === 'allow')
        report.warning('param_not_declared', path, [`${who} no param '${param}': the rule cannot apply there`, near]);
      else if (rule.unknownIs)
        report.warning('param_not_declared', path, [
          `${who} no param '${param}': the rule applies to every call there`,
          near ?? `match { has_params: [${param}] }, or give the condition if_absent`,
        ]);
    }
  }
}

/** Whether a condition can hold because of `regex_find`. */
function finds(condition: EngineCondition): boolean {
  if ('all' in condition) return condition.all.some(finds);
  if ('any' in condition) return condition.any.some(finds);
  const { name, negated } = readOperator(condition.operator);
  if (name === 'some' || name === 'every') return isGroup(condition.value) && finds(condition.value);
  return name === 'regex_find' && !negated;
}

/** Whether a schema allows only the params that it lists. */
function isClosed(schema: Json): boolean {
  return isJsonObject(schema) && schema['additionalProperties'] === false;
}

/** Params that make the rule unknown when they are absent: those in conditions that must all be judged. */
function neededParams(test: Test): ReadonlySet<string> {
  const parts = test.kind === 'all' ? test.of : [test];
  const names = new Set<string>();
  for (const part of parts) {
    if (part.kind !== 'leaf' && part.kind !== 'some' && part.kind !== 'every') continue;
    if (part.absent !== 'unknown') continue;
    const found = /^params\.([A-Za-z_][A-Za-z0-9_-]*)/.exec(part.fact);
    if (found?.[1] !== undefined) names.add(found[1]);
  }
  return names;
}
