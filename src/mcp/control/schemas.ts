import { type TSchema, type TUnsafe, Type } from 'typebox';
import { DECISIONS } from '../../effects/model/decision.ts';
import type { JsonObject } from '../../json/value.ts';

/** Building blocks of the schemas of control-plane tools. Outputs name what is always there, and allow more. */

export const AnyObject = (description: string): TUnsafe<JsonObject> =>
  Type.Unsafe<JsonObject>({ type: 'object', description });

export const Items = (description: string): TSchema => Type.Array(AnyObject(description));

/** A text or nothing. */
export const TextOrNull = (description: string): TSchema =>
  Type.Unsafe<string | null>({ type: ['string', 'null'], description });

export const NumberOrNull = (description: string): TSchema =>
  Type.Unsafe<number | null>({ type: ['number', 'null'], description });

export const Decision = Type.Enum([...DECISIONS], { description: 'One of the 14 decisions.' });

export const Reason = Type.Object(
  { code: Type.String(), message: Type.String() },
  { description: 'Why: a stable code with a page in the documentation, and a sentence.' },
);

export const AgentId = Type.String({ minLength: 1, maxLength: 128, description: 'Id of an agent.' });

export const ToolName = Type.String({ minLength: 1, maxLength: 200, description: 'Name of a declared tool.' });

export const EffectId = Type.String({ minLength: 1, maxLength: 64, description: 'Id of an effect, `eff_…`.' });

const MAX_PAGE = 50;
export const DEFAULT_PAGE = 20;

export const PAGE = {
  limit: Type.Optional(
    Type.Integer({ minimum: 1, maximum: MAX_PAGE, description: `At most ${MAX_PAGE}; ${DEFAULT_PAGE} if absent.` }),
  ),
  cursor: Type.Optional(
    Type.String({ minLength: 1, maxLength: 500, description: '`next_cursor` of the page before.' }),
  ),
};

export const NextCursor = TextOrNull('For the next page; null at the end. A page may be short though others follow.');

/** Arguments: exactly these. */
export function args<Properties extends Record<string, TSchema>>(properties: Properties) {
  return Type.Object(properties, { additionalProperties: false });
}
