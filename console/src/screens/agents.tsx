import { useQuery, useQueryClient } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { type Agent, ask, type JsonObject, type Key, of } from '../api.ts';
import { spanText, Text, Time } from '../format.tsx';
import { Choice, Copies, Copy, curlOf, Empty, Fault, Head, useNow } from '../parts.tsx';
import { useCurrent, useMay } from '../session.tsx';

export function AgentsScreen(): JSX.Element {
  const { workspace } = useCurrent();
  const mayKeys = useMay('keys.manage');
  const path = `${of(workspace)}/agents`;
  const agents = useQuery({
    queryKey: [workspace, 'agents'],
    queryFn: () => ask<{ agents: Agent[] }>('GET', path),
  });
  return (
    <>
      <Head title="Agents and keys" does="Who may act through the gateway, and the keys that prove it." />
      <Fault of={agents.error} />
      {mayKeys ? (
        <Keys agents={agents.data?.agents ?? []} />
      ) : (
        <section class="card">
          <h2>API keys</h2>
          <p class="faint">
            Keys are made, rotated and revoked with an administrative key. Sign in with one:{' '}
            <code>svc console --key-file admin-key</code>
          </p>
        </section>
      )}
      <section class="stack" aria-labelledby="agents">
        <h2 id="agents">Agents in {workspace}</h2>
        {agents.data !== undefined && agents.data.agents.length === 0 && (
          <Empty title="No agent is registered">
            <p>Agents are declared in the configuration, or registered by the API, before their first call.</p>
          </Empty>
        )}
        <AgentList agents={agents.data?.agents ?? []} />
      </section>
      <Copies
        curl={curlOf('GET', mayKeys ? '/v1/beta/keys' : path)}
        cli={mayKeys ? 'svc keys list' : `svc effects list --workspace ${workspace}`}
      />
    </>
  );
}

function AgentList({ agents }: { readonly agents: readonly Agent[] }): JSX.Element | null {
  const { workspace } = useCurrent();
  const mayRead = useMay('effects.read');
  if (agents.length === 0) return null;
  return (
    <ul class="list agents">
      {agents.map(({ id, team, owner, roles, disabled }) => (
        <li key={id}>
          <div class="cells">
            <span>
              {mayRead ? (
                <Link href={`/${workspace}/effects?agent_id=${encodeURIComponent(id)}`}>
                  <Text>{id}</Text>
                </Link>
              ) : (
                <Text>{id}</Text>
              )}
            </span>
            <span>{disabled && <span class="mark stop">disabled</span>}</span>
            <span class="late faint">{team === null ? '' : `team ${team}`}</span>
            <span class="late faint">{owner === null ? '' : `of ${owner}`}</span>
            <span class="late faint">{roles.join(', ')}</span>
          </div>
        </li>
      ))}
    </ul>
  );
}

/** A key that was made a moment ago: the only time that it is shown. */
interface Shown {
  readonly key: string;
  readonly id: string;
  readonly what: string;
}

function Keys({ agents }: { readonly agents: readonly Agent[] }): JSX.Element {
  const { workspace } = useCurrent();
  const queries = useQueryClient();
  const [isMaking, setMaking] = useState(false);
  const [shown, setShown] = useState<Shown | null>(null);
  const [showsEnded, setShowsEnded] = useState(false);
  const now = useNow(5_000);
  const found = useQuery({
    queryKey: ['keys'],
    queryFn: () => ask<{ keys: Key[] }>('GET', '/v1/beta/keys'),
    refetchInterval: 10_000,
  });
  const all = (found.data?.keys ?? []).filter((key) => key.workspace === null || key.workspace === workspace);
  const keys = all.filter((key) => showsEnded || stateOf(key, now) === 'active').toReversed();
  const made = async (key: Shown | null): Promise<void> => {
    setMaking(false);
    if (key !== null) setShown(key);
    await queries.invalidateQueries({ queryKey: ['keys'] });
  };
  return (
    <section class="stack" aria-labelledby="keys">
      <div class="head">
        <h2 id="keys">API keys</h2>
        <div class="row">
          <label class="check">
            <input
              type="checkbox"
              checked={showsEnded}
              onChange={({ currentTarget }) => setShowsEnded(currentTarget.checked)}
            />
            Also those that have ended
          </label>
          {!isMaking && (
            <button class="main" onClick={() => setMaking(true)}>
              Make a key
            </button>
          )}
        </div>
      </div>
      <Fault of={found.error} />
      {shown !== null && (
        <div class="card" role="status">
          <h3>{shown.what}. It is shown this once: keep it now.</h3>
          <div class="copies">
            <Copy name="key" text={shown.key} />
          </div>
          <div class="row">
            <button onClick={() => setShown(null)}>I have kept it</button>
          </div>
        </div>
      )}
      {isMaking && <KeyForm agents={agents} done={(key) => void made(key)} />}
      <ul class="list keys">
        {keys.map((key) => (
          <KeyRow key={key.id} of={key} now={now} changed={(one) => void made(one)} />
        ))}
      </ul>
    </section>
  );
}

function stateOf({ revoked_at: revoked, expires_at: expires, replaced_by: by }: Key, now: number): string {
  if (revoked !== null) return 'revoked';
  if (expires !== null && Date.parse(expires) <= now) return by === null ? 'expired' : 'replaced';
  return 'active';
}

