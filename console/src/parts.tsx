import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Problem } from './api.ts';

/** The head of a screen; `does` is what it is for, in one sentence. */
export function Head({
  title,
  does,
  children,
}: {
  readonly title: string;
  readonly does: string;
  readonly children?: ComponentChildren;
}): JSX.Element {
  useEffect(() => {
    document.title = `${title} · svc`;
  }, [title]);
  return (
    <div class="head">
      <div>
        <h1 tabIndex={-1}>{title}</h1>
        <p>{does}</p>
      </div>
      <div class="row">{children}</div>
    </div>
  );
}

/** What stands where nothing is: why, and what to do next. */
export function Empty({
  title,
  children,
}: {
  readonly title: string;
  readonly children: ComponentChildren;
}): JSX.Element {
  return (
    <div class="card empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

export function Fault({ of }: { readonly of: unknown }): JSX.Element | null {
  if (of === null || of === undefined) return null;
  const text = of instanceof Problem ? of.message : 'Something went wrong in this page. Load it again.';
  return (
    <p class="banner bad" role="alert">
      {text}
    </p>
  );
}

/** A button that asks once more before it acts, and says what went wrong. */
export function Confirm({
  label,
  sure,
  act,
}: {
  readonly label: string;
  readonly sure: string;
  readonly act: () => Promise<void>;
}): JSX.Element {
  const [isSure, setSure] = useState(false);
  const [fault, setFault] = useState<unknown>(null);
  const press = async (): Promise<void> => {
    if (!isSure) return setSure(true);
    setFault(null);
    try {
      await act();
      setSure(false);
    } catch (error) {
      setFault(error);
      setSure(false);
    }
  };
  return (
    <>
      <Fault of={fault} />
      <div class="row">
        <button type="button" class={isSure ? 'no' : ''} onClick={() => void press()}>
          {isSure ? sure : label}
        </button>
      </div>
    </>
  );
}

/** A list to choose one of. A value that is not in it, as an address may have, stands there as it is. */
export function Choice({
  name,
  value,
  choose,
  of: choices,
}: {
  readonly name: string;
  readonly value: string;
  readonly choose: (value: string) => void;
  readonly of: readonly (readonly [value: string, name: string, ...others: unknown[]])[];
}): JSX.Element {
  const isOther = value !== '' && choices.every(([one]) => one !== value);
  return (
    <label>
      <span>{name}</span>
      <select value={value} onChange={({ currentTarget }) => choose(currentTarget.value)}>
        {isOther && <option value={value}>{value}</option>}
        {choices.map(([one, label]) => (
          <option key={one} value={one}>
            {label}
          </option>
        ))}
      </select>
    </label>
  );
}

/** What the screen shows, for a terminal: the same operation of the API, and the same command. */
export function Copies({ curl, cli }: { readonly curl: string; readonly cli: string }): JSX.Element {
  return (
    <details>
      <summary>As curl and svc</summary>
      <div class="copies">
        <Copy name="curl" text={curl} />
        <Copy name="svc" text={cli} />
      </div>
    </details>
  );
}

export function Copy({ name, text }: { readonly name: string; readonly text: string }): JSX.Element {
  return (
    <div>
      <code tabIndex={0}>{text}</code>
      <CopyButton name={name} text={text} />
    </div>
  );
}

export function CopyButton({ name, text }: { readonly name: string; readonly text: string }): JSX.Element {
  const [isCopied, setCopied] = useState(false);
  const copy = async (): Promise<void> => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 2_000);
  };
  return (
    <button type="button" onClick={() => void copy()} aria-label={`Copy ${name}`}>
      {isCopied ? 'Copied' : 'Copy'}
    </button>
  );
}

/** A curl line for an operation of the API. The key is never in it. */
export function curlOf(method: string, path: string, body?: unknown): string {
  const data = body === undefined ? '' : ` -H 'Content-Type: application/json' -d ${quoted(JSON.stringify(body))}`;
  const how = method === 'GET' ? '' : ` -X ${method}`;
  return `curl -sS${how} -H "X-API-Key: $SVC_API_KEY"${data} ${quoted(location.origin + path)}`;
}

/** A word as a shell takes it. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** Parts of a whole, as a bar. It says nothing that does not stand beside it. */
export function Bar({
  parts,
}: {
  readonly parts: readonly { readonly share: number; readonly tone: string }[];
}): JSX.Element {
  let from = 0;
  return (
    <div class="bar" aria-hidden="true">
      <svg viewBox="0 0 100 10" preserveAspectRatio="none">
        {parts.map(({ share, tone }) => {
          const width = Math.max(0, Math.min(100 - from, share * 100));
          const at = from;
          from += width;
          return <rect key={tone} class={`fill-${tone}`} x={at} y={0} width={width} height={10} />;
        })}
      </svg>
    </div>
  );
}

/** Shows the time as it goes on, once a second. */
export function useNow(everyMs = 1_000): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}
