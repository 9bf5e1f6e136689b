import { useQuery } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { Link } from 'wouter-preact';
import { ask, type Effect, of } from '../api.ts';
import { becameOf, decisionOf, DECISIONS, lastedText, Mark, spanText, Text } from '../format.tsx';
import { Bar, Copies, curlOf, Empty, Fault, Head, useNow } from '../parts.tsx';
import { useUnknown, useWaiting } from '../queries.ts';
import { useCurrent, useMay } from '../session.tsx';
import { Facts } from './effect.tsx';

/** Of the newest actions, how many are looked at: as many as a page of the list has at most. */
const NEWEST = 200;
const EVERY_MS = 5_000;
/** How many rules are named. */
const MOST_RULES = 8;

export function OverviewScreen(): JSX.Element {
  const { workspace } = useCurrent();
  const now = useNow(10_000);
  const path = `${of(workspace)}/effects?limit=${NEWEST}`;
  const newest = useQuery({
    queryKey: [workspace, 'overview'],
    queryFn: () => ask<{ effects: Effect[] }>('GET', path),
    refetchInterval: EVERY_MS,
  });
  const unknown = useUnknown(EVERY_MS);
  const waiting = useWaiting(EVERY_MS, useMay('approvals.read'));
  const effects = newest.data?.effects ?? [];
  const last = effects.at(-1);
  return (
    <>
      <Head
        title="Overview"
        does={`What became of the ${NEWEST} newest actions, what waits, and what nobody can say yet.`}
      />
      <Fault of={newest.error ?? unknown.error ?? waiting.error} />
      <div class="cols">
        <Waits
          title="Unknown outcomes"
          to={`/${workspace}/unknown`}
          times={(unknown.data?.effects ?? []).map((effect) => effect.settled_at ?? effect.created_at)}
          isMore={unknown.data?.next_cursor != null}
          now={now}
          isBad
        />
        <Waits
          title="Requests for approval"
          to={`/${workspace}/inbox`}
          times={(waiting.data?.approvals ?? []).map(({ created_at: at }) => at)}
          now={now}
        />
      </div>
      {newest.data !== undefined && last === undefined && (
        <Empty title="Nothing was tried yet">
          <p>Give an agent a key, and let it call a tool through the gateway.</p>
        </Empty>
      )}
      {last !== undefined && (
        <>
          <section class="card">
            <header>
              <h2>Decisions</h2>
              <span class="faint">
                {effects.length} in {spanText(now - Date.parse(last.created_at))}
              </span>
            </header>
            {counted(effects.map(becameOf)).map(([what, count]) => (
              <div key={what} class="rate">
                <Link href={`/${workspace}/effects?decision=${decisionOf(what)}`}>
                  <Mark of={what} />
                </Link>
                <Bar parts={[{ share: count / effects.length, tone: DECISIONS[decisionOf(what)]?.tone ?? 'plain' }]} />
                <span class="num">{count}</span>
              </div>
            ))}
          </section>
          <div class="cols">
            <Rules effects={effects} />
            <Durations effects={effects} />
          </div>
        </>
      )}
      <Copies curl={curlOf('GET', path)} cli={`svc effects list --workspace ${workspace}`} />
    </>
  );
}

/** How many wait for somebody, and since when the oldest does. */
function Waits({
  title,
  to,
  times,
  isMore = false,
  isBad = false,
  now,
}: {
  readonly title: string;
  readonly to: string;
  readonly times: readonly string[];
  readonly isMore?: boolean;
  readonly isBad?: boolean;
  readonly now: number;
}): JSX.Element {
  const oldest = Math.min(...times.map((at) => Date.parse(at)));
  return (
    <section class="card">
      <header>
        <h2>
          <Link href={to}>{title}</Link>
        </h2>
        <span class={`mark ${times.length === 0 ? 'yes' : isBad ? 'bad' : 'wait'}`}>
          {times.length}
          {isMore ? '+' : ''}
        </span>
      </header>
      <p class="faint">{times.length === 0 ? 'None.' : `The oldest for ${spanText(now - oldest)}.`}</p>
    </section>
  );
}

/** The rules that refused most of them. */
function Rules({ effects }: { readonly effects: readonly Effect[] }): JSX.Element {
  const { workspace } = useCurrent();
  const refused = effects.filter((effect) => becameOf(effect).startsWith('denied_'));
  const isRule = new Set(refused.map(({ reason }) => reason.rule));
  const rules = counted(refused.map(({ reason }) => reason.rule ?? reason.code));
  return (
    <section class="card">
      <h2>What refused them</h2>
      {rules.length === 0 && <p class="faint">Nothing was refused.</p>}
      <ul class="stack">
        {rules.slice(0, MOST_RULES).map(([rule, count]) => (
          <li key={rule} class="row">
            <span class="num">{count}</span>
            {isRule.has(rule) ? (
              <Link href={`/${workspace}/effects?rule=${encodeURIComponent(rule)}`}>
                <Text>{rule}</Text>
              </Link>
            ) : (
              <Text>{rule.replaceAll('_', ' ')}</Text>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

/** Of what happened by itself: what the upstream took, apart from what came before, where a person may have been asked. */
function Durations({ effects }: { readonly effects: readonly Effect[] }): JSX.Element {
  const times = effects.flatMap(({ settled_by: settled, created_at: from, first_dispatch_at: sent, settled_at: to }) =>
    settled?.by === 'owner' && sent !== null && to !== null ? [[from, sent, to].map((at) => Date.parse(at))] : [],
  );
  const between = (one: number, other: number): readonly number[] =>
    times.map((at) => (at[other] ?? 0) - (at[one] ?? 0)).toSorted((less, more) => less - more);
  return (
    <section class="card">
      <h2>How long they took</h2>
      {times.length === 0 && <p class="faint">None of them was answered.</p>}
      {times.length > 0 &&
        (
          [
            ['From when they were sent to the answer', between(1, 2)],
            ['Before: policies, and people who were asked', between(0, 1)],
          ] as const
        ).map(([title, lasted]) => (
          <div key={title} class="stack" role="group" aria-label={title}>
            <p>{title}</p>
            <Facts
              of={SHARES.map(([words, share]) => [words, lastedText(lasted[Math.floor(share * (lasted.length - 1))])])}
            />
          </div>
        ))}
    </section>
  );
}

const SHARES = [
  ['Half of them at most', 0.5],
  ['95 of 100 at most', 0.95],
  ['All of them at most', 1],
] as const;

/** How often each is there, the most frequent first. */
function counted(names: readonly string[]): readonly (readonly [string, number])[] {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].toSorted(([, one], [, other]) => other - one);
}
