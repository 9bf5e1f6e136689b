import { useQueryClient } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { ask, type Effect, of } from './api.ts';
import { spanText } from './format.tsx';
import { Fault, useNow } from './parts.tsx';
import { useCurrent } from './session.tsx';

/** Says of unknown outcomes what became of them. */
export function ResolveForm({
  effects,
  settled,
}: {
  readonly effects: readonly Effect[];
  readonly settled: (refused: readonly unknown[]) => void;
}): JSX.Element {
  const { workspace } = useCurrent();
  const queries = useQueryClient();
  const now = useNow();
  const [outcome, setOutcome] = useState<'happened' | 'not_happened' | null>(null);
  const [comment, setComment] = useState('');
  const [isBusy, setBusy] = useState(false);
  const [faults, setFaults] = useState<readonly unknown[]>([]);
  const quietAt = Math.max(0, ...effects.map(({ quiesce_until: until }) => Date.parse(until ?? '') || 0));
  const isEarly = outcome === 'not_happened' && quietAt > now;

  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (outcome === null) return;
    setBusy(true);
    const failed: unknown[] = [];
    for (const { id } of effects)
      await ask('POST', `${of(workspace)}/effects/${id}/resolve`, {
        outcome,
        ...(comment.trim() === '' ? {} : { comment: comment.trim() }),
      }).catch((error: unknown) => failed.push(error));
    setFaults(failed);
    setBusy(false);
    await queries.invalidateQueries({ queryKey: [workspace, 'effects'] });
    settled(failed);
  };

  return (
    <form class="stack" onSubmit={(event) => void submit(event)}>
      <Fault of={faults[0]} />
      {faults.length > 1 && <p class="faint">{faults.length - 1} more were refused.</p>}
      <fieldset>
        <legend>What did you find?</legend>
        <label class="check">
          <input type="radio" name="outcome" required onChange={() => setOutcome('happened')} />
          It happened: a receipt is issued
        </label>
        <label class="check">
          <input type="radio" name="outcome" required onChange={() => setOutcome('not_happened')} />
          It did not happen: what it took is given back, and it may be tried again
        </label>
      </fieldset>
      <label>
        <span>How do you know? It is kept with the effect</span>
        <textarea
          rows={2}
          maxLength={1000}
          value={comment}
          onInput={({ currentTarget }) => setComment(currentTarget.value)}
        />
      </label>
      {isEarly && (
        <p class="banner" role="status">
          Something may still be under way. “It did not happen” can be said in {spanText(quietAt - now)}.
        </p>
      )}
      <div class="row">
        <button class="main" disabled={isBusy || outcome === null || isEarly || effects.length === 0}>
          {effects.length > 1 ? `Settle ${effects.length}` : 'Settle it'}
        </button>
      </div>
    </form>
  );
}
