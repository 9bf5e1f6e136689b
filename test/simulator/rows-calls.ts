import type { EffectRecord } from '../../src/effects/model/effect.ts';
import type { AdmitRequest, SettleOutcome, SettleRequest } from '../../src/effects/store.ts';
import type { Obligation } from '../../src/effects/model/verdict.ts';
import { admitRequest, approvalBy, budgetOf, permit, settleRequest } from '../contract/requests.ts';

/** What calls of the world ask for: each key is one action, asked for again and again. */

export const START = 1_750_000_000_000;

export const TIMES = { dispatchWindowMs: 2000, timeoutMs: 1000, maxProcessingMs: 4000 } as const;
/** `max_freeze`, ms. */
export const MAX_FREEZE_MS = 3000;
/** Calendar windows are as long as this, ms. */
const WINDOW_MS = 9000;
export const ROLLING_MS = 20_000;

/** Every action costs this much of a budget, whose limits leave room for so many at once. */
const AMOUNT = 2;
export const LIMITS: Readonly<Record<string, number>> = { calendar: 5, rolling: 7, single: 3 };
export const CAPACITY = 1;
export const TARGET = 'account:wanted by all';
export const POOL = 'gpu';
/** The agent and the key that ask for claims, and from how many on they are refused. */
export const CLAIMANT = { agentId: 'y', keyId: 'key_agent0000001' } as const;
export const CLAIMS_AT_MOST = 20;

/** What a key's action needs beside its permission. */
export type Need = 'calendar' | 'rolling' | 'single' | 'claim' | 'pool' | 'approval';

/** Keys of the world, with what each needs; `x` and `y` are agents. */
export const ACTIONS: Readonly<Record<string, { readonly agent: 'x' | 'y'; readonly needs: readonly Need[] }>> = {
  a: { agent: 'x', needs: ['calendar', 'rolling'] },
  b: { agent: 'y', needs: ['calendar', 'rolling'] },
  c: { agent: 'x', needs: ['rolling', 'calendar'] },
  d: { agent: 'x', needs: ['claim', 'calendar'] },
  e: { agent: 'y', needs: ['claim'] },
  p: { agent: 'x', needs: ['pool'] },
  q: { agent: 'y', needs: ['pool', 'rolling'] },
  v: { agent: 'x', needs: ['approval', 'calendar'] },
  s: { agent: 'x', needs: ['single'] },
  t: { agent: 'y', needs: ['single'] },
};

/** What a gateway has seen of pauses and policy. */
export interface View {
  policy: string;
  pauses: number;
  pausedBy: AdmitRequest['pausedBy'];
}

export function windowAt(now: number): { readonly kind: 'calendar'; readonly start: number; readonly end: number } {
  const start = START + Math.floor((now - START) / WINDOW_MS) * WINDOW_MS;
  return { kind: 'calendar', start, end: start + WINDOW_MS };
}

export function requestFor(
  key: string,
  {
    now,
    owner,
    seen,
    id,
    dispatches,
  }: {
    readonly now: number;
    readonly owner: string;
    readonly seen: View;
    /** Of what this request may become. */
    readonly id: string;
    readonly dispatches: string | null;
  },
): AdmitRequest {
  const action = ACTIONS[key];
  if (action === undefined) throw new Error(`no action for key ${key}`);
  const approvals = action.needs.includes('approval') ? [approvalBy({ expiresMs: 30_000 })] : [];
  const verdict = permit(
    action.needs.flatMap((need) => obligation(need, now)),
    approvals,
  );
  return {
    ...admitRequest({
      workspace: 'w',
      idempotencyKey: key,
      effectId: `eff_${id}`,
      approvalId: `apr_${id}`,
      nonce: `n_${id}`,
      owner,
      seen: { policy: seen.policy, pauses: seen.pauses },
      pausedBy: seen.pausedBy,
      dispatches,
      sealed: '',
      verdict: { ...verdict, trace: { ...verdict.trace, policyVersion: seen.policy } },
      actor: { agentId: action.agent, keyId: `key_${action.agent}` },
      times: { ...TIMES, idempotentForMs: null },
    }),
    stages: [],
  };
}

function obligation(need: Need, now: number): readonly Obligation[] {
  switch (need) {
    case 'calendar':
      return [
        budgetOf(LIMITS['calendar'] ?? 0, AMOUNT, {
          budget: 'calendar',
          bucket: '',
          sharing: 'shared',
          window: windowAt(now),
        }),
      ];
    case 'rolling':
    case 'single':
      return [
        budgetOf(LIMITS[need] ?? 0, AMOUNT, {
          budget: need,
          bucket: '',
          sharing: 'shared',
          window: { kind: 'rolling', ms: ROLLING_MS },
        }),
      ];
    case 'claim':
      return [{ kind: 'claim', rule: 'r', target: TARGET, hold: 'call' }];
    case 'pool':
      return [{ kind: 'reserve', rule: 'r', pool: POOL, units: 1, capacity: CAPACITY }];
    case 'approval':
      return [];
  }
}

export function outcomeOf(word: 'committed' | 'failed' | 'unknown', effect: EffectRecord): SettleOutcome {
  switch (word) {
    case 'committed': {
      const receipt = { id: `rcp_${effect.id}`, jws: `jws.${effect.id}.${effect.attempt}` };
      return { kind: 'committed', receipt, result: null, accepted: false, responseTruncated: false };
    }
    case 'failed':
      return { kind: 'failed', result: null };
    case 'unknown':
      return { kind: 'unknown' };
  }
}

export function settlement(effect: EffectRecord, outcome: SettleOutcome): SettleRequest {
  return settleRequest(effect, outcome, {
    evidence: { code: 'http_status', message: '', answered: null, startedAt: null, endedAt: null },
    stages: [],
  });
}
