import { type JsonObject, type Step } from '../../json/value.ts';

/** Longest target of a call, whether sent or computed, in characters. */
export const MAX_TARGET = 1_024;

/** The encoding of a body. `opaque`: bytes of any type, unchanged. */
export const BODY_TYPES = ['json', 'form', 'multipart', 'opaque'] as const;
export type BodyType = (typeof BODY_TYPES)[number];

/**
 * How a form writes the elements of a list: `a[0]=…` (Stripe, PHP, qs), `a[]=…` (Rails, jQuery; elements with parts are
 * still written `a[0][x]=…`), or the same name for each (`a=…&a=…`).
 */
export type FormLists = 'indices' | 'brackets' | 'repeat';

/**
 * How a list in the query is written: as in a form, or as one text with separators, `a=1,2`, `a=1%202`, `a=1%7C2`.
 * Objects are written `a[b]=…`, which OpenAPI calls `deepObject`.
 */
export type QueryStyle = FormLists | 'comma' | 'space' | 'pipe';

/** The name of a param of a query up to its first bracket. A bracket at the very beginning belongs to the name. */
export function rootOfName(name: string): string {
  const open = name.indexOf('[', 1);
  return open === -1 ? name : name.slice(0, open);
}

/** How params become a request to the upstream. Each name is the name of a param. */
export interface RequestTemplate {
  readonly method: string;
  /** Path with `{param}` placeholders, beginning with `/`. `{+param}`, at the end: it holds the rest of the path. */
  readonly path: string;
  /** Params of the path that hold slashes, which are sent encoded. Absent: none. */
  readonly encodedSlashes?: readonly string[];
  /** Params sent in the query, by name. */
  readonly query: readonly string[];
  /** Of those the ones that may be lists or objects, and how each is written. Absent: all are single values. */
  readonly queryStyles?: Readonly<Record<string, QueryStyle>>;
  /** The one param that holds what stands in the query and has no name above. Absent: that is refused. */
  readonly queryRest?: string;
  /** How lists in `queryRest` are written. Absent: `repeat`. */
  readonly queryLists?: FormLists;
  /** Header name (lower case) by param name. */
  readonly headers: Readonly<Record<string, string>>;
  /** Params sent as members of the body. `'*'` sends all that are left; an empty list sends no body. */
  readonly body: readonly string[] | '*';
  /**
   * The one param that is the whole body (any JSON value, or a file); then `body` is empty. Absent: the body is an
   * object of params.
   */
  readonly bodyAs?: string;
  /** Absent: JSON. */
  readonly bodyType?: BodyType;
  /** Absent: `indices`. */
  readonly formLists?: FormLists;
}

/** The names of the params in a path, in their order. */
export function pathParams(path: string): string[] {
  return [...path.matchAll(/\{\+?([^{}]+)\}/g)].map(([, name]) => name ?? '');
}

/** What the tool declares about answers of its upstream, beyond the default table. */
export interface OutcomeMap {
  readonly committed: readonly number[];
  readonly failed: readonly number[];
  readonly unknown: readonly number[];
  /** Rules about paths in a JSON body, tried in order. The first one with an equal value decides. */
  readonly body: readonly {
    readonly path: string;
    readonly equals: JsonObject[string];
    readonly outcome: 'committed' | 'failed' | 'unknown';
  }[];
}

export interface HttpCall {
  readonly kind: 'http';
  readonly request: RequestTemplate;
  readonly outcomes: OutcomeMap;
  /** Reads the live state for `state_check`; always a read request. */
  readonly state: RequestTemplate | null;
}

