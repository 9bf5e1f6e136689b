import { useQuery } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { Link } from 'wouter-preact';
import { ask, type Effect, type JsonObject, type LedgerEvent, of, type Rule, type StageOfRun } from '../api.ts';
import { becameOf, LongText, Mark, spanText, Text, Time, valueText, visible } from '../format.tsx';
import { amountText, currencyOfParam, moneyTaken, moneyText } from '../money.ts';
import { Copies, curlOf, Fault, Head } from '../parts.tsx';
import { checkReceipt } from '../receipt.ts';
import { ResolveForm } from '../resolve.tsx';
import { useCurrent, useMay } from '../session.tsx';

const RUNNING = new Set(['executing', 'pending_approval', 'unknown']);

export function EffectScreen({ id }: { readonly id: string }): JSX.Element {
  const { workspace } = useCurrent();
  const path = `${of(workspace)}/effects/${id}`;
  const found = useQuery({
    queryKey: [workspace, 'effect', id],
    queryFn: () => ask<{ effect: Effect; ledger: LedgerEvent[] }>('GET', path),
    refetchInterval: ({ state }) => (RUNNING.has(state.data?.effect.state ?? '') ? 2_000 : false),
  });
  if (found.isError) return <Fault of={found.error} />;
  if (found.data === undefined) return <p class="faint">Loading…</p>;
  const { effect, ledger } = found.data;
  const money = moneyTaken(effect.holds, effect.params?.['currency']);
  return (
    <>
      <Head title={visible(effect.tool)} does={effect.reason.message}>
        <Mark of={becameOf(effect)} />
      </Head>
      {effect.state === 'unknown' && <Unsettled effect={effect} settled={() => void found.refetch()} />}
      {effect.state === 'pending_approval' && (
        <p class="banner">
          Nothing has happened yet: it waits for people.{' '}
          <Link href={`/${workspace}/inbox?approval=${effect.approval_id ?? ''}`}>Open it in the inbox</Link>
        </p>
      )}
      <AllowedBy {...effect} />
      <div class="cols">
        <div class="stack">
          <section class="card" aria-labelledby="asked">
            <header>
              <h2 id="asked">What was asked</h2>
              {money !== null && <span class="amount">{money.text}</span>}
            </header>
            <Facts
              of={[
                ['Acts on', <Text mono>{effect.target}</Text>],
                ['Agent', <Text>{effect.agent_id}</Text>],
                ['When', <Time at={effect.created_at} />],
                ['Sent to', <Text>{effect.upstream}</Text>],
                ['Came by', `${effect.via}, with ${effect.key_id}`],
                ['Idempotency key', <Text mono>{effect.idempotency_key}</Text>],
                ...(effect.attempt > 1 ? [['Attempt', String(effect.attempt)] as const] : []),
              ]}
            />
            <Params effect={effect} costs={effect.holds} />
          </section>
          <Why effect={effect} />
          <Stages path={path} state={effect.state} />
          {effect.result !== undefined && (
            <section class="card" aria-labelledby="answered">
              <header>
                <h2 id="answered">What was answered</h2>
                {effect.upstream_status !== undefined && <span class="faint">HTTP {effect.upstream_status}</span>}
              </header>
              <LongText>{valueText(effect.result)}</LongText>
            </section>
          )}
        </div>
        <div class="stack">
          <Receipt effect={effect} path={path} />
          <Holds effect={effect} path={path} />
          <Events ledger={ledger} />
        </div>
      </div>
      <Copies curl={curlOf('GET', path)} cli={`svc effects show ${id} --workspace ${workspace}`} />
    </>
  );
}

/** Says by whose word a call ran that nobody was asked about, or that went beyond a limit. */
function AllowedBy({ allowance, beyond = [] }: Pick<Effect, 'allowance' | 'beyond'>): JSX.Element {
  return (
    <>
      {allowance !== undefined && (
        <p class="banner">
          <span>
            Nobody was asked: <Text>{allowance.given_by}</Text> had allowed calls like it. This was number{' '}
            {allowance.use}, by {allowance.id}.
          </span>
        </p>
      )}
      {beyond.map(({ limit, by }) => (
        <p class="banner" key={limit}>
          Approvers let it go beyond {limit.replace(':', ' ')}, by {by}.
        </p>
      ))}
    </>
  );
}

