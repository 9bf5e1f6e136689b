import { useQuery } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { ask, type Json, type JsonObject, of } from '../api.ts';
import { DECISIONS, Mark, spanText, Text, visible } from '../format.tsx';
import { amountText } from '../money.ts';
import { Copies, curlOf, Fault } from '../parts.tsx';
import { useCurrent, useMay } from '../session.tsx';
import { Facts } from './effect.tsx';
import type { Trial } from './suggestions.tsx';

/** What a call would get now. */
interface Preview {
  readonly would: string;
  readonly reason: { readonly code: string; readonly message: string; readonly rule?: string };
  readonly target: string;
  readonly obligations: readonly Obligation[];
  readonly policies: readonly { readonly rule: string; readonly effect: string; readonly unknown: readonly string[] }[];
  readonly policy_version: string;
}

type Obligation =
  | {
      readonly kind: 'budget';
      readonly budget: string;
      readonly unit: string;
      readonly amount: number | null;
      readonly limit?: number;
    }
  | { readonly kind: 'rate_limit'; readonly id: string; readonly window_ms: number; readonly limit: number }
  | { readonly kind: 'claim'; readonly target: string; readonly hold: string }
  | { readonly kind: 'reserve'; readonly pool: string; readonly units: number }
  | {
      readonly kind: 'approval';
      readonly approvers: { readonly roles: readonly string[]; readonly users: readonly string[] };
      readonly quorum: number;
      readonly expires_ms: number;
    };

interface Asked {
  readonly action_type: 'mcp.tool_call';
  readonly tool: string;
  readonly agent_id: string;
  readonly params: JsonObject;
}

/**
 * Asks what a call would get, without running it. Nothing is written, and no upstream hears of it.
 * @param filled what stands in the form from the start, ready to be tried
 */
export function TryCall({ filled }: { readonly filled: Trial | null }): JSX.Element | null {
  const { workspace } = useCurrent();
  const mayPreview = useMay('effects.preview');
  const mayTools = useMay('tools.read');
  const [preview, setPreview] = useState<{ readonly asked: Asked; readonly got: Preview } | null>(null);
  const [fault, setFault] = useState<unknown>(null);
  const [wrong, setWrong] = useState('');
  const tools = useQuery({
    queryKey: [workspace, 'tools'],
    queryFn: () => ask<{ tools: { name: string }[] }>('GET', `${of(workspace)}/tools`),
    enabled: mayPreview && mayTools,
  });
  const agents = useQuery({
    queryKey: [workspace, 'agents'],
    queryFn: () => ask<{ agents: { id: string }[] }>('GET', `${of(workspace)}/agents`),
    enabled: mayPreview,
  });
  const submitter = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (filled !== null) submitter.current?.focus();
  }, [filled]);
  if (!mayPreview) return null;
  const path = `${of(workspace)}/effects/preview`;
  const submit = async (form: HTMLFormElement): Promise<void> => {
    const given = new FormData(form);
    const text = (name: string): string => {
      const value = given.get(name);
      return typeof value === 'string' ? value.trim() : '';
    };
    const params = objectOf(text('params'));
    setWrong(params === null ? 'Params are a JSON object, such as {"amount": 1000}.' : '');
    setFault(null);
    setPreview(null);
    if (params === null) return;
    const asked = { action_type: 'mcp.tool_call', tool: text('tool'), agent_id: text('agent'), params } as const;
    try {
      setPreview({ asked, got: await ask<Preview>('POST', path, { ...asked }) });
    } catch (error) {
      setFault(error);
    }
  };
  return (
    <section class="card" aria-labelledby="try">
      <h2 id="try">Try a call</h2>
      <p class="faint">What would it get now? Nothing runs, and nothing is written.</p>
      <form
        class="stack"
        aria-labelledby="try"
        onSubmit={(event) => {
          event.preventDefault();
          void submit(event.currentTarget);
        }}
      >
        <div class="filters">
          <label>
            Tool
            <input name="tool" list="try-tools" required autocomplete="off" defaultValue={filled?.tool} />
          </label>
          <label>
            Agent
            <input name="agent" list="try-agents" required autocomplete="off" defaultValue={filled?.agent} />
          </label>
        </div>
        <Choices id="try-tools" of={(tools.data?.tools ?? []).map(({ name }) => name)} />
        <Choices id="try-agents" of={(agents.data?.agents ?? []).map(({ id }) => id)} />
        <label>
          Params
          <textarea
            name="params"
            class="mono"
            rows={5}
            spellcheck={false}
            defaultValue={filled === null ? '{}' : JSON.stringify(filled.params, null, 2)}
            aria-invalid={wrong !== ''}
            aria-describedby="try-wrong"
          />
        </label>
        <p id="try-wrong" role="alert" class={wrong === '' ? 'vh' : 'banner bad'}>
          {wrong}
        </p>
        <div class="row">
          <button type="submit" class="main" ref={submitter}>
            Try
          </button>
        </div>
      </form>
      <Fault of={fault} />
      <div role="status" class="stack">
        {preview !== null && (
          <>
            <Verdict preview={preview.got} />
            <Copies curl={curlOf('POST', path, preview.asked)} cli={`svc policy show ${preview.got.policy_version}`} />
          </>
        )}
      </div>
    </section>
  );
}

