import { useQuery } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { type Approval, ask, type Effect, of } from '../api.ts';
import { moneyTaken } from '../money.ts';
import { useCurrent, useMay } from '../session.tsx';

/** How long before now the same call is spoken of beside the answers, and a request that nobody decided on, ms. */
const SHORTLY_MS = 24 * 3_600_000;

/** When the same agent last did the same on the target, for the same money; nothing where it is over a day ago, or no money. */
export function useMadeBefore({ id, tool, target, costs, params, requested_by: by }: Approval): number | null {
  const { workspace } = useCurrent();
  const path = `${of(workspace)}/effects`;
  const since = new Date(Date.now() - SHORTLY_MS).toISOString();
  const asked = new URLSearchParams({ tool, target, agent_id: by.agent_id, decision: 'committed', limit: '20', since });
  const money = moneyTaken(costs, params?.['currency']);
  const found = useQuery({
    queryKey: [workspace, 'effects', 'made', id, money?.text],
    queryFn: async () => {
      const { effects } = await ask<{ effects: Effect[] }>('GET', `${path}?${asked}`);
      const last = effects.find(({ holds }) => moneyTaken(holds, money?.currency)?.text === money?.text);
      if (last === undefined) return null;
      // The list has no params: whether it was in the same currency stands in the call itself.
      const { effect } = await ask<{ effect: Effect }>('GET', `${path}/${last.id}`);
      const isSame = moneyTaken(effect.holds, effect.params?.['currency'])?.text === money?.text;
      return isSame ? Date.parse(effect.settled_at ?? effect.created_at) : null;
    },
    enabled: useMay('effects.read') && money !== null,
    refetchInterval: 10_000,
  });
  return found.data ?? null;
}

/** How many requests nobody decided on in time: they wait no longer, and nothing of them happened. */
export function Expired({ now }: { readonly now: number }): JSX.Element | null {
  const { workspace } = useCurrent();
  const found = useQuery({
    queryKey: [workspace, 'approvals', 'expired'],
    queryFn: () => ask<{ approvals: Approval[] }>('GET', `${of(workspace)}/approvals?status=expired&limit=200`),
    refetchInterval: 30_000,
  });
  // Of those that people approved some were stopped until their time was over, and of some people were asked anew.
  const late = (found.data?.approvals ?? []).filter(
    ({ decided_at: decided, expires_at: end, stopped }) =>
      stopped === undefined && now - Date.parse(end) < SHORTLY_MS && (decided === null || decided >= end),
  );
  if (late.length === 0) return null;
  const many = late.length === 1 ? 'One request' : `${late.length} requests`;
  return <p class="faint">{many} ended without a decision in the last 24 h: nothing of that happened.</p>;
}
