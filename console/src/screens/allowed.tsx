import { useQuery, useQueryClient } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { Link } from 'wouter-preact';
import { type Allowance, type AllowAlike, type Approval, ask, type Bounds, of } from '../api.ts';
import { spanText, Text, Time, valueText, visible } from '../format.tsx';
import { boundsText, currencyOfParam } from '../money.ts';
import { Confirm, Fault } from '../parts.tsx';
import { useCurrent, useMay } from '../session.tsx';

/** How many of the next calls are offered, besides the most. */
const OFFERED = [1, 2, 3, 5, 10, 20, 50];

function differs(approval: Approval, name: string, bounds: Bounds): string {
  const { one_of: words } = bounds;
  if (words !== undefined) return `${visible(name)}: ${words.map(valueText).join(', ')}`;
  return `${visible(name)}: ${boundsText(bounds, null, currencyOfParam(name, approval.params ?? {}, approval.costs))}`;
}

/** The choice beside the answers: how many of the next calls are let in without asking, and what is alike. */
export function AlikeChoice({
  approval,
  may,
  set,
}: {
  readonly approval: Approval;
  readonly may: AllowAlike;
  readonly set: (times: number) => void;
}): JSX.Element {
  const counts = [...OFFERED.filter((count) => count < may.times), may.times];
  const varies = Object.entries(may.varies);
  return (
    <div>
      <label>
        <span>If you approve: the next calls like it, for {spanText(may.for_s * 1000)}</span>
        <select name="alike" onChange={({ currentTarget }) => set(Number(currentTarget.value))}>
          <option value="0">Ask about each of them</option>
          {counts.map((count) => (
            <option key={count} value={count}>
              {count === 1 ? 'Let the next one in without asking' : `Let the next ${count} in without asking`}
            </option>
          ))}
        </select>
      </label>
      <p class="faint small">
        Like it: <Text>{approval.requested_by.agent_id}</Text> calls <Text mono>{approval.tool}</Text> on{' '}
        <Text mono>{approval.target}</Text>, with the same headers and params
        {varies.length === 0
          ? ''
          : `, but for ${varies.map(([name, bounds]) => differs(approval, name, bounds)).join('; ')}`}
        . Budgets, pauses and rules that deny apply to each.
      </p>
    </div>
  );
}

/** What lets calls in without asking now. */
export function AllowedAhead(): JSX.Element {
  const { workspace } = useCurrent();
  const queries = useQueryClient();
  const mayRevoke = useMay('approvals.decide');
  const path = `${of(workspace)}/allowances`;
  const found = useQuery({
    queryKey: [workspace, 'allowances'],
    queryFn: () => ask<{ allowances: Allowance[] }>('GET', `${path}?limit=200`),
    refetchInterval: 10_000,
  });
  const open = (found.data?.allowances ?? []).filter(({ status }) => status === 'open');
  if (found.isError) return <Fault of={found.error} />;
  if (open.length === 0) return <></>;
  return (
    <section class="stack" aria-labelledby="allowed">
      <h2 id="allowed">Let in without asking</h2>
      <ul class="stack">
        {open.map((one) => (
          <li key={one.id} class="card">
            <p>
              <Text>{one.agent_id}</Text> calls <Text mono>{one.tool}</Text> on <Text mono>{one.target}</Text>:{' '}
              {one.used} of {one.times} used, until <Time at={one.expires_at} />. <Text>{one.given_by}</Text> allowed it{' '}
              <Link href={`/${workspace}/effects/${one.effect_id}`}>with this call</Link>.
            </p>
            {mayRevoke && (
              <Confirm
                label="Revoke"
                sure="Yes, ask about the next one"
                act={async () => {
                  await ask('DELETE', `${path}/${one.id}`);
                  await queries.invalidateQueries({ queryKey: [workspace, 'allowances'] });
                }}
              />
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}
