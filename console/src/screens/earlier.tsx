import { useQuery } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { type Approval, ask, of } from '../api.ts';
import { WithTimes } from '../format.tsx';
import { useCurrent } from '../session.tsx';

/** How long before now a request is spoken of that nobody decided on, ms. */
const SHORTLY_MS = 24 * 3_600_000;

/**
 * What one should know before a vote. What is known when the buttons appear stands above them, and keeps its place when it
 * is over; what comes later stands below them: nothing moves a button under somebody's finger.
 */
export function useNotices(isPending: boolean, known: readonly (string | undefined)[]) {
  const texts = known.filter((text) => text !== undefined);
  const [first, setFirst] = useState<readonly string[] | null>(null);
  if (first === null && !isPending) setFirst(texts);
  const isSame = (one: string) => (other: string) => withoutSpans(one) === withoutSpans(other);
  const notice = (text: string, isOver = false): JSX.Element => (
    <p key={withoutSpans(text)} class={`banner ${isOver ? 'over' : ''}`}>
      <WithTimes>{text}</WithTimes>
    </p>
  );
  const above = (first ?? texts).map((text) => ({ text, now: texts.find(isSame(text)) }));
  return {
    first: above.map(({ text, now }) => notice(now ?? text, now === undefined)),
    later: texts.filter((text) => !above.some((one) => isSame(text)(one.text))).map((text) => notice(text)),
  };
}

const withoutSpans = (text: string): string => text.replaceAll(/ \d+ (?:h|min)\b/g, '');

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