function Verdict({ preview }: { readonly preview: Preview }): JSX.Element {
  const { workspace } = useCurrent();
  const { would, reason, target, obligations, policies } = preview;
  return (
    <>
      <p class="row">
        {DECISIONS[would] === undefined ? <span class="mark plain">{would}</span> : <Mark of={would} />}
        <Text>{reason.message}</Text>
      </p>
      <Facts
        of={[
          ['Target', <Text mono>{target}</Text>],
          ...policies.map(
            ({ rule, effect, unknown }) =>
              [
                effect.replaceAll('_', ' '),
                <span>
                  <Link href={`/${workspace}/effects?rule=${encodeURIComponent(rule)}`}>
                    <Text mono>{rule}</Text>
                  </Link>
                  {unknown.length > 0 && <span class="faint"> not known: {visible(unknown.join(', '))}</span>}
                </span>,
              ] as const,
          ),
          ...obligations.map(
            (obligation) => [obligation.kind.replaceAll('_', ' '), <Text>{inWords(obligation)}</Text>] as const,
          ),
        ]}
      />
    </>
  );
}

function Choices({ id, of: names }: { readonly id: string; readonly of: readonly string[] }): JSX.Element {
  return (
    <datalist id={id}>
      {names.slice(0, 500).map((name) => (
        <option key={name} value={name} />
      ))}
    </datalist>
  );
}

/** What a call has to hold, in words. */
function inWords(obligation: Obligation): string {
  switch (obligation.kind) {
    case 'budget':
      return `${obligation.amount === null ? 'what it costs' : amountText(obligation.amount, obligation.unit)} of ${obligation.budget}${obligation.limit === undefined ? '' : `, whose limit is ${amountText(obligation.limit, obligation.unit)}`}`;
    case 'rate_limit':
      return `${obligation.limit} calls in ${spanText(obligation.window_ms)} (${obligation.id})`;
    case 'claim':
      return `${obligation.target} (${obligation.hold})`;
    case 'reserve':
      return `${obligation.units} of ${obligation.pool}`;
    case 'approval': {
      const { roles, users } = obligation.approvers;
      return `${obligation.quorum} of ${[...roles, ...users].join(', ')}, within ${spanText(obligation.expires_ms)}`;
    }
  }
}

function objectOf(text: string): JsonObject | null {
  try {
    const value: Json = JSON.parse(text === '' ? '{}' : text);
    return isObject(value) ? value : null;
  } catch {
    return null;
  }
}

function isObject(value: Json): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