function Unsettled({ effect, settled }: { readonly effect: Effect; readonly settled: () => void }): JSX.Element {
  const may = useMay('effects.resolve');
  return (
    <section class="card" aria-labelledby="unsettled">
      <h2 id="unsettled">Whether it happened is not known</h2>
      <p>
        {effect.evidence?.message ?? 'The answer was lost.'} Look at {effect.upstream} itself: is it there?
        {effect.safe_to_retry ? ' The agent may also send the same call again: the upstream removes duplicates.' : ''}
      </p>
      {may ? <ResolveForm effects={[effect]} settled={settled} /> : <p class="faint">Your key may not settle it.</p>}
    </section>
  );
}

type Fact = readonly [name: string, value: JSX.Element | string];

export function Facts({ of: facts }: { readonly of: readonly Fact[] }): JSX.Element {
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </>
      ))}
    </dl>
  );
}

type Costs = Parameters<typeof currencyOfParam>[2];

/** The params of a call, as far as the reader may see them. @param costs what it takes of budgets: amounts are money by it */
export function Params({
  effect: { params, headers, params_omitted: omitted, params_truncated: isCut },
  costs = [],
}: {
  readonly effect: Pick<Effect, 'params' | 'headers' | 'params_omitted' | 'params_truncated'>;
  readonly costs?: Costs;
}): JSX.Element {
  if (params === undefined) return <p class="faint">Its params are not shown: {omitted ?? 'they are not kept'}.</p>;
  return (
    <>
      <Values of={params} costs={costs} />
      {headers !== undefined && <Values of={headers} costs={[]} />}
      {isCut && <p class="banner">Some are cut: they are longer than is shown here.</p>}
    </>
  );
}

function Values({ of: values, costs }: { readonly of: JsonObject; readonly costs: Costs }): JSX.Element {
  const entries = Object.entries(values);
  if (entries.length === 0) return <p class="faint">No params.</p>;
  return (
    <Facts
      of={entries.map(([name, value]) => {
        const money = moneyText(value, currencyOfParam(name, values, costs));
        const text = money === null ? valueText(value) : `${money}, sent as ${valueText(value)}`;
        const isShort = text.length <= 80 && !text.includes('\n');
        return [visible(name), isShort ? <Text mono>{text}</Text> : <LongText>{text}</LongText>];
      })}
    />
  );
}

/** Which rules matched, where they stand, and which of them decided. */
function Why({ effect }: { readonly effect: Effect }): JSX.Element {
  const { workspace } = useCurrent();
  const may = useMay('policies.read');
  const policies = useQuery({
    queryKey: [workspace, 'policies'],
    queryFn: () => ask<{ version: string; rules: Rule[] }>('GET', `${of(workspace)}/policies`),
    enabled: may,
    staleTime: 60_000,
  });
  const { matched, version } = effect.policy;
  const decided = effect.reason.rule;
  const names = [...new Set([...(decided === undefined ? [] : [decided]), ...matched])];
  const isOther = policies.data !== undefined && policies.data.version !== version;
  return (
    <section class="card" aria-labelledby="why">
      <header>
        <h2 id="why">Why</h2>
        <code class="faint">{effect.reason.code}</code>
      </header>
      {names.length === 0 ? (
        <p>No rule matched, so no rule decided. {effect.reason.message}</p>
      ) : (
        <ul class="stack">
          {names.map((name) => {
            const rule = policies.data?.rules.find(({ id }) => id === name);
            return (
              <li key={name}>
                <div class="row">
                  <Text mono>{name}</Text>
                  {rule !== undefined && <span class="mark">{rule.effect.replaceAll('_', ' ')}</span>}
                  {name === decided && <span class="mark stop">decided</span>}
                </div>
                {rule?.description != null && <div>{rule.description}</div>}
                {rule?.file !== undefined && (
                  <div class="faint small mono">
                    {rule.file}:{rule.line}
                  </div>
                )}
              </li>
            );
          })}
        </ul>
      )}
      {effect.mismatches !== undefined && (
        <Facts
          of={effect.mismatches.map(({ field, assumed, current }) => [
            field,
            `assumed ${valueText(assumed)}, found ${valueText(current)}`,
          ])}
        />
      )}
      {effect.observed !== undefined && (
        <p class="banner">
          Policy only observes: it would have been {effect.observed.would} ({effect.observed.rule ?? 'no rule'}).
        </p>
      )}
      {isOther && <p class="faint small">It was judged by an earlier version of the policies; lines may have moved.</p>}
    </section>
  );
}

