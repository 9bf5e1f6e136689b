/** One fault of a request: where (a JSON Pointer) and what. */
export interface Fault {
  readonly path: string;
  readonly message: string;
}

interface Details {
  readonly status?: number;
  readonly errors?: readonly Fault[];
  readonly requestId?: string | null;
  readonly retryAfterMs?: number | null;
  readonly idempotencyKey?: string | null;
  readonly didItHappen?: 'yes' | 'no' | 'maybe';
  readonly baseUrl?: string;
  readonly cause?: unknown;
}

/**
 * What went wrong when there is no decision: the request was not accepted (a problem document), or no answer came.
 * `code` is the gateway's code, or `missing_key`, `invalid_key`, `invalid_url`, `no_answer`, `bad_answer`, `aborted` from the client itself.
 */
export class SvcError extends Error {
  override readonly name = 'SvcError';
  readonly code: string;
  /** HTTP status; 0 when no answer came. */
  readonly status: number;
  readonly errors: readonly Fault[];
  readonly requestId: string | null;
  readonly retryAfterMs: number | null;
  /** For a call: its idempotency key. The same call with this key is the same action. */
  readonly idempotencyKey: string | null;
  readonly didItHappen: 'yes' | 'no' | 'maybe';
  /** The gateway that refused; `null` when no answer came. */
  readonly baseUrl: string | null;

  constructor(code: string, message: string, details: Details = {}) {
    super(message, 'cause' in details ? { cause: details.cause } : undefined);
    this.code = code;
    this.status = details.status ?? 0;
    this.errors = details.errors ?? [];
    this.requestId = details.requestId ?? null;
    this.retryAfterMs = details.retryAfterMs ?? null;
    this.idempotencyKey = details.idempotencyKey ?? null;
    this.didItHappen = details.didItHappen ?? 'no';
    this.baseUrl = details.baseUrl ?? null;
  }
}
