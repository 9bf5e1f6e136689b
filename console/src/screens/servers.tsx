import { useQuery } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { ask, of, type Pin, type ToolChange } from '../api.ts';
import { Text, valueText } from '../format.tsx';
import { Copies, curlOf, Copy, Empty, Fault, Head } from '../parts.tsx';
import { useCurrent } from '../session.tsx';

interface Server {
  readonly upstream: string;
  readonly failure: string | null;
  readonly unapproved: readonly string[];
  readonly unapproved_count: number;
}

/** What each other state of a pin is called, and what its colour says. */
const STATES: Readonly<Record<string, readonly [name: string, tone: string]>> = {
  changed: ['Changed', 'bad'],
  gone: ['Not listed any more', 'stop'],
  unseen: ['Not looked at yet', 'plain'],
};

export function ServersScreen(): JSX.Element {
  const { workspace } = useCurrent();
  const path = `${of(workspace)}/pins`;
  const found = useQuery({
    queryKey: [workspace, 'pins'],
    queryFn: () => ask<{ pins: Pin[]; servers: Server[] }>('GET', path),
    refetchInterval: 10_000,
  });
  const { pins = [], servers = [] } = found.data ?? {};
  const names = [...new Set([...servers, ...pins].map(({ upstream }) => upstream))].toSorted();
  return (
    <>
      <Head
        title="MCP servers"
        does="Which tools somebody approved, and whether the servers still say the same of them. What changed is not called."
      />
      <Fault of={found.error} />
      {found.data !== undefined && names.length === 0 && (
        <Empty title="No MCP server is behind this gateway">
          <p>
            <code>svc init --mcp URL</code> writes the configuration of one, with the pins of its tools.
          </p>
        </Empty>
      )}
      <ul class="stack">
        {names.map((name) => (
          <ServerCard
            key={name}
            name={name}
            server={servers.find(({ upstream }) => upstream === name)}
            pins={pins.filter(({ upstream }) => upstream === name)}
          />
        ))}
      </ul>
      <Copies curl={curlOf('GET', path)} cli="svc tools list --config gateway.yaml --upstream ID" />
    </>
  );
}

function ServerCard({
  name,
  server,
  pins,
}: {
  readonly name: string;
  readonly server: Server | undefined;
  readonly pins: readonly Pin[];
}): JSX.Element {
  const [isCompared, setCompared] = useState(false);
  const pinned = pins.filter(({ state }) => state === 'pinned').map(({ name: called }) => called);
  const others = pins.filter(({ state }) => state !== 'pinned');
  return (
    <li class="card">
      <header>
        <h2>
          <Text>{name}</Text>
        </h2>
        <button type="button" aria-expanded={isCompared} onClick={() => setCompared(!isCompared)}>
          {isCompared ? 'Close' : 'What it says now'}
        </button>
      </header>
      {server?.failure != null && (
        <p class="banner bad">
          It could not be looked at: <Text>{server.failure}</Text>
        </p>
      )}
      {server !== undefined && server.unapproved_count > 0 && (
        <p class="banner">
          {server.unapproved_count} of its tools nobody has approved, so agents do not see them:{' '}
          <Text>{server.unapproved.slice(0, 20).join(', ')}</Text>
          {server.unapproved_count > 20 ? ' and others' : ''}
        </p>
      )}
      {isCompared && <Comparison upstream={name} />}
      <ul class="stack">
        {pinned.length > 0 && (
          <li>
            <span class="mark yes">As approved</span> {pinned.length}: <Text mono>{pinned.join(', ')}</Text>
          </li>
        )}
        {others.map(({ tool, name: called, state }) => {
          const [words, tone] = STATES[state] ?? [state, 'plain'];
          return (
            <li key={tool} class="row">
              <span class={`mark ${tone}`}>{words}</span> <Text mono>{called}</Text>
            </li>
          );
        })}
      </ul>
    </li>
  );
}

/** What differs from what was approved. The gateway asks the server for it. */
function Comparison({ upstream }: { readonly upstream: string }): JSX.Element {
  const { workspace } = useCurrent();
  const found = useQuery({
    queryKey: [workspace, 'pins', upstream],
    queryFn: () =>
      ask<{ unchanged: boolean; about: ToolChange['differences']; tools: ToolChange[] }>(
        'GET',
        `${of(workspace)}/pins/${encodeURIComponent(upstream)}`,
      ),
    staleTime: 0,
  });
  if (found.data === undefined) return found.isError ? <Fault of={found.error} /> : <p role="status">Asking it…</p>;
  const { unchanged, about = [], tools } = found.data;
  if (unchanged) return <p class="banner ok">It says what was approved.</p>;
  const changes: readonly ToolChange[] = [
    ...(about.length === 0 ? [] : [{ name: 'Of all its tools', state: 'changed', differences: about }]),
    ...tools.filter(({ state }) => state !== 'unchanged'),
  ];
  return (
    <>
      <p class="faint">
        Read it as what it is: text of others, which would reach a model. If it should be so, approve it in the lock
        file, and put that under review like any change.
      </p>
      <div class="copies">
        <Copy name="svc" text={`svc tools approve --config gateway.yaml --upstream ${upstream}`} />
      </div>
      <ul class="stack">
        {changes.map((change) => (
          <li key={change.name ?? ''}>
            <h3>
              <Text>{change.name ?? 'A tool without a name'}</Text>{' '}
              <span class="faint">
                {change.state}
                {change.from === undefined ? '' : ` from ${change.from}`}
                {change.why === undefined ? '' : `: ${change.why}`}
              </span>
            </h3>
            {(change.differences ?? []).map(({ path, before, after }) => (
              <dl key={path} class="diff">
                <dt>
                  <code>{path}</code>
                </dt>
                {before !== undefined && (
                  <dd>
                    <del>
                      <Text>{valueText(before)}</Text>
                    </del>
                  </dd>
                )}
                {after !== undefined && (
                  <dd>
                    <ins>
                      <Text>{valueText(after)}</Text>
                    </ins>
                  </dd>
                )}
              </dl>
            ))}
          </li>
        ))}
      </ul>
    </>
  );
}
