import type { AllowanceRecord } from '../model/allowance.ts';
import type { LedgerEvent } from '../model/ledger.ts';
import type { EffectStore } from '../store.ts';

interface LedgerAllowance {
  used: number;
  ended: 'revoked' | 'replaced' | null;
  readonly times: number;
  readonly expiresAt: number;
}

/**
 * Computes from a ledger, event by event, which allowances there should be, and how often each was used. Where the store
 * differs is told in the form of other differences.
 */
export function createAllowanceAudit() {
  const byId = new Map<string, LedgerAllowance>();

  function end(id: unknown, why: 'revoked' | 'replaced'): void {
    const allowance = typeof id === 'string' ? byId.get(id) : undefined;
    if (allowance !== undefined) allowance.ended = why;
  }

  return {
    add({ kind, data }: LedgerEvent): void {
      const { allowance_id: id, times, expires_at: until, instead_of: before } = data;
      if (typeof id !== 'string') return;
      const allowance = byId.get(id);
      if (kind === 'allowance.used' && allowance !== undefined) allowance.used += 1;
      if (kind === 'allowance.revoked') end(id, 'revoked');
      if (kind !== 'allowance.given' || typeof times !== 'number' || typeof until !== 'string') return;
      byId.set(id, { used: 0, ended: null, times, expiresAt: Date.parse(until) });
      end(before, 'replaced');
    },
    /** @param now store time: one whose time is over may be gone */
    compare(stored: readonly AllowanceRecord[], now: number) {
      const there = new Set(stored.map(({ id }) => id));
      const wrong = stored.flatMap(({ id, ended, used, times, expiresAt }) => {
        const ledger = standing(byId.get(id));
        const store = standing({ used, ended: ended?.why ?? null, times, expiresAt });
        return ledger === store ? [] : [differenceOf(id, ledger, store)];
      });
      const gone = [...byId].filter(([id, { expiresAt }]) => expiresAt > now && !there.has(id));
      return [...wrong, ...gone.map(([id, one]) => differenceOf(id, standing(one), 'nothing'))];
    },
  };
}

function differenceOf(where: string, ledger: string, store: string) {
  return { what: 'allowance', where, ledger, store } as const;
}

function standing(one: LedgerAllowance | undefined): string {
  if (one === undefined) return 'nothing';
  const { used, ended, times, expiresAt } = one;
  return `used ${used} of ${times} until ${new Date(expiresAt).toISOString()}${ended === null ? '' : `, ${ended}`}`;
}

export async function allAllowances(
  store: Pick<EffectStore, 'allowances'>,
  workspace: string,
): Promise<readonly AllowanceRecord[]> {
  const all: AllowanceRecord[] = [];
  let cursor: string | null = null;
  do {
    const page: Awaited<ReturnType<EffectStore['allowances']>> = await store.allowances(workspace, {
      agentId: null,
      limit: 100,
      cursor,
    });
    all.push(...page.items);
    cursor = page.next;
  } while (cursor !== null);
  return all;
}
