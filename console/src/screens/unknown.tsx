import { useQuery } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { ask, type Effect, of } from '../api.ts';
import { spanText, Text, Time } from '../format.tsx';
import { amountText } from '../money.ts';
import { Copies, curlOf, Empty, Fault, Head, useNow } from '../parts.tsx';
import { unknownPath, useUnknown } from '../queries.ts';
import { ResolveForm } from '../resolve.tsx';
import { useCurrent, useMay } from '../session.tsx';
import { Facts, Params } from './effect.tsx';

/** Of how many that are chosen it is shown what to look for. */
const MOST_DESCRIBED = 5;

export function UnknownScreen(): JSX.Element {
  const { workspace } = useCurrent();
  const now = useNow();
  const may = useMay('effects.resolve');
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [refused, setRefused] = useState<readonly unknown[]>([]);
  const found = useUnknown(5_000);
  const effects = (found.data?.effects ?? []).toReversed();
  const selected = effects.filter(({ id }) => chosen.has(id));
  const choose = (id: string, isChosen: boolean): void =>
    setChosen(new Set([...[...chosen].filter((other) => other !== id), ...(isChosen ? [id] : [])]));
  const settled = (failed: readonly unknown[]): void => {
    setRefused(failed);
    setChosen(new Set());
  };

  return (
    <>
      <Head
        title="Unknown outcomes"
        does="Calls whose answer was lost. They may have happened. The gateway sends none of them again by itself: somebody looks, and says what is so."
      />
      <Fault of={found.error ?? refused[0]} />
      {found.data !== undefined && effects.length === 0 && (
        <Empty title="Nothing is unknown">
          <p>Of every call that was sent, it is known whether it happened. There is nothing to do here.</p>
        </Empty>
      )}
      {effects.length > 0 && (
        <div class={may ? 'cols' : ''}>
          <div class="list unknown">
            <div class="heads" aria-hidden="true">
              <span />
              <span>Since</span>
              <span>What</span>
              <span>Why, and what would settle it</span>
            </div>
            <ol aria-label="Unknown outcomes, oldest first">
              {effects.map((effect) => (
                <li key={effect.id}>
                  <div class={`cells ${chosen.has(effect.id) ? 'chosen' : ''}`}>
                    <span class="pick">
                      {may && (
                        <input
                          type="checkbox"
                          aria-label={`Choose ${effect.tool} on ${effect.target}`}
                          checked={chosen.has(effect.id)}
                          onChange={({ currentTarget }) => choose(effect.id, currentTarget.checked)}
                        />
                      )}
                    </span>
                    <span class="num since">
                      {spanText(now - Date.parse(effect.evidence?.started_at ?? effect.created_at))}
                    </span>
                    <span class="wrap what">
                      <Link href={`/${workspace}/effects/${effect.id}`}>
                        <Text mono>{effect.tool}</Text>
                      </Link>
                      <br />
                      <span class="faint">
                        <Text mono>{effect.target}</Text>, by <Text>{effect.agent_id}</Text>
                      </span>
                    </span>
                    <span class="wrap why">
                      {effect.evidence?.message ?? effect.reason.message}
                      <br />
                      <span class="faint">
                        {effect.safe_to_retry
                          ? 'Or the agent sends it again: the upstream removes duplicates.'
                          : `Look in ${effect.upstream}.`}
                      </span>
                    </span>
                  </div>
                </li>
              ))}
            </ol>
          </div>
          {may && (
            <section class="card" aria-labelledby="settle">
              <h2 id="settle">
                {selected.length === 0 ? 'Choose what you looked at' : `Settle ${selected.length} of ${effects.length}`}
              </h2>
              {selected.length === 0 ? (
                <p class="faint">Choose one, or several that have the same answer.</p>
              ) : (
                <>
                  {selected.slice(0, MOST_DESCRIBED).map(({ id }) => (
                    <LookFor key={id} id={id} />
                  ))}
                  <ResolveForm key={[...chosen].join()} effects={selected} settled={settled} />
                </>
              )}
            </section>
          )}
        </div>
      )}
      <Copies
        curl={curlOf('GET', unknownPath(workspace))}
        cli={
          selected[0] === undefined
            ? `svc effects list --state unknown --workspace ${workspace}`
            : `svc effects resolve ${selected[0].id} --outcome happened --workspace ${workspace}`
        }
      />
    </>
  );
}

/** What to look for in the upstream: everything that tells this call from another one. */
function LookFor({ id }: { readonly id: string }): JSX.Element {
  const { workspace } = useCurrent();
  const path = `${of(workspace)}/effects/${id}`;
  const found = useQuery({
    queryKey: [workspace, 'effects', 'one', id],
    queryFn: () => ask<{ effect: Effect }>('GET', path),
  });
  if (found.data === undefined) return <Fault of={found.error} />;
  const { effect } = found.data;
  return (
    <div class="stack">
      <Facts
        of={[
          ['Tool', <Text mono>{effect.tool}</Text>],
          ['Acts on', <Text mono>{effect.target}</Text>],
          ['Idempotency key', <Text mono>{effect.idempotency_key}</Text>],
          ['Sent', <Time at={effect.evidence?.started_at ?? effect.created_at} />],
          ...(effect.quiesce_until === undefined
            ? []
            : [['May still arrive until', <Time at={effect.quiesce_until} />] as const]),
          ...effect.holds.map(
            ({ budget, unit, amount }) =>
              [`Holds of ${budget}`, amountText(amount, unit, effect.params?.['currency'])] as const,
          ),
        ]}
      />
      <Params effect={effect} />
    </div>
  );
}
