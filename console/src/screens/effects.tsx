import { useQuery } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Link, useSearchParams } from 'wouter-preact';
import { ask, type Agent, type Approval, type Effect, of } from '../api.ts';
import { becameOf, DECISIONS, Mark, Text, Time, visible } from '../format.tsx';
import { callName, moneyTaken } from '../money.ts';
import { Choice, Copies, curlOf, Empty, Fault, Head, quoted } from '../parts.tsx';
import { useCurrent, useMay } from '../session.tsx';
import { type Filter, MANY, useEffects } from '../use-effects.ts';
import { useRows } from '../use-rows.ts';

/** The filters, as they stand in the address. */
const FILTERS = ['decision', 'tool', 'agent_id', 'target', 'rule', 'approver', 'last'] as const;
/** What `last` may be. */
const SPANS: Readonly<Record<string, { readonly name: string; readonly ms: number }>> = {
  '15m': { name: 'Last 15 minutes', ms: 900_000 },
  '1h': { name: 'Last hour', ms: 3_600_000 },
  '1d': { name: 'Last day', ms: 86_400_000 },
  '7d': { name: 'Last 7 days', ms: 604_800_000 },
};

function filterOf(query: URLSearchParams): Filter {
  const filter: Record<string, string> = {};
  for (const name of FILTERS) {
    const value = query.get(name);
    if (value !== null && value !== '' && name !== 'last') filter[name] = value;
  }
  const span = SPANS[query.get('last') ?? ''];
  // To the minute: else each look would be another list.
  if (span !== undefined)
    filter['since'] = new Date(Math.floor((Date.now() - span.ms) / 60_000) * 60_000).toISOString();
  return filter;
}

export function EffectsScreen(): JSX.Element {
  const { workspace } = useCurrent();
  const [query, setQuery] = useSearchParams();
  const [filter, setFilter] = useState(() => filterOf(query));
  const words = query.toString();
  useEffect(() => setFilter(filterOf(query)), [words]);
  const { effects, isLive, isEnd, isFirst, fresh, fault, more, showFresh } = useEffects(workspace, filter);
  const path = `${of(workspace)}/effects${asQuery(filter)}`;
  const decided = useDecided(filter.approver);
  const { approver } = filter;
  const set = (name: string, value: string): void =>
    setQuery(
      (now) => {
        const next = new URLSearchParams(now);
        if (value === '') next.delete(name);
        else next.set(name, value);
        return next;
      },
      { replace: true },
    );

  return (
    <>
      <Head
        title="Effects"
        does={
          approver === undefined
            ? 'Everything that agents tried, as it happens, and what became of it.'
            : `What ${visible(approver)} approved, changed or rejected, when, and what became of it.`
        }
      >
        <span class={`mark ${isLive ? 'yes' : 'stop'}`} role="status">
          {isLive ? 'Live' : 'Not live'}
        </span>
      </Head>
      <Filters query={query} set={set} />
      <Fault of={fault} />
      {fresh !== 0 && (
        <button type="button" class="main new" onClick={showFresh}>
          {fresh === 1 ? '1 new effect' : `${fresh === MANY ? 'Many' : fresh} new effects`}
        </button>
      )}
      {effects.length > 0 ? (
        <EffectList effects={effects} decided={decided} atEnd={more} isEnd={isEnd} />
      ) : isFirst ? (
        <p class="faint">Loading…</p>
      ) : (
        <Nothing isFiltered={words !== ''} clear={() => setQuery({}, { replace: true })} />
      )}
      <Copies
        curl={curlOf('GET', path)}
        cli={`svc ${filter.target || filter.rule || filter.approver ? 'effects list' : 'tail'} --workspace ${workspace}`}
      />
    </>
  );
}

function asQuery(filter: Filter): string {
  const text = new URLSearchParams({ ...filter, limit: '100' }).toString();
  return `?${text}`;
}

function Nothing({ isFiltered, clear }: { readonly isFiltered: boolean; readonly clear: () => void }): JSX.Element {
  const { workspace } = useCurrent();
  if (isFiltered)
    return (
      <Empty title="No effect fits these filters">
        <button type="button" onClick={clear}>
          Clear the filters
        </button>
      </Empty>
    );
  const body = { tool: 'payments.refund', params: {}, agent_id: 'support-bot', idempotency_key: 'first-try' };
  return (
    <Empty title="Nothing has happened here yet">
      <p>
        Point an agent at the gateway, and each of its calls appears here within a second: what it asked for, what was
        decided, and why. <code>npm start</code> prints a line to try.
      </p>
      <Copies
        curl={curlOf('POST', `${of(workspace)}/effects`, body)}
        cli={`svc effects list --workspace ${quoted(workspace)}`}
      />
    </Empty>
  );
}

