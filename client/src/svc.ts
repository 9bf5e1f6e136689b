import { SvcError } from './error.ts';
import type { Json, JsonObject } from './json.ts';
import type {
  CallInput,
  CallOptions,
  ChosenPolicies,
  EffectFilter,
  ExportRequest,
  InstallationLedgerFilter,
  KeyFilter,
  LedgerFilter,
  ObservedReadPage,
  Reconciliation,
  ResolveInput,
  StateVerification,
} from './records.ts';
import type { CallResult } from './result.ts';
import type * as wire from './wire-records.ts';
import { type Connection, exchange, exchangeInPieces, type Fetch, pause } from './transport.ts';
import { toResult } from './to-result.ts';
import { camel, isObject, snake } from './wire.ts';

export interface SvcOptions {
  /** Default: the environment variable `SVC_API_KEY`. */
  readonly apiKey?: string;
  /** Default: `SVC_BASE_URL`, else `http://127.0.0.1:8080`. */
  readonly baseUrl?: string;
  /** Default: `SVC_WORKSPACE`, else `default`. */
  readonly workspace?: string;
  readonly fetch?: Fetch;
  /** How often one request is sent at most, including the first time; default 4. */
  readonly attempts?: number;
  /** For each sending, in ms; default 60 s. */
  readonly timeoutMs?: number;
}

type Query = Readonly<Record<string, string | number | undefined>>;

type WaitOptions = { readonly timeoutMs?: number | undefined; readonly signal?: AbortSignal | undefined };

/** A client of the gateway. It has no connection and no state: make one and keep it. */
export class Svc {
  readonly #to: Connection;
  readonly #base: string;
  /** Where the gateway is, without a slash at the end. */
  readonly baseUrl: string;

