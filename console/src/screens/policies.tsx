import { useQuery, useQueryClient } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { ask, of, type Rule } from '../api.ts';
import { Text, Time } from '../format.tsx';
import { Confirm, Copies, curlOf, Empty, Fault, Head } from '../parts.tsx';
import { useCurrent, useMay } from '../session.tsx';
import { PolicyText } from './policy-text.tsx';
import { Proposals } from './proposals.tsx';
import { type Trial, Suggestions } from './suggestions.tsx';
import { TryCall } from './try-call.tsx';

interface Activation {
  readonly version: string;
  readonly at: string;
  readonly by: { readonly type: string; readonly id: string };
  readonly how: string;
  readonly confirmed_by?: readonly string[];
  /** What the person said who put it there. */
  readonly why?: string;
  /** Those that were new or had changed, where a gateway found them. */
  readonly files?: readonly string[];
}

const TONES: Readonly<Record<string, string>> = { allow: 'yes', deny: 'stop', require_approval: 'wait', pause: 'stop' };

export function PoliciesScreen(): JSX.Element {
  const { workspace } = useCurrent();
  const mayRead = useMay('effects.read');
  const path = `${of(workspace)}/policies`;
  const found = useQuery({
    queryKey: [workspace, 'policies'],
    queryFn: () => ask<{ version: string; mode: string; rules: Rule[] }>('GET', path),
  });
  const [trial, setTrial] = useState<{ readonly call: Trial; readonly times: number } | null>(null);
  const sets = new Map<string, Rule[]>();
  for (const rule of found.data?.rules ?? []) sets.set(rule.set, [...(sets.get(rule.set) ?? []), rule]);
  return (
    <>
      <Head
        title="Policies"
        does="The rules in force, in the order in which they are reported. What no rule allows is refused."
      >
        {found.data !== undefined && (
          <span class={`mark ${found.data.mode === 'enforce' ? 'yes' : 'stop'}`}>
            {found.data.mode === 'enforce' ? 'Enforced' : 'Only observed'}
          </span>
        )}
      </Head>
      <Fault of={found.error} />
      {found.data !== undefined && sets.size === 0 && (
        <Empty title="No rules">
          <p>
            Nothing is allowed. <code>svc policy init</code> writes a first set that names your tools.
          </p>
        </Empty>
      )}
      {[...sets].map(([set, rules]) => (
        <section class="list rules" key={set} aria-label={set}>
          <h2 class="title">
            <Text>{set}</Text>
          </h2>
          <ul>
            {rules.map((rule) => (
              <li key={rule.id}>
                <div class="cells">
                  <span class="wrap">
                    {mayRead ? (
                      <Link href={`/${workspace}/effects?rule=${encodeURIComponent(rule.id)}`}>
                        <Text mono>{rule.id}</Text>
                      </Link>
                    ) : (
                      <Text mono>{rule.id}</Text>
                    )}
                  </span>
                  <span>
                    <span class={`mark ${TONES[rule.effect] ?? ''}`}>{rule.effect.replaceAll('_', ' ')}</span>
                  </span>
                  <span class="wrap late">{rule.description ?? ''}</span>
                  <span class="wrap late faint small mono">
                    {rule.file === undefined ? '' : `${rule.file}:${rule.line}`}
                    {rule.mode === 'enforce' ? '' : ` (${rule.mode})`}
                  </span>
                </div>
              </li>
            ))}
          </ul>
        </section>
      ))}
      {found.data !== undefined && (
        <p class="faint">
          Version <code>{found.data.version}</code>
        </p>
      )}
      <Proposals />
      <Suggestions tryCall={(call) => setTrial({ call, times: (trial?.times ?? 0) + 1 })} />
      <TryCall key={trial?.times} filled={trial?.call ?? null} />
      <InForce />
      <Copies curl={curlOf('GET', path)} cli="svc policy history" />
    </>
  );
}

const ACTIVATIONS = '/v1/beta/policies/activations';

/** What was in force and who put it there; it is changed from here by who may, for all gateways of the store. */
function InForce(): JSX.Element | null {
  const queries = useQueryClient();
  const mayActivate = useMay('policies.activate');
  const mayHistory = useMay('policies.history');
  const history = useQuery({
    queryKey: ['policy-history'],
    queryFn: () =>
      ask<{ in_force: string | null; files_version: string | null; activations: Activation[] }>('GET', ACTIVATIONS),
    enabled: mayHistory,
  });
  if (history.data === undefined) return <Fault of={history.error} />;
  const { in_force: inForce, files_version: files, activations } = history.data;
  const before = activations.find(({ version }) => version !== inForce);
  const put = async (path: string, body: { readonly version?: string }): Promise<void> => {
    await ask('POST', path, body);
    await queries.invalidateQueries();
  };
  return (
    <section class="card" aria-labelledby="history">
      <h2 id="history">Who put them in force</h2>
      {files !== inForce && (
        <div class="banner">
          <p>
            {files === null ? (
              'The files of this gateway cannot be used: its log says why.'
            ) : (
              <>
                The files of this gateway say something else: version <code>{short(files)}</code>.
              </>
            )}
          </p>
          {files !== null && mayActivate && (
            <Confirm label="Put the files in force" sure="Yes, on all gateways" act={() => put(ACTIVATIONS, {})} />
          )}
        </div>
      )}
      <ol class="stack">
        {activations.map((one, index) => (
          <PutInForce
            key={`${one.version} ${one.at}`}
            of={one}
            isNow={index === 0 && one.version === inForce}
            before={activations.slice(index + 1).find(({ version }) => version !== one.version)?.version ?? null}
          />
        ))}
      </ol>
      {mayActivate && before !== undefined && (
        <>
          <p class="faint">
            Before these, <code title={before.version}>{short(before.version)}</code> was in force.
          </p>
          <Confirm
            label="Roll back"
            sure={`Yes, put ${short(before.version)} in force on all gateways`}
            act={() => put('/v1/beta/policies/rollback', {})}
          />
        </>
      )}
    </section>
  );
}

/** Who put a version in force, why, and what it says. */
function PutInForce({
  of: { version, at, by, how, why, files = [], confirmed_by: people = [] },
  isNow,
  before,
}: {
  readonly of: Activation;
  readonly isNow: boolean;
  readonly before: string | null;
}): JSX.Element {
  return (
    <li class="row">
      <span class="faint">
        <Time at={at} />
      </span>
      <code title={version}>{short(version)}</code>
      <span>
        {how === 'files' ? 'from the files' : how}
        {by.type === 'gateway' ? '' : ` by ${by.type} ${by.id}`}
        {people.length === 0 ? '' : `, confirmed by ${people.join(' and ')}`}
      </span>
      {isNow && <span class="mark yes">In force</span>}
      {files.length > 0 && (
        <span class="faint wrap">
          <Text mono>{files.join(', ')}</Text>
        </span>
      )}
      {why !== undefined && (
        <span class="wrap">
          “<Text>{why}</Text>”
        </span>
      )}
      <PolicyText version={version} before={before} />
    </li>
  );
}

const short = (version: string): string => version.slice(0, 12);