/** The stages of the run on one scale of time. What is waited for is cut short, so that the rest can be read. */
function Stages({ path, state }: { readonly path: string; readonly state: string }): JSX.Element | null {
  const run = useQuery({
    queryKey: [path, 'run', state],
    queryFn: () => ask<{ stages: StageOfRun[] }>('GET', `${path}/run`),
    refetchInterval: state === 'executing' ? 1_000 : false,
  });
  const stages = run.data?.stages ?? [];
  if (stages.length === 0) return null;
  let total = 0;
  const placed = stages.map((stage) => {
    const from = total;
    total += stage.stage === 'approval' ? 0 : (stage.duration_ms ?? 0);
    return { ...stage, from };
  });
  const scale = 100 / Math.max(total, 0.001);
  return (
    <section class="card" aria-labelledby="stages">
      <h2 id="stages">What the gateway did</h2>
      <ol class="steps">
        {placed.map(({ stage, status, duration_ms: ms, detail, from }, index) => (
          <li key={index}>
            <span title={detail ?? undefined}>{stage.replaceAll('_', ' ')}</span>
            <span class="track" aria-hidden="true">
              <svg viewBox="0 0 100 10" preserveAspectRatio="none">
                <rect
                  class={status === 'failed' || status === 'denied' ? 'fill-stop' : 'fill-spent'}
                  x={Math.min(99, from * scale)}
                  y={0}
                  width={stage === 'approval' ? 0 : Math.max(0.6, (ms ?? 0) * scale)}
                  height={10}
                />
              </svg>
            </span>
            <span class="num faint">
              {ms === null ? status : ms >= 10_000 ? spanText(ms) : `${ms.toFixed(ms < 10 ? 2 : 0)} ms`}
            </span>
          </li>
        ))}
      </ol>
    </section>
  );
}

/** The receipt, checked here and now. */
function Receipt({ effect, path }: { readonly effect: Effect; readonly path: string }): JSX.Element {
  const { workspace } = useCurrent();
  const has = effect.receipt_id !== null;
  const checked = useQuery({
    queryKey: [path, 'receipt', effect.receipt_id],
    queryFn: async () => {
      const { jws } = await ask<{ jws: string }>('GET', `${path}/receipt`);
      return { jws, ...(await checkReceipt(jws, workspace, effect.id)) };
    },
    enabled: has,
    staleTime: Infinity,
    retry: false,
  });
  const { data } = checked;
  const holds = data?.checks.every((check) => check.holds);
  return (
    <section class="card" aria-labelledby="receipt">
      <header>
        <h2 id="receipt">Receipt</h2>
        {data !== undefined && <span class={`mark ${holds ? 'yes' : 'bad'}`}>{holds ? 'Holds' : 'Does not hold'}</span>}
      </header>
      {!has && <p class="faint">Only what happened has a receipt.</p>}
      {checked.isError && (
        <p class="faint">It could not be checked in this browser. `svc verify` checks it on the command line.</p>
      )}
      {data !== undefined && (
        <>
          <ul class="checks stack">
            {data.checks.map(({ what, holds: isSo }) => (
              <li key={what}>
                <span class={isSo ? 'ok' : 'not'} aria-hidden="true">
                  {isSo ? '✓' : '✗'}
                </span>
                <span>
                  <span class="vh">{isSo ? 'Yes: ' : 'No: '}</span>
                  {what}
                </span>
              </li>
            ))}
          </ul>
          <p class="faint small">
            Checked in this browser. The receipt commits to params and answer without showing them.
          </p>
          <details>
            <summary>The receipt itself</summary>
            <pre class="small" tabIndex={0}>
              {JSON.stringify(data.payload, null, 2)}
            </pre>
          </details>
        </>
      )}
    </section>
  );
}