function Filters({
  query,
  set,
}: {
  readonly query: URLSearchParams;
  readonly set: (name: string, value: string) => void;
}): JSX.Element {
  const { workspace } = useCurrent();
  const [mayTools, mayAgents, mayRules] = [useMay('tools.read'), useMay('agents.read'), useMay('policies.read')];
  const names = (what: string, path: string, enabled: boolean) => ({
    queryKey: [workspace, what],
    queryFn: () => ask<Record<string, readonly { name?: string; id?: string }[]>>('GET', `${of(workspace)}/${path}`),
    enabled,
    staleTime: 60_000,
  });
  const tools = useQuery(names('tools', 'tools', mayTools));
  const agents = useQuery({
    queryKey: [workspace, 'agents'],
    queryFn: () => ask<{ agents: Agent[] }>('GET', `${of(workspace)}/agents`),
    enabled: mayAgents,
    staleTime: 60_000,
  });
  const rules = useQuery(names('policies', 'policies', mayRules));
  const value = (name: string): string => query.get(name) ?? '';
  const choice = (filter: string, name: string, of: readonly (readonly [value: string, name: string])[]) => (
    <Choice name={name} value={value(filter)} choose={(chosen) => set(filter, chosen)} of={[['', 'Any'], ...of]} />
  );
  const isWide = matchMedia(WIDE).matches;
  const used = FILTERS.filter((name) => value(name) !== '').length;
  const isOpen = isWide || used > (value('approver') === '' ? 0 : 1);
  return (
    <details class="folded" open={isOpen}>
      <summary>{used === 0 ? 'Filters' : `Filters (${used})`}</summary>
      <form class="filters" role="search" aria-label="Filters" onSubmit={(event) => event.preventDefault()}>
        {choice(
          'decision',
          'Decision',
          Object.entries(DECISIONS).map(([id, { name }]) => [id, name]),
        )}
        {choice(
          'tool',
          'Tool',
          (tools.data?.['tools'] ?? []).map(({ name = '' }) => [name, name]),
        )}
        {choice(
          'agent_id',
          'Agent',
          (agents.data?.agents ?? []).map(({ id }) => [id, id]),
        )}
        {choice(
          'rule',
          'Rule',
          (rules.data?.['rules'] ?? []).map(({ id = '' }) => [id, id]),
        )}
        {choice(
          'last',
          'Time',
          Object.entries(SPANS).map(([id, { name }]) => [id, name]),
        )}
        <label>
          <span>Target</span>
          <input
            type="search"
            placeholder="Any"
            value={value('target')}
            onChange={({ currentTarget }) => set('target', currentTarget.value.trim())}
          />
        </label>
        <label>
          <span>Approver</span>
          <input
            type="search"
            placeholder="Any"
            value={value('approver')}
            onChange={({ currentTarget }) => set('approver', currentTarget.value.trim())}
          />
        </label>
      </form>
    </details>
  );
}

const WIDE = '(min-width: 52.01rem)';

/** What a user decided, by effect, as far as it is among the newest requests; nothing where nobody is named. */
function useDecided(user: string | undefined): ReadonlyMap<string, { readonly text: string; readonly at: string }> {
  const { workspace } = useCurrent();
  const found = useQuery({
    queryKey: [workspace, 'approvals', 'newest'],
    queryFn: () => ask<{ approvals: Approval[] }>('GET', `${of(workspace)}/approvals?limit=200`),
    enabled: useMay('approvals.read') && user !== undefined,
    refetchInterval: 10_000,
  });
  // Newest first: where people were asked anew about a call, the last answer stays.
  const known = (found.data?.approvals ?? []).toReversed().flatMap((approval) => {
    const vote = approval.votes.findLast((one) => one.user === user);
    if (vote === undefined) return [];
    const { tool, costs, params, changed } = approval;
    const call = callName(tool, moneyTaken(costs, params?.['currency'])?.text ?? null);
    const did = vote.verdict !== 'approve' ? 'Rejected' : changed?.by === user ? 'Changed to' : 'Approved';
    return [[approval.effect_id, { text: `${did} ${call}`, at: vote.at }] as const];
  });
  return new Map(user === undefined ? [] : known);
}

function EffectList({
  effects,
  decided,
  atEnd,
  isEnd,
}: {
  readonly effects: readonly Effect[];
  readonly decided: ReturnType<typeof useDecided>;
  readonly atEnd: () => void;
  readonly isEnd: boolean;
}): JSX.Element {
  const { workspace } = useCurrent();
  const list = useRef<HTMLOListElement>(null);
  const rows = useRows(list, effects.length, matchMedia(WIDE).matches ? 44 : 64);
  const last = rows.shown.at(-1)?.index ?? 0;
  useEffect(() => {
    if (!isEnd && last >= effects.length - 30) atEnd();
  }, [last, effects.length, isEnd]);

  const move = (event: KeyboardEvent): void => {
    const step =
      event.key === 'j' || event.key === 'ArrowDown' ? 1 : event.key === 'k' || event.key === 'ArrowUp' ? -1 : 0;
    if (step === 0 || !(event.target instanceof HTMLElement)) return;
    const row = event.target.closest('li');
    const next = step === 1 ? row?.nextElementSibling : row?.previousElementSibling;
    const link = next?.querySelector('a');
    if (link === null || link === undefined) return;
    event.preventDefault();
    link.focus();
  };

  return (
    <div class="list effects">
      <div class="heads" aria-hidden="true">
        <span>Time</span>
        <span>Decision</span>
        <span>Tool</span>
        <span>Target</span>
        <span>Agent</span>
        <span>Why</span>
      </div>
      <ol class="virtual" ref={list} style={{ height: `${rows.height}px` }} aria-label="Effects" onKeyDown={move}>
        {rows.shown.map(({ index, top, height }) => {
          const effect = effects[index];
          if (effect === undefined) return null;
          const own = decided.get(effect.id);
          return (
            <li key={effect.id} style={{ top: `${top}px`, height: `${height}px` }}>
              <Link class="cells" href={`/${workspace}/effects/${effect.id}`}>
                <span class="when faint">
                  <Time at={own?.at ?? effect.created_at} />
                </span>
                <span class="what">
                  <Mark of={becameOf(effect)} />
                </span>
                <span class="tool">
                  {own === undefined ? <Text mono>{effect.tool}</Text> : <Text>{own.text}</Text>}
                </span>
                <span class="target faint">
                  <Text mono>{effect.target}</Text>
                </span>
                <span class="late">
                  <Text>{effect.agent_id}</Text>
                </span>
                <span class="late faint">
                  <Text>{effect.reason.rule ?? effect.reason.message}</Text>
                </span>
              </Link>
            </li>
          );
        })}
      </ol>
    </div>
  );
}