/** A call of a tool of an MCP server: the params are its arguments. */
export interface McpCall {
  readonly kind: 'mcp';
  readonly name: string;
  readonly pinned: JsonObject;
  /** Its name at the door to all servers, which no other tool has. Absent: it is not there. */
  readonly federated?: string;
  /**
   * Members of `_meta` that the server needs. They are the param `_meta`: part of the action, and seen by policy. Absent:
   * none.
   */
  readonly meta?: readonly string[];
  /** Where the params have the idempotency key of a call that brings none. Absent: the key is derived. */
  readonly keyFrom?: readonly Step[];
  /** How long after it was done an equal call without a key of its own is the same one, ms. Absent: each is meant. */
  readonly repeatMs?: number;
  /** What a result with `isError` means for a write. */
  readonly isError: 'unknown' | 'failed';
  /** What becomes of a call whose caller has gone. */
  readonly onClientClose: 'finish' | 'abort';
}

/** How its upstream can be asked what became of a call whose outcome is unknown. */
export interface Probe {
  /** What is sent: a read of the same upstream. */
  readonly read: Tool;
  /** The params of the read. A text `{name}` stands for that param of the call, `{idempotency_key}` for the upstream's key. */
  readonly params: JsonObject;
  /** Conditions on the answer, as `/outcomes/reconcile` takes them, with `{name}` as in the params. All must hold. */
  readonly happened: JsonObject;
  /** Counts only once nothing can be under way any more, and twice. */
  readonly notHappened: JsonObject;
  /** How long after a reading the next one is made, ms. */
  readonly everyMs: number;
  /** How long after the outcome became unknown the gateway makes the first reading by itself, ms. */
  readonly afterMs: number;
  /** How long after that it goes on making them, ms. 0: it makes none. */
  readonly forMs: number;
}

/** A tool of the configuration. It is frozen, and the same object as long as the configuration is in force. */
export interface Tool {
  /** Canonical name, by convention `<upstream>.<tool>`. It is the same at every door. */
  readonly name: string;
  readonly title: string;
  /** `false` for the tool that stands for the undeclared reads of a route. Absent for every declared tool. */
  readonly declared?: false;
  readonly upstream: string;
  readonly kind: 'read' | 'write';
  readonly actionType: string;
  readonly tags: readonly string[];
  readonly risk: 'low' | 'medium' | 'high' | 'critical' | null;
  /** The fact `env` of the upstream; `null` means the `env` of the workspace. */
  readonly env: string | null;
  /** How the upstream is asked, by its kind. */
  readonly call: HttpCall | McpCall;
  readonly paramsSchema: JsonObject | null;
  /** Template of the target, filled from params (`payment:{payment_id}`, `pod:{metadata.name}`); `null` where the caller names the target. */
  readonly target: string | null;
  readonly timeoutMs: number;
  readonly maxProcessingMs: number;
  /**
   * Its answers are streams. Then `timeoutMs` is how long nothing may come, `totalMs` how long the whole may take, and
   * at most `bytes` are passed on. Absent: answers come as a whole, within `timeoutMs`.
   */
  readonly streams?: { readonly totalMs: number; readonly bytes: number };
  /**
   * Where answers say what was really spent: by the unit of budgets, paths in the JSON of the answer, or of the last
   * event that has them. Several are added up; of each the first counts that the answer has. Absent: what was held is
   * posted.
   */
  readonly actual?: Readonly<Record<string, readonly (readonly string[])[]>>;
  readonly idempotent:
    | { readonly kind: 'none' }
    | { readonly kind: 'header'; readonly header: string; readonly forMs: number };
  /** Absent: what became of a call is found out by people. */
  readonly probe?: Probe;
  /** SHA-256 over the upstream, the reference to its credentials, and the call. A repeat must find the same digest. */
  readonly digest: string;
}

export interface HttpTool extends Tool {
  readonly call: HttpCall;
}

export function isHttpTool(tool: Tool): tool is HttpTool {
  return tool.call.kind === 'http';
}

/** Whether the live state of what a tool acts on can be read (`state_check`). */
export function readsState(tool: Tool): boolean {
  return isHttpTool(tool) && tool.call.state !== null;
}

/** The call of a tool that was pinned; `null` of tools without a pin, also of what stands for a server's other methods. */
export function pinnedCall({ call, declared }: Tool): McpCall | null {
  return call.kind === 'mcp' && declared !== false ? call : null;
}
