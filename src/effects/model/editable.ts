import type { Json } from '../../json/value.ts';

/** A bound of a number: itself, or what the agent asked for. */
export type Bound = number | 'asked';

export type Bounds =
  | { readonly kind: 'range'; readonly min: Bound | null; readonly max: Bound | null }
  | { readonly kind: 'choice'; readonly of: readonly (string | number | boolean)[] }
  | { readonly kind: 'text'; readonly maxLength: number };

export type Editable = Readonly<Record<string, Bounds>>;

export function editableIn(rules: readonly { readonly editable?: Editable }[]): Editable {
  return Object.fromEntries(rules.flatMap(({ editable = {} }) => Object.entries(editable)));
}

/**
 * Why an approver may not give a param this value; `null` where it is within its bounds.
 * @param asked the value that the agent asked for; `undefined` where it sent none
 */
export function boundsFault(bounds: Bounds, asked: Json | undefined, value: Json): string | null {
  switch (bounds.kind) {
    case 'range': {
      if (typeof value !== 'number' || !Number.isFinite(value)) return 'has to be a number';
      if (Number.isInteger(value) && !Number.isSafeInteger(value)) return 'is larger than what is known exactly';
      for (const side of ['min', 'max'] as const) {
        const bound = bounds[side] === 'asked' ? asked : bounds[side];
        if (bound === null) continue;
        if (typeof bound !== 'number')
          return 'cannot be changed: it may go as far as what was asked, which is no number';
        if (side === 'min' ? value < bound : value > bound)
          return `may be ${side === 'min' ? 'no less' : 'no more'} than ${bound}${bounds[side] === 'asked' ? ', which was asked' : ''}`;
      }
      return null;
    }
    case 'choice':
      return bounds.of.some((one) => one === value) ? null : `may be one of ${bounds.of.map(String).join(', ')}`;
    case 'text':
      if (typeof value !== 'string') return 'has to be a text';
      return value.length <= bounds.maxLength ? null : `may have no more than ${bounds.maxLength} characters`;
  }
}

/** Bounds as policies write them, and as answers show them. */
export function boundsToWire(bounds: Bounds) {
  switch (bounds.kind) {
    case 'range':
      return {
        ...(bounds.min === null ? {} : { min: bounds.min }),
        ...(bounds.max === null ? {} : { max: bounds.max }),
      };
    case 'choice':
      return { one_of: bounds.of };
    case 'text':
      return { max_length: bounds.maxLength };
  }
}

/** The params that a request for approval names as editable, as answers show them. */
export function editableToWire(editable: Editable) {
  return Object.fromEntries(Object.entries(editable).map(([name, bounds]) => [name, boundsToWire(bounds)]));
}
