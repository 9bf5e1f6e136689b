import { useQuery, useQueryClient } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { ask } from '../api.ts';
import { Text, Time, visible } from '../format.tsx';
import { Confirm, Copies, curlOf, Fault } from '../parts.tsx';
import { useCurrent, useMay } from '../session.tsx';
import { PolicyTexts } from './policy-text.tsx';

interface Proposal {
  readonly id: string;
  readonly version: string;
  readonly instead_of: string;
  readonly status: string;
  readonly how: string;
  readonly by: { readonly type: string; readonly id: string };
  readonly why?: string;
  readonly files?: readonly string[];
  readonly people: readonly string[];
  readonly still_needs: number;
  readonly at: string;
  readonly expires_at: string;
}

const PROPOSALS = '/v1/beta/policies/proposals';

/** Policies that one person wants in force, or that edited files say, and that another person has to confirm. */
export function Proposals(): JSX.Element | null {
  const mayHistory = useMay('policies.history');
  const found = useQuery({
    queryKey: ['policy-proposals'],
    queryFn: () => ask<{ proposals: readonly Proposal[] }>('GET', PROPOSALS),
    enabled: mayHistory,
    refetchInterval: 10_000,
  });
  const open = (found.data?.proposals ?? []).filter(({ status }) => status === 'open');
  if (open.length === 0) return <Fault of={found.error} />;
  return (
    <section class="card" aria-labelledby="proposed">
      <h2 id="proposed">Proposed, and not in force</h2>
      <ul class="stack">
        {open.map((proposal) => (
          <Proposed key={proposal.id} proposal={proposal} />
        ))}
      </ul>
      <Copies curl={curlOf('GET', PROPOSALS)} cli="svc policy proposals" />
    </section>
  );
}

function Proposed({ proposal }: { readonly proposal: Proposal }): JSX.Element {
  const { session } = useCurrent();
  const queries = useQueryClient();
  const mayActivate = useMay('policies.activate');
  const [isShown, setShown] = useState(false);
  const { id, version, how, by, why, files = [], people, still_needs: needs } = proposal;
  const isOwn = session.user !== null && people.includes(session.user);
  const act = async (method: 'POST' | 'DELETE', path: string): Promise<void> => {
    await ask(method, path, method === 'POST' ? {} : undefined);
    await queries.invalidateQueries();
  };
  const what = how === 'files' ? 'The files say something else' : how === 'rollback' ? 'Roll back' : 'Put in force';
  return (
    <li class="stack">
      <div class="row">
        <strong>{what}</strong>
        <code title={version}>{version.slice(0, 12)}</code>
        <span class="faint">
          {by.type === 'gateway' ? '' : `by ${visible(by.id)}, `}
          <Time at={proposal.at} />, until <Time at={proposal.expires_at} />
        </span>
      </div>
      {why !== undefined && (
        <p>
          <Text>{why}</Text>
        </p>
      )}
      {files.length > 0 && (
        <p class="faint small mono">
          <Text>{files.join(', ')}</Text>
        </p>
      )}
      <p>
        {people.length === 0 ? 'Nobody stands behind it yet' : `${people.map(visible).join(' and ')} stands behind it`};{' '}
        {needs === 1 ? 'one more person has to.' : `${needs} people have to.`}
      </p>
      <div class="row">
        <button type="button" aria-expanded={isShown} onClick={() => setShown(!isShown)}>
          {isShown ? 'Close' : 'What would change'}
        </button>
      </div>
      {isShown && <PolicyTexts version={version} before={proposal.instead_of} />}
      {mayActivate && isShown && !isOwn && (
        <Confirm
          label="Confirm"
          sure={needs === 1 ? 'Yes, on all gateways' : 'Yes, I stand behind it'}
          act={() => act('POST', `${PROPOSALS}/${id}/confirm`)}
        />
      )}
      {mayActivate && (
        <Confirm
          label={isOwn ? 'Withdraw' : 'Turn down'}
          sure="Yes, it is over"
          act={() => act('DELETE', `${PROPOSALS}/${id}`)}
        />
      )}
    </li>
  );
}
