import type { JsonObject } from '../../json/value.ts';

/** Longest target of a call, sent or computed, characters. */
export const MAX_TARGET = 1_024;

/** How a body is written. `opaque`: bytes of any type, as they came. */
export const BODY_TYPES = ['json', 'form', 'multipart', 'opaque'] as const;
export type BodyType = (typeof BODY_TYPES)[number];

/**
 * How a form writes the elements of a list: `a[0]=…` (Stripe, PHP, qs), `a[]=…` (Rails, jQuery; elements that have parts
 * are written `a[0][x]=…` all the same), or the name again for each (`a=…&a=…`).
 */
export type FormLists = 'indices' | 'brackets' | 'repeat';

/** How params become a request to the upstream. Each name stands for one param. */
export interface RequestTemplate {
  readonly method: string;
  /** Path with `{param}` placeholders, beginning with `/`. */
  readonly path: string;
  /** Params sent in the query, by name. */
  readonly query: readonly string[];
  /** Header name (lower case) by param name. */
  readonly headers: Readonly<Record<string, string>>;
  /** Params sent as members of the body; `'*'` sends all that is left; empty sends no body. */
  readonly body: readonly string[] | '*';
  /** The one param that the whole body is (any JSON value, or a file); then `body` is empty. Absent: an object of params. */
  readonly bodyAs?: string;
  /** Absent: JSON. */
  readonly bodyType?: BodyType;
  /** Absent: by indices. */
  readonly formLists?: FormLists;
}

/** What an answer of the upstream is declared to mean, beyond the default table. */
export interface OutcomeMap {
  readonly committed: readonly number[];
  readonly failed: readonly number[];
  readonly unknown: readonly number[];
  /** Maps on paths of a JSON body, tried in order; the first whose value is equal decides. */
  readonly body: readonly {
    readonly path: string;
    readonly equals: JsonObject[string];
    readonly outcome: 'committed' | 'failed' | 'unknown';
  }[];
}

/** Whether the upstream itself removes duplicates, and for how long after the first dispatch. */
export type UpstreamIdempotency =
  | { readonly kind: 'none' }
  | { readonly kind: 'header'; readonly header: string; readonly forMs: number };

/** A tool as the configuration declares it: frozen, and the same object for the life of a configuration. */
export interface Tool {
  /** Canonical name, `<upstream>.<tool>` by convention, whatever door a call comes through. */
  readonly name: string;
  readonly title: string;
  /** `false` of what stands for the reads of a route that no rule names; absent of every declared tool. */
  readonly declared?: false;
  readonly upstream: string;
  readonly kind: 'read' | 'write';
  readonly actionType: string;
  readonly tags: readonly string[];
  readonly risk: 'low' | 'medium' | 'high' | 'critical' | null;
  /** The fact `env`: the upstream's, else the workspace's. `null` takes the workspace's. */
  readonly env: string | null;
  readonly request: RequestTemplate;
  readonly paramsSchema: JsonObject | null;
  /** Template of the target over params (`payment:{payment_id}`); `null` where the target is the caller's word. */
  readonly target: string | null;
  readonly timeoutMs: number;
  readonly maxProcessingMs: number;
  readonly idempotent: UpstreamIdempotency;
  readonly outcomes: OutcomeMap;
  /** Reads the live state for `state_check`; always a read request. */
  readonly state: RequestTemplate | null;
  /** SHA-256 over upstream, reference of its credentials and the request template: what a repeat must find unchanged. */
  readonly digest: string;
}
