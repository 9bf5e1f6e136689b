import { useIsFetching, useQuery, useQueryClient } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Link, Redirect, Route, Router, Switch, useLocation } from 'wouter-preact';
import { ask, hooks, of, type Pause, type Session } from './api.ts';
import icon from './icon.svg';
import { Fault } from './parts.tsx';
import { useUnknown, useWaiting } from './queries.ts';
import { AgentsScreen } from './screens/agents.tsx';
import { BrainScreen } from './screens/brain.tsx';
import { BudgetsScreen } from './screens/budgets.tsx';
import { ClaimsScreen } from './screens/claims.tsx';
import { EffectScreen } from './screens/effect.tsx';
import { EffectsScreen } from './screens/effects.tsx';
import { HealthScreen } from './screens/health.tsx';
import { InboxScreen } from './screens/inbox.tsx';
import { OverviewScreen } from './screens/overview.tsx';
import { PasskeysScreen } from './screens/passkeys.tsx';
import { PauseBanner, PausesScreen } from './screens/pauses.tsx';
import { PoliciesScreen } from './screens/policies.tsx';
import { ServersScreen } from './screens/servers.tsx';
import { UnknownScreen } from './screens/unknown.tsx';
import { Shortcuts } from './shortcuts.tsx';
import { CurrentProvider, SignIn, StepUp, useCurrent, useMay, whoIsIn } from './session.tsx';

/** What is in the navigation, each with the row of the table of permissions that it needs. */
const SCREENS = [
  { path: 'effects', name: 'Effects', needs: 'effects.read' },
  { path: 'inbox', name: 'Inbox', needs: 'approvals.read' },
  { path: 'unknown', name: 'Unknown outcomes', needs: 'effects.read' },
  { path: 'overview', name: 'Overview', needs: 'effects.read' },
  { path: 'agents', name: 'Agents and keys', needs: 'agents.read' },
  { path: 'passkeys', name: 'Passkeys', needs: 'passkeys.read' },
  { path: 'budgets', name: 'Budgets', needs: 'budgets.read' },
  { path: 'claims', name: 'Claims', needs: 'claims.read' },
  { path: 'pauses', name: 'Pauses', needs: 'pauses.read' },
  { path: 'policies', name: 'Policies', needs: 'policies.read' },
  { path: 'brain', name: 'Company brain', needs: 'brain.read' },
  { path: 'servers', name: 'MCP servers', needs: 'pins.read' },
  { path: 'health', name: 'Health', needs: 'effects.read' },
] as const;

export function App(): JSX.Element {
  const queries = useQueryClient();
  const session = useQuery({ queryKey: ['session'], queryFn: whoIsIn, staleTime: Infinity });

  useEffect(() => {
    hooks.signedOut = () => void queries.setQueryData(['session'], null);
  }, [queries]);

  if (session.isPending) return <p class="vh">Loading</p>;
  if (session.isError)
    return (
      <div class="door">
        <main class="card">
          <Fault of={session.error} />
          <button onClick={() => void session.refetch()}>Try again</button>
        </main>
      </div>
    );
  // Of whoever was here before, nothing stays.
  const entered = (): void => {
    queries.removeQueries({ predicate: ({ queryKey }) => queryKey[0] !== 'session' });
    void session.refetch();
  };
  if (session.data === null || location.hash.startsWith('#link=')) return <SignIn entered={entered} />;
  return (
    <Router base="/console">
      <SignedIn session={session.data} />
    </Router>
  );
}

