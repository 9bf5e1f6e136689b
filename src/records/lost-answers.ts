import { type AdmitRequest, type SettleRequest, StoreUnavailable } from '../effects/store.ts';
import { effectRows, keyRows } from './effect-rows.ts';
import type { StepRunner } from './runner.ts';

/** When an admission whose answer was lost is looked for, ms after it was lost. What was under way may arrive late. */
const LOOKED_FOR_AT = [0, 1000, 5000, 30_000, 120_000];

/** How often it is looked whether any is due, ms. */
const EVERY_MS = 500;

/** At most so many are remembered; beyond that leases end by their time. */
const REMEMBERED = 10_000;

/**
 * Admissions whose answer never came. The caller was told that the store is unavailable and sent nothing; but the
 * store may have admitted them, and they would end as unknown outcomes that nobody can resolve. So they are looked
 * for by their nonce, and settled as what they are: not dispatched.
 */
export interface LostAnswers {
  lost(request: AdmitRequest): void;
  /** The same admission is asked for again. */
  askedAgain(request: AdmitRequest): void;
  close(): void;
}

interface Lost {
  readonly request: AdmitRequest;
  readonly since: number;
  looked: number;
}

export function watchLostAnswers(
  runner: StepRunner,
  settle: (request: SettleRequest) => Promise<unknown>,
): LostAnswers {
  const open = new Map<string, Lost>();
  let looking = false;

  const nameOf = ({ workspace, nonce }: AdmitRequest): string => `${workspace}\n${nonce}`;

  async function look({ workspace, idempotencyKey, nonce }: AdmitRequest): Promise<boolean> {
    const [bound] = await runner.read(workspace, [{ kind: keyRows.kind, id: idempotencyKey }]);
    if (bound === null || bound === undefined) return false;
    const [row] = await runner.read(workspace, [{ kind: effectRows.kind, id: bound.text }]);
    const stored = row === null || row === undefined ? null : effectRows.of(row);
    if (stored?.kind !== 'effect') return false;
    const { id, life } = stored.effect;
    if (life.state !== 'executing' && life.state !== 'unknown') return false;
    if (life.lease.fence.nonce !== nonce) return false;
    await settle(notDispatched(workspace, id, life.lease.fence));
    return true;
  }

  async function round(): Promise<void> {
    if (looking) return;
    looking = true;
    try {
      for (const [name, it] of open) {
        const due = LOOKED_FOR_AT[it.looked];
        if (due !== undefined && performance.now() - it.since < due) continue;
        const found = await look(it.request);
        it.looked += 1;
        if (found || it.looked >= LOOKED_FOR_AT.length) open.delete(name);
      }
    } catch (error) {
      // The store is still away: they are looked for when it is back.
      if (!(error instanceof StoreUnavailable)) throw error;
    } finally {
      looking = false;
    }
  }
  const timer = setInterval(() => {
    if (open.size > 0) void round();
  }, EVERY_MS);
  timer.unref();

  return {
    lost(request) {
      if (open.size < REMEMBERED) open.set(nameOf(request), { request, since: performance.now(), looked: 0 });
    },
    askedAgain: (request) => void open.delete(nameOf(request)),
    close: () => clearInterval(timer),
  };
}

/** The settlement of an attempt that was admitted and never sent. */
function notDispatched(workspace: string, effectId: string, fence: SettleRequest['fence']): SettleRequest {
  return {
    workspace,
    effectId,
    fence,
    outcome: { kind: 'failed', result: null },
    settledBy: { by: 'owner' },
    evidence: {
      code: 'not_dispatched',
      message: 'The admission could not be made durable, or its answer was lost; nothing was sent.',
      status: null,
      startedAt: null,
      endedAt: null,
    },
    stages: [],
  };
}
