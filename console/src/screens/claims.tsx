import { useQuery, useQueryClient } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { ask, type Claim, of, type Reservation } from '../api.ts';
import { spanText, Text, Time } from '../format.tsx';
import { Confirm, Copies, curlOf, Empty, Fault, Head, useNow } from '../parts.tsx';
import { useCurrent, useMay } from '../session.tsx';

export function ClaimsScreen(): JSX.Element {
  const { workspace } = useCurrent();
  const now = useNow();
  const path = of(workspace);
  const claims = useQuery({
    queryKey: [workspace, 'claims'],
    queryFn: () => ask<{ claims: Claim[] }>('GET', `${path}/claims`),
    refetchInterval: 5_000,
  });
  const reservations = useQuery({
    queryKey: [workspace, 'reservations'],
    queryFn: () => ask<{ reservations: Reservation[] }>('GET', `${path}/reservations`),
    enabled: useMay('reservations.read'),
    refetchInterval: 5_000,
  });
  const targets = claims.data?.claims ?? [];
  const units = reservations.data?.reservations ?? [];
  const isRead = claims.data !== undefined && !reservations.isLoading;
  return (
    <>
      <Head
        title="Claims and reservations"
        does="What one agent has for itself for a while: a target that no other may touch, units of a pool."
      />
      <Fault of={claims.error ?? reservations.error} />
      {isRead && targets.length + units.length === 0 && (
        <Empty title="Nothing is claimed or reserved">
          <p>
            Rules claim the target of a call while it runs. Agents take claims and reservations themselves where a plan
            has several steps; both end by themselves.
          </p>
        </Empty>
      )}
      <ul class="stack">
        {targets.map((claim) => (
          <Held key={claim.id} kind="claims" held={claim} now={now} title={claim.target}>
            {claim.running_effects.length > 0 && (
              <p>
                {claim.running_effects.length} {claim.running_effects.length === 1 ? 'call runs' : 'calls run'} under
                it. It lasts until they are settled
                {claim.extended_until !== null && (
                  <>
                    , <Time at={claim.extended_until} /> at the latest
                  </>
                )}
                .
              </p>
            )}
          </Held>
        ))}
        {units.map((reservation) => (
          <Held
            key={reservation.id}
            kind="reservations"
            held={reservation}
            now={now}
            title={`${reservation.units} of ${reservation.pool}`}
          />
        ))}
      </ul>
      <Copies
        curl={curlOf('GET', `${path}/claims`)}
        cli={`svc effects list --decision denied_claim --workspace ${workspace}`}
      />
    </>
  );
}

/** One claim or reservation. Its agent is told nothing when it is released: its next call is decided without it. */
function Held({
  kind,
  held,
  now,
  title,
  children,
}: {
  readonly kind: 'claims' | 'reservations';
  readonly held: Claim | Reservation;
  readonly now: number;
  readonly title: string;
  readonly children?: JSX.Element | false;
}): JSX.Element {
  const { workspace } = useCurrent();
  const queries = useQueryClient();
  const release = async (): Promise<void> => {
    await ask('DELETE', `${of(workspace)}/${kind}/${held.id}`);
    await queries.invalidateQueries({ queryKey: [workspace, kind] });
  };
  return (
    <li class="card">
      <header>
        <h2>
          <Text>{title}</Text>
        </h2>
        <span class="faint">{kind === 'claims' ? 'Claim' : 'Reservation'}</span>
      </header>
      <p class="faint">
        <Text>{held.agent_id}</Text> has it since <Time at={held.created_at} />, and until <Time at={held.expires_at} />
        {Date.parse(held.expires_at) > now && <>, {spanText(Date.parse(held.expires_at) - now)} from now</>}.
      </p>
      {children}
      {useMay(`${kind}.write`) && <Confirm label="Release" sure="Yes, others may have it" act={release} />}
    </li>
  );
}