function SignedIn({ session }: { readonly session: Session }): JSX.Element {
  const [path] = useLocation();
  const [first] = session.workspaces;
  const workspace = session.workspaces.find((one) => path === `/${one}` || path.startsWith(`/${one}/`)) ?? first;
  if (workspace === undefined)
    return (
      <div class="door">
        <main class="card">
          <h1>No workspace</h1>
          <p>This key sees no workspace. Sign in with another one.</p>
          <Leave />
        </main>
      </div>
    );
  const home = SCREENS.find(({ needs }) => session.may.includes(needs))?.path ?? 'effects';
  return (
    <CurrentProvider value={{ session, workspace }}>
      <Shell>
        <Switch>
          <Route path="/:ws/effects" component={EffectsScreen} />
          <Route path="/:ws/effects/:id">{({ id }) => <EffectScreen key={id} id={id} />}</Route>
          <Route path="/:ws/inbox" component={InboxScreen} />
          <Route path="/:ws/unknown" component={UnknownScreen} />
          <Route path="/:ws/pauses" component={PausesScreen} />
          <Route path="/:ws/budgets" component={BudgetsScreen} />
          <Route path="/:ws/policies" component={PoliciesScreen} />
          <Route path="/:ws/agents" component={AgentsScreen} />
          <Route path="/:ws/passkeys" component={PasskeysScreen} />
          <Route path="/:ws/overview" component={OverviewScreen} />
          <Route path="/:ws/claims" component={ClaimsScreen} />
          <Route path="/:ws/brain" component={BrainScreen} />
          <Route path="/:ws/servers" component={ServersScreen} />
          <Route path="/:ws/health" component={HealthScreen} />
          <Route>
            <Redirect to={`/${workspace}/${home}`} replace />
          </Route>
        </Switch>
      </Shell>
      <StepUp />
    </CurrentProvider>
  );
}

function Shell({ children }: { readonly children: JSX.Element }): JSX.Element {
  const { session, workspace } = useCurrent();
  const [path, go] = useLocation();
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    setOpen(false);
    window.scrollTo(0, 0);
  }, [path]);
  const counts = useCounts();
  const isReading = useIsFetching({ predicate: ({ state }) => state.status === 'pending' }) > 0;
  return (
    <>
      <a class="skip" href="#content">
        Skip to the content
      </a>
      <div class="shell">
        <header class={`side ${isOpen ? 'open' : ''}`}>
          <Link class="brand" href={`/${workspace}/effects`}>
            <img src={icon} alt="" /> svc
          </Link>
          <button type="button" class="menu" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
            Menu
          </button>
          {session.workspaces.length > 1 && (
            <label>
              <span>Workspace</span>
              <select value={workspace} onChange={({ currentTarget }) => go(`/${currentTarget.value}`)}>
                {session.workspaces.map((one) => (
                  <option key={one}>{one}</option>
                ))}
              </select>
            </label>
          )}
          <nav class="nav" aria-label="Screens">
            {SCREENS.filter(({ needs }) => session.may.includes(needs)).map(({ path: to, name }) => {
              const count = counts[to];
              const isHere = path.startsWith(`/${workspace}/${to}`);
              return (
                <Link key={to} href={`/${workspace}/${to}`} aria-current={isHere ? 'page' : undefined}>
                  {name}
                  {count !== undefined && count !== '0' && (
                    <span class={`count ${to === 'unknown' ? 'bad' : ''}`}>{count}</span>
                  )}
                </Link>
              );
            })}
          </nav>
          <PauseBanner />
          <div class="who">
            <div>
              <strong>{session.user ?? 'No user'}</strong>
              <div class="faint small">
                {session.kind} key{session.read_only ? ', read-only' : ''}
                {session.workspaces.length === 1 ? ` in ${workspace}` : ''}
              </div>
            </div>
            <Shortcuts />
            <Leave />
          </div>
        </header>
        <main id="content" tabIndex={-1} aria-busy={isReading}>
          {children}
        </main>
      </div>
    </>
  );
}

/** How much waits, beside the names of screens. */
function useCounts(): Readonly<Record<string, string>> {
  const { workspace } = useCurrent();
  const [mayApprove, mayRead, maySeePauses] = [useMay('approvals.read'), useMay('effects.read'), useMay('pauses.read')];
  const everyMs = 10_000;
  const waiting = useWaiting(everyMs, mayApprove);
  const unknown = useUnknown(everyMs, mayRead);
  const pauses = useQuery({
    queryKey: [workspace, 'pauses'],
    queryFn: () => ask<{ pauses: Pause[] }>('GET', `${of(workspace)}/pauses`),
    enabled: maySeePauses,
    refetchInterval: everyMs,
  });
  return {
    inbox: String(waiting.data?.approvals.length ?? 0),
    unknown: `${unknown.data?.effects.length ?? 0}${unknown.data?.next_cursor == null ? '' : '+'}`,
    pauses: String(pauses.data?.pauses.length ?? 0),
  };
}

function Leave(): JSX.Element {
  const queries = useQueryClient();
  const leave = async (): Promise<void> => {
    await ask('DELETE', '/console/session');
    queries.clear();
    location.assign('/console/sign-in');
  };
  return (
    <button type="button" onClick={() => void leave()}>
      Leave
    </button>
  );
}
