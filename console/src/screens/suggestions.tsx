import { useQuery } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { Link } from 'wouter-preact';
import { ask, type JsonObject, of } from '../api.ts';
import { Text, Time, visible } from '../format.tsx';
import { Copies, CopyButton, curlOf, Fault } from '../parts.tsx';
import { useCurrent, useMay } from '../session.tsx';

interface Suggestion {
  readonly rule: string;
  readonly tool: string;
  readonly file: string;
  readonly line: number;
  readonly text: string;
  readonly people: readonly string[];
  readonly since: string;
  readonly until: string;
  readonly approvals: readonly {
    readonly approval_id: string;
    readonly effect_id: string;
    readonly agent_id: string;
    readonly at: string;
    readonly by: readonly string[];
  }[];
  readonly example: { readonly agent_id: string; readonly params: JsonObject };
}

/** A call to be tried. */
export interface Trial {
  readonly tool: string;
  readonly agent: string;
  readonly params: JsonObject;
}

/** Rules that would let run what people approved each time. To show them changes nothing. */
export function Suggestions({ tryCall }: { readonly tryCall: (trial: Trial) => void }): JSX.Element | null {
  const { workspace } = useCurrent();
  const path = `${of(workspace)}/policies/suggestions`;
  const found = useQuery({
    queryKey: [workspace, 'policy-suggestions'],
    queryFn: () => ask<{ suggestions: readonly Suggestion[] }>('GET', path),
    enabled: useMay('policies.suggest'),
    staleTime: 60_000,
  });
  const suggestions = found.data?.suggestions ?? [];
  if (suggestions.length === 0) return <Fault of={found.error} />;
  return (
    <section class="card" aria-labelledby="suggested">
      <h2 id="suggested">Suggestions</h2>
      <p>
        People approved these calls each time. Nothing changes by itself: put the text in the place of the rule in its
        file. Where two people have to stand behind policies, they confirm it here before it is in force.
      </p>
      <ul class="stack">
        {suggestions.map((one) => (
          <Suggested key={`${one.rule} ${one.tool}`} suggestion={one} tryCall={tryCall} />
        ))}
      </ul>
      <Copies curl={curlOf('GET', path)} cli="svc policy suggest" />
    </section>
  );
}

function Suggested({
  suggestion: { rule, tool, file, line, text, people, since, until, approvals, example },
  tryCall,
}: {
  readonly suggestion: Suggestion;
  readonly tryCall: (trial: Trial) => void;
}): JSX.Element {
  const { workspace } = useCurrent();
  return (
    <li class="stack">
      <h3>
        <Text mono>{tool}</Text>
      </h3>
      <p>
        {`Approved ${approvals.length} times by ${people.map(visible).join(', ')} and never rejected, `}
        <Time at={since} /> to <Time at={until} />. In the place of <Text mono>{rule}</Text>{' '}
        <span class="faint small mono">
          <Text>{`${file}:${line}`}</Text>
        </span>
      </p>
      <pre class="lines" tabIndex={0} aria-label={`The text for ${visible(tool)}`} role="region">
        {text.split('\n').map(visible).join('\n')}
      </pre>
      <div class="row">
        <CopyButton name={`the text for ${visible(tool)}`} text={text} />
        <button type="button" onClick={() => tryCall({ tool, agent: example.agent_id, params: example.params })}>
          Try the newest of these calls
        </button>
      </div>
      <details>
        <summary>What it is drawn from</summary>
        <ul>
          {approvals.map((one) => (
            <li key={one.approval_id}>
              <Link href={`/${workspace}/effects/${encodeURIComponent(one.effect_id)}`}>
                <Text mono>{one.effect_id}</Text>
              </Link>{' '}
              of <Text>{one.agent_id}</Text>, approved <Time at={one.at} /> by {one.by.map(visible).join(', ')}
            </li>
          ))}
        </ul>
      </details>
    </li>
  );
}
