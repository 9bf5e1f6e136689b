/** A limit of the product. */
export interface Limit {
  /** What is limited, in words. */
  readonly what: string;
  /** With its unit, as an operator would write it; a number where it is a count. */
  readonly value: string | number;
  /** What happens beyond it. */
  readonly beyond: string;
  /** `limits.<name>` of `gateway.yaml` sets it; otherwise where the constant stands, as `file#NAME`, or `null` for limits of a kind that no constant holds. */
  readonly set: 'configuration' | `${string}#${string}` | null;
}

/** Every limit of the product, in one table; rendered as `docs/operating/limits.md`. */
export const LIMITS = {
  body: {
    what: 'Body of a request to the gateway or, on write routes, through it.',
    value: '1MiB',
    beyond: '413 too_large; nothing ran',
    set: 'configuration',
  },
  params_depth: {
    what: 'Nesting of a JSON body.',
    value: 64,
    beyond: '400 invalid_json; nothing ran',
    set: 'configuration',
  },
  response_kept: {
    what: "Part of an upstream's answer that is kept for duplicates.",
    value: '64KiB',
    beyond: 'the rest is not kept; the duplicate says so',
    set: 'configuration',
  },
  response: {
    what: 'Answer of an upstream to a governed call that is read at all.',
    value: '8MiB',
    beyond: 'a success stays committed, with response_truncated',
    set: 'configuration',
  },
} as const satisfies Readonly<Record<string, Limit>>;
