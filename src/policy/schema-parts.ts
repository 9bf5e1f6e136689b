import { Type } from 'typebox';

/* What many fields of a policy file look like. */

export const closed = { additionalProperties: false } as const;
export const choice = <Value extends string>(values: readonly Value[], description: string) =>
  Type.Unsafe<Value>({ type: 'string', enum: [...values], description });
export const word = (description: string) =>
  Type.String({
    pattern: '^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$',
    patternErrorMessage: 'letters, digits, - and _, at most 63, beginning with a letter or digit',
    description,
  });
export const duration = (description: string) =>
  Type.String({
    pattern: '^[1-9][0-9]{0,8}(ms|s|m|h|d)$',
    patternErrorMessage: 'a duration such as 30s, 15m, 4h or 7d',
    description,
  });
export const names = (description: string) =>
  Type.Array(Type.String({ minLength: 1, maxLength: 256 }), { minItems: 1, description });
export const scalar = Type.Union([Type.String(), Type.Number(), Type.Boolean()]);
export const instant = (description: string) =>
  Type.String({
    pattern: '^\\d{4}-\\d{2}-\\d{2}(T\\d{2}:\\d{2}(:\\d{2}(\\.\\d{1,3})?)?(Z|[+-]\\d{2}:\\d{2}))?$',
    patternErrorMessage:
      'a date (2026-12-20, midnight in the zone of the set) or a time with offset (2026-12-20T08:00:00Z)',
    description,
  });
export const reference = (description: string) =>
  Type.String({
    pattern: '^\\$[A-Za-z0-9][A-Za-z0-9_-]{0,62}$',
    patternErrorMessage: 'the $name of a value',
    description,
  });
export const count = (minimum: number, description: string) =>
  Type.Union([Type.Integer({ minimum, maximum: Number.MAX_SAFE_INTEGER }), reference('a named value')], {
    description,
    title: 'a whole number or the $name of a value',
  });
export const facts = (description: string) =>
  Type.Array(Type.String({ minLength: 1, maxLength: 256 }), { maxItems: 8, description });