function KeyRow({
  of: key,
  now,
  changed,
}: {
  readonly of: Key;
  readonly now: number;
  readonly changed: (shown: Shown | null) => void;
}): JSX.Element {
  const { session } = useCurrent();
  const [sure, setSure] = useState<'revoke' | 'rotate' | null>(null);
  const [fault, setFault] = useState<unknown>(null);
  const state = stateOf(key, now);
  const isOwn = key.id === session.key_id;
  const act = async (what: 'revoke' | 'rotate'): Promise<void> => {
    if (sure !== what) return setSure(what);
    setSure(null);
    setFault(null);
    try {
      if (what === 'revoke') {
        await ask('DELETE', `/v1/beta/keys/${key.id}`);
        changed(null);
      } else {
        const { key: made, id } = await ask<{ key: string; id: string }>('POST', `/v1/beta/keys/${key.id}/rotate`, {});
        changed({ key: made, id, what: `The successor of ${key.name}` });
      }
    } catch (error) {
      setFault(error);
    }
  };
  return (
    <li>
      <div class="cells">
        <span class="wrap">
          <Text>{key.name}</Text>
          <br />
          <span class="faint small mono">{key.id}</span>
        </span>
        <span class="late">
          {key.kind}
          {key.profile === null ? '' : ` (${key.profile})`}
        </span>
        <span class="late wrap faint">
          {key.agent_id ?? key.user_id ?? 'no user'}
          {key.agent_id === null || key.user_id === null ? '' : `, of ${key.user_id}`}
        </span>
        <span class="late faint wrap">
          {key.last_used_at === null ? 'never used' : `used ${spanText(now - Date.parse(key.last_used_at))} ago`}
          {key.expires_at !== null && state === 'active' && (
            <>
              , until <Time at={key.expires_at} short />
            </>
          )}
        </span>
        <span class="wrap">
          {state === 'active' ? (
            <span class="row">
              <button type="button" onClick={() => void act('rotate')}>
                {sure === 'rotate' ? 'Yes, rotate' : 'Rotate'}
              </button>
              {!isOwn && (
                <button type="button" class={sure === 'revoke' ? 'no' : ''} onClick={() => void act('revoke')}>
                  {sure === 'revoke' ? 'Yes, revoke' : 'Revoke'}
                </button>
              )}
            </span>
          ) : (
            <span class="mark">{state}</span>
          )}
          <Fault of={fault} />
        </span>
      </div>
    </li>
  );
}

const KINDS = [
  ['agent', 'For an agent: it acts as itself'],
  ['account', 'For a person: sees the workspace, decides'],
  ['mcp_readonly', 'For an MCP client: looks only'],
  ['administrative', 'For an administrator: keys, workspaces, policies'],
] as const;

const DAYS = [
  ['1', 'A day'],
  ['30', '30 days'],
  ['90', '90 days'],
  ['365', 'A year'],
  ['', 'As the configuration says'],
] as const;

function KeyForm({
  agents,
  done,
}: {
  readonly agents: readonly Agent[];
  readonly done: (shown: Shown | null) => void;
}): JSX.Element {
  const { workspace, session } = useCurrent();
  const [kind, setKind] = useState('agent');
  const [name, setName] = useState('');
  const [user, setUser] = useState(session.user ?? '');
  const [agent, setAgent] = useState('');
  const [days, setDays] = useState('90');
  const [fault, setFault] = useState<unknown>(null);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setFault(null);
    const body: JsonObject = {
      name: name.trim(),
      ...(kind === 'mcp_readonly' ? { profile: kind } : { kind }),
      ...(kind === 'administrative' ? {} : { workspace }),
      ...(kind === 'agent' ? { agent_id: agent } : {}),
      ...(days === '' ? {} : { expires_in: Number(days) * 86_400 }),
    };
    try {
      const path = `/v1/beta/users/${encodeURIComponent(user.trim())}/keys`;
      const made = await ask<{ key: string; id: string }>('POST', path, body);
      done({ key: made.key, id: made.id, what: `The key ${name.trim()}` });
    } catch (error) {
      setFault(error);
    }
  };
  return (
    <form class="card" aria-label="Make a key" onSubmit={(event) => void submit(event)}>
      <Fault of={fault} />
      <Choice name="What for" value={kind} choose={setKind} of={KINDS} />
      {kind === 'agent' && (
        <label>
          <span>Agent</span>
          <select name="agent" required value={agent} onChange={({ currentTarget }) => setAgent(currentTarget.value)}>
            <option value="">Choose one</option>
            {agents.map(({ id }) => (
              <option key={id}>{id}</option>
            ))}
          </select>
        </label>
      )}
      <div class="two">
        <label>
          <span>Name, for people</span>
          <input required maxLength={200} value={name} onInput={({ currentTarget }) => setName(currentTarget.value)} />
        </label>
        <label>
          <span>User who answers for it</span>
          <input required maxLength={128} value={user} onInput={({ currentTarget }) => setUser(currentTarget.value)} />
        </label>
      </div>
      <Choice name="How long it is good" value={days} choose={setDays} of={DAYS} />
      <div class="row">
        <button class="main">Make it</button>
        <button type="button" onClick={() => done(null)}>
          Cancel
        </button>
      </div>
    </form>
  );
}