const HOLD_STATES: Readonly<Record<string, string>> = {
  held: 'set aside',
  posted: 'spent',
  voided: 'given back',
};

interface Taken {
  readonly budget: string;
  readonly unit: string;
  readonly bucket: string;
  readonly window: string;
  readonly amount: number;
  readonly spent: number;
  readonly before?: Stood;
  readonly after?: Stood;
  readonly unknown?: 'rolling' | 'too_many';
  readonly now: { readonly limit?: number; readonly spent?: number; readonly held?: number } | null;
}

interface Stood {
  readonly at: string;
  readonly spent: number;
  readonly held: number;
}

const NOT_KNOWN: Readonly<Record<string, string>> = {
  rolling: 'How it stood then is not known: of a rolling window nobody writes down what has left it.',
  too_many: 'How it stood then is not shown: too much happened in its window. svc export has it all.',
};

/** What it took of budgets, and how these stood before and after, by the ledger. */
function Holds({ effect, path }: { readonly effect: Effect; readonly path: string }): JSX.Element | null {
  const may = useMay('budgets.read');
  const found = useQuery({
    queryKey: [path, 'budgets', effect.hold_state, effect.state],
    queryFn: () => ask<{ budgets: readonly Taken[] }>('GET', `${path}/budgets`),
    enabled: may && effect.holds.length > 0,
    retry: false,
  });
  if (effect.holds.length === 0) return null;
  const money = (amount: number, unit: string): string => amountText(amount, unit, effect.params?.['currency']);
  const state = HOLD_STATES[effect.hold_state] ?? effect.hold_state;
  return (
    <section class="card" aria-labelledby="budgets">
      <h2 id="budgets">What it took of budgets</h2>
      {found.data === undefined ? (
        <Facts of={effect.holds.map(({ budget, unit, amount }) => [budget, `${money(amount, unit)} ${state}`])} />
      ) : (
        found.data.budgets.map((taken) => {
          const { budget, bucket, window, unit, amount, spent, before, after, now } = taken;
          const stood = (name: string, one: Omit<Stood, 'at'>): Fact => [
            name,
            `${money(one.spent, unit)} spent, ${money(one.held, unit)} set aside`,
          ];
          return (
            <div key={`${budget} ${bucket} ${window}`}>
              <h3>
                <Text mono>{budget}</Text>
              </h3>
              <Facts
                of={[
                  [
                    'It took',
                    effect.hold_state === 'posted' ? `${money(spent, unit)} spent` : `${money(amount, unit)} ${state}`,
                  ],
                  ...(before === undefined ? [] : [stood('Just before it was set aside', before)]),
                  ...(after === undefined ? [] : [stood(`Just after it was ${state}`, after)]),
                  now === null
                    ? ['Now', 'Its window is over']
                    : stood('Now', { spent: now.spent ?? 0, held: now.held ?? 0 }),
                  ...(now?.limit === undefined ? [] : [['Limit now', money(now.limit, unit)] as const]),
                ]}
              />
              {taken.unknown !== undefined && <p class="faint small">{NOT_KNOWN[taken.unknown]}</p>}
            </div>
          );
        })
      )}
    </section>
  );
}

function Events({ ledger }: { readonly ledger: readonly LedgerEvent[] }): JSX.Element {
  return (
    <section class="card" aria-labelledby="ledger">
      <h2 id="ledger">On record</h2>
      <ol class="stack">
        {ledger.map(({ seq, at, kind, actor }) => (
          <li key={seq} class="row">
            <span class="faint num">
              <Time at={at} />
            </span>
            <span>{kind.replaceAll(/[._]/g, ' ')}</span>
            <span class="faint">{actor.type === 'gateway' ? '' : `by ${actor.type} ${visible(actor.id)}`}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}
