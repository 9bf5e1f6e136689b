import { useQuery } from '@tanstack/preact-query';
import { type Approval, ask, type Effect, of } from './api.ts';
import { useCurrent } from './session.tsx';

export const waitingPath = (workspace: string): string => `${of(workspace)}/approvals?status=pending&limit=200`;
export const unknownPath = (workspace: string): string => `${of(workspace)}/effects?state=unknown&limit=200`;

/** Requests for approval that wait. Screens that ask for them share what was read. */
export function useWaiting(refetchInterval: number, enabled = true) {
  const { workspace } = useCurrent();
  const queryFn = () => ask<{ approvals: Approval[] }>('GET', waitingPath(workspace));
  return useQuery({ queryKey: [workspace, 'approvals', 'pending'], queryFn, enabled, refetchInterval });
}

/** Effects whose outcome is unknown, the newest first. Screens that ask for them share what was read. */
export function useUnknown(refetchInterval: number, enabled = true) {
  const { workspace } = useCurrent();
  const queryFn = () => ask<{ effects: Effect[]; next_cursor: string | null }>('GET', unknownPath(workspace));
  return useQuery({ queryKey: [workspace, 'effects', 'unknown'], queryFn, enabled, refetchInterval });
}
