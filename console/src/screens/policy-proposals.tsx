import { useQuery, useQueryClient } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { ask } from '../api.ts';
import { Text, Time } from '../format.tsx';
import { Confirm, Copies, curlOf, Fault } from '../parts.tsx';
import { useCurrent, useMay } from '../session.tsx';
import { PolicyText } from './policy-text.tsx';

interface Proposal {
  readonly id: string;
  readonly version: string;
  readonly instead_of: string;
  readonly status: 'open' | 'confirmed' | 'withdrawn' | 'superseded' | 'expired';
  readonly how: 'files' | 'activate' | 'rollback';
  readonly by: { readonly type: string; readonly id: string };
  readonly why?: string;
  readonly files?: readonly string[];
  readonly people: readonly string[];
  readonly still_needs: number;
  readonly at: string;
  readonly expires_at: string;
}

const PROPOSALS = '/v1/beta/policies/proposals';

/** Policies that wait for another person; nothing where none do. */
export function PolicyProposals(): JSX.Element | null {
  const mayRead = useMay('policies.history');
  const found = useQuery({
    queryKey: ['policy-proposals'],
    queryFn: () => ask<{ proposals: Proposal[] }>('GET', PROPOSALS),
    enabled: mayRead,
    refetchInterval: 15_000,
  });
  const open = found.data?.proposals.filter(({ status }) => status === 'open') ?? [];
  if (open.length === 0) return <Fault of={found.error} />;
  return (
    <section class="card" aria-labelledby="proposals">
      <h2 id="proposals">Waits for another person</h2>
      <p class="faint">
        Read what differs. What is confirmed is this text, whatever the files say by then. Nobody confirms what they
        proposed themselves.
      </p>
      <ul class="stack">
        {open.map((one) => (
          <Open key={one.id} of={one} />
        ))}
      </ul>
      <Copies curl={curlOf('GET', PROPOSALS)} cli="svc policy proposals" />
    </section>
  );
}

function Open({ of: { id, version, instead_of: before, how, by, why, files = [], ...of } }: { readonly of: Proposal }) {
  const queries = useQueryClient();
  const mayConfirm = useMay('policies.activate');
  const { user } = useCurrent().session;
  const path = `${PROPOSALS}/${encodeURIComponent(id)}`;
  const act = async (method: 'POST' | 'DELETE', at: string): Promise<void> => {
    await ask(method, at);
    await queries.invalidateQueries();
  };
  const isOwn = user !== null && of.people.includes(user);
  return (
    <li class="row">
      <span class="faint">
        <Time at={of.at} />
      </span>
      <code title={version}>{version.slice(0, 12)}</code>
      <span>
        {how === 'files' ? 'The files say it' : how === 'rollback' ? 'Back to before' : 'To be put in force'}
        {by.type === 'gateway' ? '' : `, proposed by ${by.type} ${by.id}`}
      </span>
      <span class="mark wait">
        {of.still_needs === 1 ? 'One more person' : `${of.still_needs} people`}, until <Time at={of.expires_at} />
      </span>
      {files.length > 0 && (
        <span class="faint wrap">
          <Text mono>{files.join(', ')}</Text>
        </span>
      )}
      {of.people.length > 0 && (
        <span class="wrap">
          Behind it: <Text>{of.people.join(', ')}</Text>
        </span>
      )}
      {why !== undefined && (
        <span class="wrap">
          “<Text>{why}</Text>”
        </span>
      )}
      <PolicyText version={version} before={before} />
      {mayConfirm && (
        <>
          {isOwn ? (
            <span class="faint">You stand behind it already: somebody else has to confirm it.</span>
          ) : (
            <Confirm label="Confirm" sure="Yes, I have read what differs" act={() => act('POST', `${path}/confirm`)} />
          )}
          <Confirm label={isOwn ? 'Withdraw' : 'Turn down'} sure="Yes, it is over" act={() => act('DELETE', path)} />
        </>
      )}
    </li>
  );
}
