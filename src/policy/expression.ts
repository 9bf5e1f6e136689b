import type { Json } from '../json/value.ts';
import type { Entities, FactPath } from './fact-path.ts';
import type { OperatorName } from './operators.ts';

/** A condition as written, in either form, with its names resolved. It has three truth values (Kleene logic). */
export type Expression =
  | { readonly kind: 'all' | 'any'; readonly of: readonly Expression[] }
  | { readonly kind: 'not'; readonly of: Expression }
  | {
      readonly kind: 'leaf';
      readonly fact: FactPath;
      readonly operator: OperatorName;
      readonly right: RightSide;
      /** Truth where the fact is absent or null; `null`: unknown. */
      readonly ifAbsent: boolean | null;
    }
  | {
      readonly kind: 'some' | 'every';
      readonly fact: FactPath;
      readonly of: Expression;
      readonly ifAbsent: boolean | null;
    };

export type RightSide =
  | { readonly kind: 'literal'; readonly value: Json }
  | { readonly kind: 'fact'; readonly fact: FactPath }
  /** A value that depends on a fact. The policy set defines its table. */
  | { readonly kind: 'value'; readonly table: ValueTable };

/** A named value: one of a fixed set of literals, chosen by a fact that the caller cannot set. */
export interface ValueTable {
  /** Full id, `set/name`. */
  readonly id: string;
  readonly by: FactPath;
  readonly of: ReadonlyMap<string, Json>;
  readonly otherwise: Json;
}

/** The names that `$name` and `condition: name` can use in one policy set. */
export interface Names {
  /** What `brain.<name>` stands for. */
  readonly entities: Entities;
  /** `null` where there is no such name. The reader of the rule reports that. */
  right(name: string): Extract<RightSide, { kind: 'literal' | 'value' }> | null;
  readonly rightNames: readonly string[];
  /** `expression` is `null` where the condition does not exist (`missing`) or is faulty. */
  condition(name: string): { readonly expression: Expression | null; readonly missing: boolean };
  readonly conditionNames: readonly string[];
}
