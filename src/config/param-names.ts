import { didYouMean } from '../diagnostics/nearest.ts';
import { namelessPlace, paramSteps, splitTemplate } from '../effects/model/param-template.ts';
import { placeInSchema } from '../json/schema-walk.ts';
import type { JsonObject, Step } from '../json/value.ts';
import { at, type Judge } from './judge.ts';

/** Checks the target of a tool: that its braces match, and that the schema has what stands in them. */
export function checkTarget(entry: { readonly target?: string }, schema: JsonObject | null, judge: Judge): void {
  const parts = splitTemplate(entry.target ?? '');
  if (parts.some((part, index) => index % 2 === 0 && /[{}]/.test(part)))
    judge.error('bad_target', at(entry, 'target'), [
      'The braces of the target do not match',
      'write payment:{payment_id}',
    ]);
  else
    for (const name of parts.filter((_, index) => index % 2 === 1)) {
      const steps = namedParam(entry, 'target', name, schema, judge);
      if (steps !== null && schema !== null && !placeInSchema(schema, steps).isRequired)
        judge.warn('target_param_optional', at(entry, 'target'), [
          `The target needs the param '${name}', which is not required`,
          'add it to required of params_schema',
        ]);
    }
}

/** The place of a param that a field names, or a part of one; `null` where the schema has no such name (reported). */
export function namedParam(
  entry: object,
  field: string,
  name: string,
  schema: JsonObject | null,
  judge: Judge,
): readonly Step[] | null {
  const steps = paramSteps(name, schema);
  if (steps === null) {
    const hint = `write payment_id, metadata.name for a part of a param, ${JSON.stringify([name])} for any other name`;
    judge.error('bad_target', at(entry, field), [`'${name}' names no param`, hint]);
    return null;
  }
  const fault = schema === null ? null : namelessPlace(steps, name, schema);
  if (fault === null) return steps;
  const known = fault.known.map((path) => path.replace(/^\./, ''));
  const isOfType = fault.message.includes('of type');
  const hint =
    didYouMean(name, known) ??
    (known.length > 0 && known.length <= 12 ? `known: ${known.join(', ')}` : null) ??
    (isOfType ? `name a part of it: {${name}.name}` : 'declare it in the params_schema');
  judge.error(isOfType ? 'bad_target' : 'unknown_param', at(entry, field), [fault.message, hint]);
  return null;
}

/** The param that a name is a part of, such as `metadata` of `metadata.name`; `null` where it is none. */
export function partOfParam(name: string, params: ReadonlySet<string>): string | null {
  const [first, ...rest] = paramSteps(name, null) ?? [];
  return typeof first === 'string' && rest.length > 0 && params.has(first) ? first : null;
}
