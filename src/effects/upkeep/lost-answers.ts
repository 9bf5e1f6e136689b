import type { EffectRecord } from '../model/effect.ts';
import type { AdmitRequest, SettleRequest } from '../store.ts';

/** Times at which a lost admission is searched for, ms after it was lost. Its request to the store may arrive late. */
const CHECK_AFTER_MS = [0, 1000, 5000, 30_000, 120_000];

/** How often due searches are looked for, ms. */
const EVERY_MS = 100;

/** Most that are remembered. For others, the attempt ends with its lease. */
const REMEMBERED = 10_000;

interface Lost {
  readonly workspace: string;
  readonly key: string;
  readonly nonce: string;
  readonly since: number;
  checks: number;
}

/**
 * Admissions whose answer never came. The caller was told that the store is unavailable, and sent nothing. But the
 * store may have admitted the call, and it would end as an unknown outcome that nobody can resolve. So these admissions
 * are found by their nonce, and settled as not dispatched.
 * @param boundTo the effect that an idempotency key is bound to; `null` where there is none with a record
 */
export function watchLostAnswers(
  boundTo: (workspace: string, idempotencyKey: string) => Promise<EffectRecord | null>,
  settle: (request: SettleRequest) => Promise<unknown>,
) {
  const open = new Map<string, Lost>();
  let looking = false;

  const nameOf = ({ workspace, nonce }: AdmitRequest): string => `${workspace}\n${nonce}`;

  async function check({ workspace, key, nonce }: Lost): Promise<boolean> {
    const effect = await boundTo(workspace, key);
    if (effect?.life.state !== 'executing' && effect?.life.state !== 'unknown') return false;
    const { fence } = effect.life.lease;
    if (fence.nonce !== nonce) return false;
    await settle(notDispatched(workspace, effect.id, fence));
    return true;
  }

  async function settleFirst(of: readonly (readonly [string, Lost])[]): Promise<void> {
    for (const [name, it] of of) if (await check(it)) open.delete(name);
  }

  async function round(): Promise<void> {
    if (looking) return;
    looking = true;
    try {
      for (const [name, it] of open) {
        const due = CHECK_AFTER_MS[it.checks];
        if (due !== undefined && performance.now() - it.since < due) continue;
        const found = await check(it);
        it.checks += 1;
        if (found || it.checks >= CHECK_AFTER_MS.length) open.delete(name);
      }
    } catch {
      // The store is still unreachable, or faulty. The search goes on.
    } finally {
      looking = false;
    }
  }
  const timer = setInterval(() => {
    if (open.size > 0) void round();
  }, EVERY_MS);
  timer.unref();

  return {
    lost(request: AdmitRequest): void {
      if (open.size >= REMEMBERED) return;
      const { workspace, idempotencyKey, nonce } = request;
      open.set(nameOf(request), { workspace, key: idempotencyKey, nonce, since: performance.now(), checks: 0 });
    },
    /**
     * Call this before an admission. If the answer to an earlier admission of the same key was lost, that one is settled
     * first. Otherwise this call would be told that the action is running. @throws StoreUnavailable
     */
    before(request: AdmitRequest): Promise<void> | null {
      if (open.size === 0) return null;
      const { workspace, idempotencyKey } = request;
      // The same admission is asked for again.
      open.delete(nameOf(request));
      const of = [...open].filter(([, it]) => it.workspace === workspace && it.key === idempotencyKey);
      return of.length === 0 ? null : settleFirst(of);
    },
    close: (): void => clearInterval(timer),
  };
}

/** The settlement of an attempt that was admitted and never sent. */
export function notDispatched(workspace: string, effectId: string, fence: SettleRequest['fence']): SettleRequest {
  return {
    workspace,
    effectId,
    fence,
    outcome: { kind: 'failed', result: null },
    settledBy: { by: 'owner' },
    evidence: {
      code: 'not_dispatched',
      message: 'The admission could not be made durable, or its answer was lost; nothing was sent.',
      answered: null,
      startedAt: null,
      endedAt: null,
    },
    stages: [],
  };
}
