import { useQuery } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { ask, type Budget, type Json, of, type SharedBudget } from '../api.ts';
import { spanText, Text, Time, valueText } from '../format.tsx';
import { amountText, currencyOfBucket } from '../money.ts';
import { Bar, Copies, curlOf, Empty, Fault, Head, useNow } from '../parts.tsx';
import { useCurrent } from '../session.tsx';

export function BudgetsScreen(): JSX.Element {
  const { workspace } = useCurrent();
  const now = useNow(10_000);
  const path = `${of(workspace)}/budgets`;
  const found = useQuery({
    queryKey: [workspace, 'budgets'],
    queryFn: () => ask<{ budgets: (Budget | SharedBudget)[] }>('GET', path),
    refetchInterval: 5_000,
  });
  const budgets = (found.data?.budgets ?? []).toSorted((one, other) => shareOf(other) - shareOf(one));
  return (
    <>
      <Head
        title="Budgets"
        does="What agents may spend, what they have, and what is set aside for calls that run or wait for people. The fullest first."
      />
      <Fault of={found.error} />
      {found.data !== undefined && budgets.length === 0 && (
        <Empty title="Nothing was spent in any budget that runs now">
          <p>
            Budgets are written in the policies, and stand here from the first call on that takes something of them.
          </p>
        </Empty>
      )}
      <ul class="stack">
        {budgets.map((budget) =>
          'limit' in budget ? (
            <BudgetCard key={`${budget.budget} ${budget.bucket} ${budget.window}`} budget={budget} now={now} />
          ) : (
            <li key={budget.budget} class="card">
              <Text>{`${budget.budget}, which others use as well: ${budget.level}`}</Text>
            </li>
          ),
        )}
      </ul>
      <Copies curl={curlOf('GET', path)} cli={`svc effects list --decision denied_budget --workspace ${workspace}`} />
    </>
  );
}

function BudgetCard({ budget, now }: { readonly budget: Budget; readonly now: number }): JSX.Element {
  const { unit, bucket, limit, spent, held, resets_at: resets } = budget;
  const text = (amount: number): string => amountText(amount, unit, currencyOfBucket(bucket));
  const forecast = forecastOf(budget, now);
  const isOver = forecast !== null && forecast > limit;
  return (
    <li class="card">
      <header>
        <h2>
          <Text>{budget.budget}</Text> <span class="faint">{bucketText(budget.bucket)}</span>
        </h2>
        <span class="num">
          <strong>{text(spent + held)}</strong> of {text(limit)}
        </span>
      </header>
      <Bar
        parts={[
          { share: spent / Math.max(1, limit), tone: spent / Math.max(1, limit) >= 0.9 ? 'bad' : 'spent' },
          { share: held / Math.max(1, limit), tone: 'held' },
        ]}
      />
      <p class="faint">
        {text(spent)} spent, {text(held)} set aside, {text(Math.max(0, limit - spent - held))} left.{' '}
        {resets === null ? (
          'Counted over a rolling window.'
        ) : (
          <>
            Begins anew at <Time at={resets} short />, in {spanText(Date.parse(resets) - now)}.
          </>
        )}
      </p>
      {forecast !== null && (
        <p class={isOver ? 'banner' : 'faint'}>
          {isOver ? 'At this pace it runs out before: ' : 'At this pace: '}
          {text(Math.round(forecast))} by then.
        </p>
      )}
    </li>
  );
}

function shareOf(budget: Budget | SharedBudget): number {
  return 'limit' in budget ? (budget.spent + budget.held) / Math.max(1, budget.limit) : 0;
}

/** What will be spent when the window ends, if it goes on as so far; `null` where too little of it is over to say. */
function forecastOf({ window, spent, held }: Budget, now: number): number | null {
  const [, start = '', end = ''] = /^c:(\d+):(\d+)$/.exec(window) ?? [];
  const over = (now - Number(start)) / (Number(end) - Number(start));
  return over >= 0.1 && over <= 1 ? (spent + held) / over : null;
}

/** Whose budget it is; nothing where its bucket has only a digest. */
function bucketText(bucket: string): string {
  if (!bucket.startsWith('[')) return '';
  const values: readonly Json[] = JSON.parse(bucket);
  return values.map(valueText).join(', ');
}