  /** @throws SvcError `missing_key`, `invalid_key` or `invalid_url`, before anything is sent */
  constructor(options: SvcOptions = {}) {
    const env = (globalThis as { process?: { env?: Record<string, string | undefined> } }).process?.env ?? {};
    const apiKey = (options.apiKey ?? env['SVC_API_KEY'] ?? '').trim();
    if (apiKey === '') throw new SvcError('missing_key', 'No API key: pass `apiKey`, or set SVC_API_KEY');
    if (!/^[!-~]+$/.test(apiKey))
      throw new SvcError(
        'invalid_key',
        'The API key holds characters that no key has: is it another file or variable?',
      );
    const baseUrl = (options.baseUrl ?? env['SVC_BASE_URL'] ?? 'http://127.0.0.1:8080').replace(/\/+$/, '');
    if (!/^https?:\/\/[^/]/i.test(baseUrl))
      throw new SvcError('invalid_url', `${baseUrl} is not the http or https URL of a gateway`);
    this.#to = {
      apiKey,
      baseUrl,
      fetch: options.fetch ?? globalThis.fetch,
      attempts: options.attempts ?? 4,
      timeoutMs: options.timeoutMs ?? 60_000,
    };
    this.baseUrl = baseUrl;
    this.#base = `/v1/workspaces/${encodeURIComponent(options.workspace ?? env['SVC_WORKSPACE'] ?? 'default')}`;
  }

  /**
   * Runs an action, at most once per idempotency key. A decision is never retried. If the answer is lost, the call is
   * sent again with the same key.
   * @throws SvcError when the request was not accepted, or no answer came (its `idempotencyKey` says which call it was)
   */
  async call(input: CallInput & CallOptions): Promise<CallResult> {
    const { wait, signal, ...action } = input;
    const key = input.idempotencyKey ?? globalThis.crypto.randomUUID();
    const body = actionToWire({ ...action, idempotencyKey: key });
    const answer = await this.#ask({ method: 'POST', path: '/effects', body, repeatable: true, signal, key });
    const result = toResult(answer, key);
    if (wait === undefined || wait === false) return result;
    return this.wait(result, { signal, timeoutMs: wait === true ? undefined : wait });
  }

  /** What the result of {@link call} would be now; nothing is run, nothing is written. */
  async preview(input: CallInput): Promise<wire.Preview> {
    const body = actionToWire({ ...input, idempotencyKey: input.idempotencyKey ?? globalThis.crypto.randomUUID() });
    return this.#post('/effects/preview', body, true);
  }

  /**
   * Polls until a waiting or running effect has a result. Needs only its id, so it also works after a restart of the
   * caller. When the time is over, resolves with the last result seen. An unknown outcome is a result.
   */
  async wait(effect: string | CallResult, { timeoutMs = Infinity, signal }: WaitOptions = {}): Promise<CallResult> {
    const end = performance.now() + timeoutMs;
    let result = typeof effect === 'string' ? await this.#result(effect, null, signal) : effect;
    const key = result.idempotencyKey;
    for (let delay = 200; ; delay = Math.min(delay * 1.5, 5000)) {
      if (result.status !== 'pending_approval' && result.status !== 'in_progress') return result;
      const left = end - performance.now();
      if (left <= 0) return result;
      await pause(Math.min(delay, left), signal);
      result = await this.#result(result.effectId, key, signal);
    }
  }

  /** Settles an unknown outcome. Needs an account key. The same resolution may be sent twice. */
  async resolve(effectId: string, input: ResolveInput): Promise<CallResult> {
    await this.#post(`/effects/${encodeURIComponent(effectId)}/resolve`, snake(input), true);
    return this.#result(effectId, null);
  }

  readonly effects = {
    /** Finds out from the upstream what became of an unknown outcome, where its tool declares a probe. */
    probe: (id: string): Promise<wire.Probed> => this.#post(`/effects/${encodeURIComponent(id)}/probe`, {}, true),
    get: (id: string): Promise<wire.EffectWithLedger> => this.#get(`/effects/${encodeURIComponent(id)}`),
    list: (filter: EffectFilter = {}): Promise<wire.EffectPage> => this.#get('/effects', snake(filter) as Query),
    /**
     * Proxied reads that passed because policy only observes, newest first. A page may be empty even if others follow.
     */
    observedReads: (page: { readonly limit?: number; readonly cursor?: string } = {}): Promise<ObservedReadPage> =>
      this.#get('/observed-reads', page),
    /** All proxied reads that passed, added up once a second, newest first. */
    reads: (page: { readonly limit?: number; readonly cursor?: string } = {}): Promise<wire.PassedReadPage> =>
      this.#get('/observed-reads', { ...page, all: 'true' }),
    /** The signed receipt, with the exact spelling that was signed. */
    receipt: async (id: string): Promise<wire.Receipt> =>
      (await this.#ask({
        method: 'GET',
        path: `/effects/${encodeURIComponent(id)}/receipt`,
        repeatable: true,
      })) as unknown as wire.Receipt,
    /**
     * The receipt with what opens its commitments, for `svc verify --disclosure`; with `fields` only these of them. For who may
     * read the params. `params.NAME` is one param, where the receipt commits to each.
     */
    disclosure: async (id: string, fields?: readonly string[]): Promise<JsonObject> => {
      const query = search({ disclosure: '1', fields: fields?.map(fieldText).join(',') });
      const path = `/effects/${encodeURIComponent(id)}/receipt${query}`;
      return (await this.#ask({ method: 'GET', path, repeatable: true })) as JsonObject;
    },
    /**
     * Removes params, salts and the kept answer of an effect that has ended; its receipt stays. Needs an account key.
     */
    erase: (id: string): Promise<void> => this.#delete(`/effects/${encodeURIComponent(id)}/params`),
    run: (id: string): Promise<wire.Run> => this.#get(`/effects/${encodeURIComponent(id)}/run`),
    /** What it took of budgets, and how these stood before and after. Not for keys of one agent. */
    budgets: (id: string): Promise<wire.EffectBudgets> => this.#get(`/effects/${encodeURIComponent(id)}/budgets`),
  };

  /** The declared tools, as far as the key sees them. */
  readonly tools = {
    list: (): Promise<{ readonly tools: readonly { readonly name: string }[] }> => this.#get('/tools'),
  };

  /** The append-only ledger, newest first. A page may be short or empty even if others follow. */
  readonly ledger = {
    list: (filter: LedgerFilter = {}): Promise<wire.LedgerPage> => this.#get('/ledger', snake(filter) as Query),
    /**
     * Effects, receipts and events, piece by piece. An export that breaks off throws; a bundle ends with its seal, which
     * `svc verify` checks.
     */
    export: (asked: ExportRequest = {}): Promise<AsyncIterable<Uint8Array>> =>
      exchangeInPieces(this.#to, `${this.#base}/export${search(snake(asked) as Query)}`),
    /** Of what belongs to no workspace. Needs an administrative key. */
    installation: (filter: InstallationLedgerFilter = {}): Promise<wire.LedgerPage> =>
      this.#installation('GET', `/ledger${search(snake(filter) as Query)}`),
  };

  readonly approvals = {
    list: (
      filter: { readonly status?: wire.Approval['status']; readonly limit?: number; readonly cursor?: string } = {},
    ): Promise<wire.ApprovalPage> => this.#get('/approvals', filter),
    get: (id: string): Promise<wire.Approval> => this.#get(`/approvals/${encodeURIComponent(id)}`),
    /**
     * `changes`: params that the policy lets the voter change, by name. `digest`: of what the voter has seen. `allowAlike`:
     * the next calls alike are let in without asking, so many, until then, as far as the policy lets.
     */
    approve: (
      id: string,
      input: {
        readonly comment?: string;
        readonly digest?: string;
        readonly changes?: Readonly<Record<string, string | number | boolean>>;
        readonly allowAlike?: { readonly times?: number; readonly until?: string };
      } = {},
    ): Promise<wire.Voted> => this.#post(`/approvals/${encodeURIComponent(id)}/approve`, snake(input), false),
    reject: (id: string, input: { readonly comment?: string; readonly digest?: string } = {}): Promise<wire.Voted> =>
      this.#post(`/approvals/${encodeURIComponent(id)}/reject`, snake(input), false),
  };

  /** What was allowed ahead with approvals. */
  readonly allowances = {
    list: (filter: { readonly limit?: number; readonly cursor?: string } = {}): Promise<wire.AllowancePage> =>
      this.#get('/allowances', filter),
    revoke: async (id: string): Promise<wire.Allowance> => {
      const path = `/allowances/${encodeURIComponent(id)}`;
      return camel(await this.#ask({ method: 'DELETE', path, repeatable: false })) as unknown as wire.Allowance;
    },
  };

  readonly claims = {
    list: (): Promise<{ readonly claims: readonly wire.Claim[] }> => this.#get('/claims'),
    /** @throws SvcError `claim_held` when another agent has the target */
    take: (input: { readonly target: string; readonly agentId?: string; readonly ttlS: number }): Promise<wire.Claim> =>
      this.#post('/claims', snake(input), false),
    renew: (id: string, input: { readonly ttlS?: number } = {}): Promise<wire.Claim> =>
      this.#post(`/claims/${encodeURIComponent(id)}/renew`, snake(input), true),
    release: (id: string): Promise<void> => this.#delete(`/claims/${encodeURIComponent(id)}`),
  };

  readonly reservations = {
    list: (): Promise<{ readonly reservations: readonly wire.Reservation[] }> => this.#get('/reservations'),
    /** @throws SvcError `pool_full` when there are not enough free units */
    make: (input: {
      readonly pool: string;
      readonly units: number;
      readonly agentId?: string;
      readonly ttlS: number;
    }): Promise<wire.Reservation> => this.#post('/reservations', snake(input), false),
    release: (id: string): Promise<void> => this.#delete(`/reservations/${encodeURIComponent(id)}`),
  };

  readonly pauses = {
    list: (): Promise<{ readonly pauses: readonly wire.Pause[] }> => this.#get('/pauses'),
    set: (input: {
      readonly scope: wire.PauseScope;
      readonly reason: string;
      readonly until?: string;
    }): Promise<wire.Pause> => this.#post('/pauses', snake(input), false),
    lift: (id: string): Promise<void> => this.#delete(`/pauses/${encodeURIComponent(id)}`),
  };

  /** Keys of agents, users and administrators. Needs an administrative key. */
  readonly keys = {
    list: (filter: KeyFilter = {}): Promise<{ readonly keys: readonly wire.ApiKey[] }> =>
      this.#installation('GET', `/keys${search(snake(filter) as Query)}`),
    revoke: (id: string): Promise<wire.ApiKey> => this.#installation('DELETE', `/keys/${encodeURIComponent(id)}`),
    /** The answer has the successor's `key`, only this once. `overlap` is how long the old key stays valid, s. */
    rotate: (id: string, input: { readonly overlap?: number } = {}): Promise<wire.MadeKey> =>
      this.#installation('POST', `/keys/${encodeURIComponent(id)}/rotate`, snake(input)),
  };

  /** Passkeys of a user: of the key's own, or with an administrative key of anybody. They are added on the console. */
  readonly passkeys = {
    list: (user: string): Promise<{ readonly passkeys: readonly wire.Passkey[] }> =>
      this.#installation('GET', `/users/${encodeURIComponent(user)}/passkeys`),
    remove: (user: string, id: string): Promise<wire.Passkey> =>
      this.#installation('DELETE', `/users/${encodeURIComponent(user)}/passkeys/${encodeURIComponent(id)}`),
  };

  readonly console = {
    /** A link that signs the owner of the key in to the console, once, within five minutes. */
    link: (): Promise<{ readonly url: string; readonly expiresAt: string }> =>
      this.#installation('POST', '/console/links', {}),
  };

  /** The policies that all gateways of a store run. Needs an administrative key, but for what is suggested. */
  readonly policies = {
    history: (): Promise<wire.PolicyHistory> => this.#installation('GET', '/policies/activations'),
    /**
     * Puts the policies in force that the files of the gateway say; with a version, those that were in force under it.
     * With a `proposal` in the answer, they wait for another person; `version` is what is in force.
     */
    activate: (version?: string, input: { readonly comment?: string } = {}): Promise<ChosenPolicies> =>
      this.#installation('POST', '/policies/activations', { ...snake(input), ...(version && { version }) }),
    /** What the policies of a version said, file by file. */
    show: (version: string): Promise<wire.PolicyVersion> =>
      this.#installation('GET', `/policies/versions/${encodeURIComponent(version)}`),
    /** Puts those in force that were in force before. */
    rollback: (input: { readonly comment?: string } = {}): Promise<ChosenPolicies> =>
      this.#installation('POST', '/policies/rollback', snake(input)),
    /** Rules that would let run what people approved each time. Needs an account key; nothing is changed by it. */
    suggestions: (): Promise<{ readonly version: string; readonly suggestions: readonly wire.PolicySuggestion[] }> =>
      this.#get('/policies/suggestions'),
    /** What was proposed, newest first, also what is over. */
    proposals: (): Promise<{ readonly inForce: string | null; readonly proposals: readonly wire.PolicyProposal[] }> =>
      this.#installation('GET', '/policies/proposals'),
    /** Confirms what somebody else has proposed. */
    confirm: (proposal: string): Promise<Required<ChosenPolicies>> =>
      this.#installation('POST', `/policies/proposals/${encodeURIComponent(proposal)}/confirm`, {}),
    /** Withdraws a proposal, or turns it down. */
    withdraw: (proposal: string): Promise<wire.PolicyProposal> =>
      this.#installation('DELETE', `/policies/proposals/${encodeURIComponent(proposal)}`),
  };

  /** What people are told of, and what became of it. Needs an administrative key. */
  readonly notifications = {
    list: (
      filter: {
        readonly state?: wire.NotificationDelivery['state'];
        readonly limit?: number;
        readonly cursor?: string;
      } = {},
    ): Promise<wire.NotificationPage> => this.#installation('GET', `/notifications${search(filter)}`),
    resend: (id: string): Promise<wire.NotificationDelivery> =>
      this.#installation('POST', `/notifications/${encodeURIComponent(id)}/resend`, {}),
  };

  readonly budgets = {
    list: (): Promise<{ readonly budgets: readonly wire.BudgetRow[] }> => this.#get('/budgets'),
  };

  /** Compares the state an agent assumed with the live state before a write. */
  async verifyState(input: StateVerification): Promise<wire.StateVerdict> {
    return camel(await this.#root('/state/verify', snake(input))) as unknown as wire.StateVerdict;
  }

  /** Decides from live state whether a retry is safe after an unknown outcome. */
  async reconcile(input: Reconciliation): Promise<wire.ReconcileVerdict> {
    const { action, ...rest } = input;
    const body = { outcome: 'UNKNOWN', ...snake(rest), action: snake(action) };
    return (await this.#root('/outcomes/reconcile', body)) as unknown as wire.ReconcileVerdict;
  }

  /** What has become of a call. @param key its idempotency key; `null` where only its id is known */
  async #result(id: string, key: string | null, signal?: AbortSignal): Promise<CallResult> {
    const path = `/effects/${encodeURIComponent(id)}`;
    const body = await this.#ask({ method: 'GET', path, repeatable: true, signal, key });
    return toResult((isObject(body) && body['effect']) || null, key);
  }

  async #get<T>(path: string, query: Query = {}): Promise<T> {
    return camel(await this.#ask({ method: 'GET', path: path + search(query), repeatable: true })) as T;
  }

  async #post<T>(path: string, body: JsonObject, repeatable: boolean): Promise<T> {
    return camel(await this.#ask({ method: 'POST', path, body, repeatable })) as T;
  }

  async #delete(path: string): Promise<void> {
    await this.#ask({ method: 'DELETE', path, repeatable: false });
  }

  #ask(request: Parameters<typeof exchange>[1]): Promise<Json> {
    return exchange(this.#to, { ...request, path: this.#base + request.path });
  }

  /** For requests that belong to no workspace. */
  async #installation<T>(method: 'GET' | 'POST' | 'DELETE', path: string, body?: JsonObject): Promise<T> {
    const request = { method, path: `/v1/beta${path}`, repeatable: method === 'GET', ...(body && { body }) };
    return camel(await exchange(this.#to, request)) as T;
  }

  #root(path: string, body: JsonObject): Promise<Json> {
    return exchange(this.#to, { method: 'POST', path, body, repeatable: true });
  }
}

/** Fields are separated by commas, which names of params may have. */
function fieldText(field: string): string {
  return field.replaceAll('%', '%25').replaceAll(',', '%2C');
}

function search(query: Query): string {
  const named = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined) named.set(name, String(value));
  return named.size > 0 ? `?${named.toString()}` : '';
}

function actionToWire(input: CallInput): JsonObject {
  const { stateCheck, ...rest } = input;
  return { ...snake(rest), ...(stateCheck && { state_check: snake(stateCheck) }) };
}
