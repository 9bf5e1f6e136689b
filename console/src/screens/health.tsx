import { useQuery } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { Text, Time } from '../format.tsx';
import { Copies, curlOf, Fault, Head } from '../parts.tsx';

/** As `/readyz` says it, whether it is ready or not. */
interface Health {
  readonly ready: boolean;
  readonly store?: { readonly durability: string; readonly epoch: number };
  readonly notes?: readonly Part[];
  readonly parts?: readonly Part[];
}

interface Part {
  readonly part: string;
  readonly code?: string;
  readonly message: string;
  readonly since?: string;
}

/** The command that goes on from what a part says, as the configuration is called by `svc init`. */
const COMMANDS: Readonly<Record<string, string>> = {
  store: 'svc doctor gateway.yaml',
  upstream: 'svc doctor gateway.yaml',
  archive: 'svc doctor gateway.yaml',
  backup: 'svc backup FOLDER --config gateway.yaml',
  fsck: 'svc fsck --config gateway.yaml',
  restore: 'svc store accept-loss --config gateway.yaml',
  configuration: 'svc config check gateway.yaml',
  brain: 'svc config check gateway.yaml',
  policies: 'svc policy history',
  notifications: 'svc notifications list',
  tools: 'svc tools diff --config gateway.yaml --upstream ID',
  retention: 'svc effects list --state unknown',
  unknown_outcomes: 'svc effects list --state unknown',
  probes: 'svc effects list --state unknown',
};

export function HealthScreen(): JSX.Element {
  const found = useQuery({ queryKey: ['health'], queryFn: readHealth, refetchInterval: 5_000, retry: false });
  const { ready, store, notes = [], parts = [] } = found.data ?? { ready: false };
  return (
    <>
      <Head
        title="Health"
        does="Whether this gateway takes calls, and what it wants somebody to know. Where it cannot keep its promises, it refuses."
      />
      <Fault of={found.error} />
      {found.data !== undefined && (
        <p class={`banner ${ready ? 'ok' : 'bad'}`} role="status">
          {ready ? 'It takes calls.' : 'It takes no calls, because of what stands below.'}
        </p>
      )}
      <ul class="stack">
        {[...parts, ...notes].map(({ part, message, since }) => (
          <li key={`${part} ${message}`} class="card">
            <h2>
              <Text>{part}</Text>
            </h2>
            <p>
              <Text>{message}</Text>
            </p>
            <p class="faint">
              {since !== undefined && (
                <>
                  Since <Time at={since} />.{' '}
                </>
              )}
              <code>{COMMANDS[part] ?? 'svc status'}</code>
            </p>
          </li>
        ))}
        {ready && notes.length === 0 && (
          <li class="card">
            <h2>Nothing to do</h2>
            <p class="faint">
              Policies, configuration and MCP tools are what somebody approved, people are told, retention goes on, no
              rule is in doubt.
            </p>
          </li>
        )}
        {store !== undefined && (
          <li class="card">
            <h2>Store</h2>
            <p>
              {store.durability === 'fsync' ? 'Each write is on the disk before it is answered' : store.durability}
              <span class="faint">
                {' '}
                ({store.durability}, epoch {store.epoch})
              </span>
            </p>
            <p class="faint">
              <code>svc fsck --config gateway.yaml</code> holds what is stored against the ledger.
            </p>
          </li>
        )}
      </ul>
      <Copies curl={curlOf('GET', '/readyz')} cli="svc status" />
    </>
  );
}

/** A gateway that is not ready says why with 503. @throws where it does not answer, or answers something else */
async function readHealth(): Promise<Health> {
  const answer = await fetch('/readyz', { redirect: 'error' });
  const health: unknown = await answer.json();
  if (typeof health === 'object' && health !== null && 'ready' in health) return health as Health;
  throw new Error('another answer');
}
