/** JSON as the gateway answers it. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json };
export interface JsonObject {
  readonly [name: string]: Json;
}

/** What went wrong, as the gateway says it (RFC 9457). */
export class Problem extends Error {
  override readonly name = 'Problem';
  readonly code: string;
  readonly status: number;

  constructor(status: number, code: string, detail: string) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

type Method = 'GET' | 'POST' | 'PUT' | 'DELETE';

/** Called where a session is over, and where one that a link opened has to show its key. */
export const hooks = {
  signedOut: (): void => undefined,
  /** Resolves with whether the key was shown. */
  stepUp: async (): Promise<boolean> => false,
};

/** A gateway that sheds load has done nothing, and is asked again. */
const RETRY_MS = 500;
const MOST_RETRIES = 10;

/**
 * Asks the gateway. Every request has the header that other origins cannot send. What needs the key once more is asked
 * again after it was shown.
 * @throws Problem
 */
export async function ask<Answer = JsonObject>(
  method: Method,
  path: string,
  body?: JsonObject,
  times = 0,
): Promise<Answer> {
  try {
    return await askOnce<Answer>(method, path, body);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (error.code === 'missing_key') hooks.signedOut();
    if (error.status === 503 && times < MOST_RETRIES) {
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      return ask<Answer>(method, path, body, times + 1);
    }
    if (error.code !== 'step_up_required' || !(await hooks.stepUp())) throw error;
    return askOnce<Answer>(method, path, body);
  }
}

async function askOnce<Answer>(method: Method, path: string, body?: JsonObject): Promise<Answer> {
  const answer = await fetch(path, {
    method,
    headers: { ...OWN, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    redirect: 'error',
  }).catch(() => {
    const next = method === 'GET' ? 'It is tried again by itself.' : 'Look whether it was done before you repeat it.';
    throw new Problem(0, 'unreachable', `The gateway does not answer. ${next}`);
  });
  if (answer.status === 204) return undefined as Answer;
  const text = await answer.text();
  if (!answer.ok) throw problemOf(answer.status, text);
  return JSON.parse(text) as Answer;
}

/** Sent with every request of the console. */
export const OWN = { 'svc-console': '1' } as const;

function problemOf(status: number, text: string): Problem {
  try {
    const { code, detail, errors } = JSON.parse(text) as { code?: string; detail?: string; errors?: Fault[] };
    const faults = (errors ?? [])
      .map(({ path, message }) => `${path.replace(/^\/(?:changes\/)?/, '')} ${message}`)
      .join('; ');
    return new Problem(status, code ?? 'unknown', faults || (detail ?? `The gateway answered ${status}.`));
  } catch {
    return new Problem(status, 'unknown', `The gateway answered ${status}.`);
  }
}

interface Fault {
  readonly path: string;
  readonly message: string;
}

/** Who is signed in. */
export interface Session {
  readonly user: string | null;
  readonly roles: readonly string[];
  readonly kind: 'account' | 'administrative' | 'profile';
  readonly key_id: string;
  readonly read_only: boolean;
  readonly workspaces: readonly string[];
  /** Rows of the gateway's table of permissions. */
  readonly may: readonly string[];
  readonly has_shown_key: boolean;
  readonly expires_at: string;
}

export interface Reason {
  readonly code: string;
  readonly message: string;
  readonly policy?: string;
  readonly rule?: string;
}

export interface Effect {
  readonly id: string;
  readonly state: string;
  readonly decision: string;
  readonly tool: string;
  readonly target: string;
  readonly upstream: string;
  readonly agent_id: string;
  readonly key_id: string;
  readonly via: string;
  readonly idempotency_key: string;
  readonly attempt: number;
  readonly reason: Reason;
  readonly did_it_happen: 'yes' | 'no' | 'maybe';
  readonly safe_to_retry: boolean;
  readonly created_at: string;
  readonly first_dispatch_at: string | null;
  readonly settled_at: string | null;
  readonly receipt_id: string | null;
  readonly policy: { readonly version: string; readonly matched: readonly string[] };
  readonly observed?: { readonly would: string; readonly rule: string | null };
  readonly holds: readonly { readonly budget: string; readonly unit: string; readonly amount: number }[];
  readonly hold_state: string;
  readonly approval_id?: string;
  /** Limits that approvers let it go beyond. */
  readonly beyond?: readonly { readonly limit: string; readonly by: number }[];
  /** Nobody was asked: this user had allowed calls alike. */
  readonly allowance?: { readonly id: string; readonly given_by: string; readonly use: number };
  readonly evidence?: {
    readonly code: string;
    readonly message: string;
    readonly status: number | null;
    readonly started_at: string | null;
  };
  readonly quiesce_until?: string;
  readonly settled_by?: { readonly by: string; readonly user?: string | null; readonly comment?: string | null };
  readonly params?: JsonObject;
  readonly params_omitted?: string;
  readonly params_truncated?: boolean;
  readonly headers?: JsonObject;
  readonly result?: Json;
  readonly upstream_status?: number;
  readonly mismatches?: readonly { readonly field: string; readonly assumed: Json; readonly current: Json }[];
}

/** What an approver may make of a param. */
export interface Bounds {
  readonly min?: number | 'asked';
  readonly max?: number | 'asked';
  readonly one_of?: readonly (string | number | boolean)[];
  readonly max_length?: number;
}

/** How far the next calls alike may be allowed with an approval, and in what they may differ. */
export interface AllowAlike {
  readonly times: number;
  readonly for_s: number;
  readonly varies: Readonly<Record<string, Bounds>>;
}

/** What was allowed ahead with an approval. */
export interface Allowance {
  readonly id: string;
  readonly status: string;
  readonly given_by: string;
  readonly effect_id: string;
  readonly agent_id: string;
  readonly tool: string;
  readonly target: string;
  readonly times: number;
  readonly used: number;
  readonly expires_at: string;
}

export interface Approval {
  /** What is asked: a vote that names it counts for nothing else. */
  readonly digest: string;
  readonly id: string;
  readonly status: string;
  readonly expires_at: string;
  readonly created_at: string;
  readonly decided_at: string | null;
  /** Why an approved call was not sent. */
  readonly stopped?: { readonly at: string };
  readonly effect_id: string;
  readonly tool: string;
  readonly target: string;
  readonly summary: string | null;
  readonly requested_by: {
    readonly agent_id: string;
    readonly agent_owner: string | null;
    readonly user: string | null;
  };
  readonly requirements: readonly {
    readonly rule: string;
    readonly approvers: { readonly roles: readonly string[]; readonly users: readonly string[] };
    readonly quorum: number;
    readonly approvals: number;
    readonly escalates?: {
      readonly at: string;
      readonly to: { readonly roles: readonly string[]; readonly users: readonly string[] };
    };
    /** The limit that the call would go beyond: `budget:<id>` or `rate:<id>`. */
    readonly beyond?: string;
    readonly editable?: Readonly<Record<string, Bounds>>;
    readonly require_reason?: boolean;
  }[];
  /** An approver changed these params: the vote is for what stands in `params`. */
  readonly changed?: { readonly by: string; readonly at: string; readonly params: readonly string[] };
  readonly asked_params?: JsonObject;
  readonly allow_alike?: AllowAlike;
  readonly votes: readonly {
    readonly user: string;
    readonly verdict: string;
    readonly at: string;
    readonly comment: string | null;
  }[];
  readonly costs: readonly {
    readonly budget: string;
    readonly unit: string;
    readonly amount: number | null;
    readonly limit?: number;
    readonly spent?: number;
    readonly held?: number;
  }[];
  readonly params?: JsonObject;
  readonly params_omitted?: string;
  readonly action?: JsonObject;
  readonly why?: readonly {
    readonly rule: string;
    readonly description: string | null;
    readonly unknown: readonly string[];
  }[];
  /** Why an approval would send nothing now, or not yet. */
  readonly foreseen?: string;
  /** That the agent made the same call shortly before, or waits for more. */
  readonly repeat?: string;
}

export interface Pause {
  readonly id: string;
  readonly scope: JsonObject;
  readonly reason: string;
  readonly by: { readonly key_id: string; readonly key_kind: string; readonly user: string | null };
  readonly created_at: string;
  readonly until: string | null;
}

export interface Claim {
  readonly id: string;
  readonly target: string;
  readonly agent_id: string;
  readonly created_at: string;
  readonly expires_at: string;
  readonly running_effects: readonly string[];
  readonly extended_until: string | null;
}

export interface Reservation {
  readonly id: string;
  readonly pool: string;
  readonly units: number;
  readonly agent_id: string;
  readonly created_at: string;
  readonly expires_at: string;
}

/** A tool of an MCP server, as it was approved. */
export interface Pin {
  readonly tool: string;
  readonly upstream: string;
  readonly name: string;
  readonly state: string;
}

/** How a tool stands to what was approved of it. */
export interface ToolChange {
  readonly name: string | null;
  readonly state: string;
  readonly why?: string;
  readonly from?: string;
  readonly differences?: readonly { readonly path: string; readonly before?: Json; readonly after?: Json }[];
}

export interface Budget {
  readonly budget: string;
  readonly unit: string;
  readonly limit: number;
  readonly spent: number;
  readonly held: number;
  readonly remaining: number;
  readonly resets_at: string | null;
  readonly bucket: string;
  /** `c:<start>:<end>` in ms, or `r:<ms>` where it is a rolling one. */
  readonly window: string;
}

/** A budget that others use as well, as an agent's own key sees it. */
export type SharedBudget = Pick<Budget, 'budget' | 'resets_at'> & { readonly level: string };

export interface Key {
  readonly id: string;
  readonly name: string;
  readonly kind: string;
  readonly profile: string | null;
  readonly workspace: string | null;
  readonly agent_id: string | null;
  readonly user_id: string | null;
  readonly read_only: boolean;
  readonly created_at: string;
  readonly expires_at: string | null;
  readonly last_used_at: string | null;
  readonly revoked_at: string | null;
  readonly replaced_by: string | null;
}

export interface Passkey {
  readonly id: string;
  readonly name: string;
  readonly synced: boolean;
  readonly created_at: string;
  readonly last_used_at: string | null;
}

export interface Agent {
  readonly id: string;
  readonly team: string | null;
  readonly owner: string | null;
  readonly disabled: boolean;
  readonly roles: readonly string[];
}

export interface Rule {
  readonly id: string;
  readonly set: string;
  readonly effect: string;
  readonly mode: string;
  readonly description: string | null;
  readonly file?: string;
  readonly line?: number;
}

export interface StageOfRun {
  readonly stage: string;
  readonly status: string;
  readonly started_at: string;
  readonly duration_ms: number | null;
  readonly detail: string | null;
}

export interface LedgerEvent {
  readonly seq: number;
  readonly at: string;
  readonly kind: string;
  readonly actor: { readonly type: string; readonly id: string };
  readonly data: JsonObject;
}

export const of = (workspace: string): string => `/v1/workspaces/${encodeURIComponent(workspace)}`;

/** Something of the organisation that agents and policies may consult. */
export interface EntityHit {
  readonly type: string;
  readonly id: string;
  readonly name: string;
  readonly attributes: JsonObject;
  readonly links: readonly { readonly rel: string; readonly type: string; readonly id: string }[];
  readonly version: number;
  readonly updated_at: string;
}

export interface Entity extends EntityHit {
  readonly source:
    | { readonly kind: 'api'; readonly by: { readonly type: string; readonly id: string } }
    | { readonly kind: 'file'; readonly file: string; readonly line: number };
}
