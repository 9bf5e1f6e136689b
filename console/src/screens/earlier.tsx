import { useQuery } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { type Approval, ask, of } from '../api.ts';
import { useCurrent } from '../session.tsx';

/** How long before now a request is spoken of that nobody decided on, ms. */
const SHORTLY_MS = 24 * 3_600_000;

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
