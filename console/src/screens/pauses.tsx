import { useQuery, useQueryClient } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { ask, type JsonObject, of, type Pause } from '../api.ts';
import { Text, Time } from '../format.tsx';
import { Choice, Confirm, Copies, curlOf, Empty, Fault, Head } from '../parts.tsx';
import { useCurrent, useMay } from '../session.tsx';

function usePauses(): { readonly pauses: readonly Pause[]; readonly isRead: boolean; readonly fault: unknown } {
  const { workspace } = useCurrent();
  const found = useQuery({
    queryKey: [workspace, 'pauses'],
    queryFn: () => ask<{ pauses: Pause[] }>('GET', `${of(workspace)}/pauses`),
    enabled: useMay('pauses.read'),
    refetchInterval: 5_000,
  });
  return { pauses: found.data?.pauses ?? [], isRead: found.data !== undefined, fault: found.error };
}

/** What a pause stops, in words. */
function scopeText(scope: JsonObject): string {
  if (scope['workspace'] === true) return 'All calls of the workspace';
  const [[kind, name] = ['', '']] = Object.entries(scope);
  const named = typeof name === 'string' ? name : JSON.stringify(name);
  const words: Readonly<Record<string, string>> = {
    tool: 'Tools',
    agent: 'The agent',
    upstream: 'The upstream',
    key: 'The key',
  };
  return `${words[kind] ?? kind} ${named}`;
}

/** Stands on every screen while something is paused. */
export function PauseBanner(): JSX.Element | null {
  const { workspace } = useCurrent();
  const { pauses } = usePauses();
  const [first, ...others] = pauses;
  if (first === undefined) return null;
  return (
    <div class="banner" role="status">
      <span>
        <strong>Paused:</strong> <Text>{scopeText(first.scope)}</Text>, <Text>{first.reason}</Text>
        {others.length > 0 ? `, and ${others.length} more` : ''}
      </span>
      <Link href={`/${workspace}/pauses`}>Look at it</Link>
    </div>
  );
}

export function PausesScreen(): JSX.Element {
  const { workspace } = useCurrent();
  const { pauses, isRead, fault } = usePauses();
  const may = useMay('pauses.write');
  const [isMaking, setMaking] = useState(false);
  return (
    <>
      <Head title="Pauses" does="Stop calls at once: of a tool, an agent, an upstream, a key, or all of them.">
        {may && !isMaking && (
          <button class="main" onClick={() => setMaking(true)}>
            Pause something
          </button>
        )}
      </Head>
      <Fault of={fault} />
      {isMaking && <PauseForm done={() => setMaking(false)} />}
      {isRead && pauses.length === 0 && !isMaking && (
        <Empty title="Nothing is paused">
          <p>
            When an agent does what it should not, pause it here: what is not yet sent is stopped, and calls get{' '}
            <code>denied_paused</code> with your reason.
          </p>
        </Empty>
      )}
      <ul class="stack">
        {pauses.map((pause) => (
          <PauseCard key={pause.id} pause={pause} may={may} />
        ))}
      </ul>
      <Copies curl={curlOf('GET', `${of(workspace)}/pauses`)} cli={`svc resume --workspace ${workspace}`} />
    </>
  );
}

function PauseCard({ pause, may }: { readonly pause: Pause; readonly may: boolean }): JSX.Element {
  const { workspace } = useCurrent();
  const queries = useQueryClient();
  const lift = async (): Promise<void> => {
    await ask('DELETE', `${of(workspace)}/pauses/${pause.id}`);
    await queries.invalidateQueries({ queryKey: [workspace, 'pauses'] });
  };
  return (
    <li class="card">
      <header>
        <h2>
          <Text>{scopeText(pause.scope)}</Text>
        </h2>
      </header>
      <p>
        <Text>{pause.reason}</Text>
      </p>
      <p class="faint">
        By {pause.by.user ?? pause.by.key_id} since <Time at={pause.created_at} />,{' '}
        {pause.until === null ? (
          'until somebody lifts it'
        ) : (
          <>
            until <Time at={pause.until} />
          </>
        )}
      </p>
      {may && <Confirm label="Lift" sure="Yes, let calls run again" act={lift} />}
    </li>
  );
}

const SCOPES = [
  ['agent', 'An agent', 'support-bot'],
  ['tool', 'Tools, by a pattern', 'payments.**'],
  ['upstream', 'An upstream', 'payments'],
  ['key', 'An API key', 'key_…'],
  ['workspace', 'Everything in this workspace', ''],
] as const;

const LENGTHS = [
  ['', 'Until somebody lifts it'],
  ['1800000', '30 minutes'],
  ['14400000', '4 hours'],
  ['86400000', 'A day'],
] as const;

function PauseForm({ done }: { readonly done: () => void }): JSX.Element {
  const { workspace } = useCurrent();
  const queries = useQueryClient();
  const [kind, setKind] = useState('agent');
  const [name, setName] = useState('');
  const [reason, setReason] = useState('');
  const [length, setLength] = useState('');
  const [fault, setFault] = useState<unknown>(null);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setFault(null);
    const scope = kind === 'workspace' ? { workspace: true } : { [kind]: name.trim() };
    const until = length === '' ? {} : { until: new Date(Date.now() + Number(length)).toISOString() };
    try {
      await ask('POST', `${of(workspace)}/pauses`, { scope, reason: reason.trim(), ...until });
      await queries.invalidateQueries({ queryKey: [workspace, 'pauses'] });
      done();
    } catch (error) {
      setFault(error);
    }
  };
  return (
    <form class="card" aria-label="Pause something" onSubmit={(event) => void submit(event)}>
      <Fault of={fault} />
      <div class="two">
        <Choice name="What" value={kind} choose={setKind} of={SCOPES} />
        {kind !== 'workspace' && (
          <label>
            <span>Which</span>
            <input
              name="which"
              required
              placeholder={SCOPES.find(([id]) => id === kind)?.[2] ?? ''}
              value={name}
              onInput={({ currentTarget }) => setName(currentTarget.value)}
            />
          </label>
        )}
      </div>
      <label>
        <span>Why? Every refused call says it</span>
        <input
          name="reason"
          required
          maxLength={500}
          value={reason}
          onInput={({ currentTarget }) => setReason(currentTarget.value)}
        />
      </label>
      <Choice name="How long" value={length} choose={setLength} of={LENGTHS} />
      <div class="row">
        <button class="no">Pause</button>
        <button type="button" onClick={done}>
          Cancel
        </button>
      </div>
    </form>
  );
}
