import { useQuery } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { Link } from 'wouter-preact';
import { ask, of, type Rule } from '../api.ts';
import { Text, Time } from '../format.tsx';
import { Copies, curlOf, Empty, Fault, Head } from '../parts.tsx';
import { useCurrent, useMay } from '../session.tsx';

interface Activation {
  readonly version: string;
  readonly at: string;
  readonly by: { readonly type: string; readonly id: string };
  readonly how: string;
}

const TONES: Readonly<Record<string, string>> = { allow: 'yes', deny: 'stop', require_approval: 'wait', pause: 'stop' };

export function PoliciesScreen(): JSX.Element {
  const { workspace } = useCurrent();
  const mayRead = useMay('effects.read');
  const mayHistory = useMay('policies.history');
  const path = `${of(workspace)}/policies`;
  const found = useQuery({
    queryKey: [workspace, 'policies'],
    queryFn: () => ask<{ version: string; mode: string; rules: Rule[] }>('GET', path),
  });
  const history = useQuery({
    queryKey: ['policy-history'],
    queryFn: () => ask<{ activations: Activation[] }>('GET', '/v1/beta/policies/activations'),
    enabled: mayHistory,
  });
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
      {history.data !== undefined && (
        <section class="card" aria-labelledby="history">
          <h2 id="history">Who put them in force</h2>
          <ol class="stack">
            {history.data.activations.map(({ version, at, by, how }) => (
              <li key={`${version} ${at}`} class="row">
                <span class="faint">
                  <Time at={at} />
                </span>
                <code>{version.slice(0, 19)}</code>
                <span>
                  {how === 'files' ? 'from the files' : how}
                  {by.type === 'gateway' ? '' : ` by ${by.type} ${by.id}`}
                </span>
              </li>
            ))}
          </ol>
        </section>
      )}
      <Copies curl={curlOf('GET', path)} cli="svc policy history" />
    </>
  );
}
