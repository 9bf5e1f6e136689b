import { useQuery } from '@tanstack/preact-query';
import { type ChangeObject, diffLines } from 'diff';
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { ask } from '../api.ts';
import { visible } from '../format.tsx';
import { Copies, curlOf, Fault } from '../parts.tsx';

interface VersionText {
  readonly version: string;
  readonly proven: boolean;
  readonly files: readonly {
    readonly file: string;
    readonly text: string;
    readonly lists: readonly { readonly name: string; readonly text: string | null }[];
  }[];
}

/** Lines around a difference that are shown with it. */
const AROUND = 3;
/** How long a comparison may take, ms. Texts that differ in everything would hold the page. */
const MOST_MS = 200;

/** What the policies of a version say, file by file, and what of it is not as in those that were in force before. */
export function PolicyText({
  version,
  before,
}: {
  readonly version: string;
  readonly before: string | null;
}): JSX.Element {
  const [isOpen, setOpen] = useState(false);
  return (
    <details class="wide" onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>{before === null ? 'What they say' : 'What they say, and what differs from those before'}</summary>
      {isOpen && <PolicyTexts version={version} before={before} />}
    </details>
  );
}

/** The same, opened. */
export function PolicyTexts({
  version,
  before,
}: {
  readonly version: string;
  readonly before: string | null;
}): JSX.Element {
  const [isWhole, setWhole] = useState(before === null);
  const now = useVersion(version);
  const then = useVersion(before);
  if (now.data === undefined) return now.isError ? <Fault of={now.error} /> : <p role="status">Loading…</p>;
  if (before !== null && then.isPending) return <p role="status">Loading…</p>;
  const old = then.data === undefined ? null : textsOf(then.data);
  const texts = textsOf(now.data);
  const names = [...new Set([...texts.keys(), ...(old?.keys() ?? [])])].toSorted();
  const differing = old === null ? names : names.filter((name) => old.get(name) !== texts.get(name));
  const path = pathOf(version);
  return (
    <div class="stack">
      {!now.data.proven && (
        <p class="banner">This text could not be held against the version: the configuration of then was another.</p>
      )}
      {before !== null && old === null && (
        <p class="faint">What stood there before is not kept any more: the oldest go first.</p>
      )}
      {old !== null && differing.length === 0 && (
        <p class="faint">The files say the same; what they are compiled with differs.</p>
      )}
      {old !== null && (
        <label class="check">
          <input type="checkbox" checked={isWhole} onChange={({ currentTarget }) => setWhole(currentTarget.checked)} />
          The whole text
        </label>
      )}
      {(isWhole ? names : differing).map((name) => (
        <section key={name} aria-label={name}>
          <h3 class="mono">
            {visible(name)}
            {old !== null && !old.has(name) && <span class="faint"> is new</span>}
            {old !== null && !texts.has(name) && <span class="faint"> is gone</span>}
          </h3>
          <Lines before={old === null ? null : (old.get(name) ?? '')} after={texts.get(name) ?? ''} isWhole={isWhole} />
        </section>
      ))}
      <Copies curl={curlOf('GET', path)} cli={`svc policy show ${version}`} />
    </div>
  );
}

function Lines({
  before,
  after,
  isWhole,
}: {
  readonly before: string | null;
  readonly after: string;
  readonly isWhole: boolean;
}): JSX.Element {
  const parts = before === null ? undefined : diffLines(before, after, { timeout: MOST_MS });
  return (
    <pre class="lines" tabIndex={0}>
      {(parts ?? [{ value: after, added: false, removed: false, count: 0 }]).map((part, index, all) => {
        const lines = part.value.replace(/\n$/, '').split('\n');
        if (part.added) return <ins key={index}>{marked('+', lines)}</ins>;
        if (part.removed) return <del key={index}>{marked('-', lines)}</del>;
        const shown = isWhole || parts === undefined ? lines : shortened(lines, index, all);
        return <span key={index}>{marked(' ', shown)}</span>;
      })}
    </pre>
  );
}

/** Of lines that are the same, those next to a difference. */
function shortened(lines: readonly string[], index: number, all: readonly ChangeObject<string>[]): readonly string[] {
  const head = index === 0 ? 0 : AROUND;
  const tail = index === all.length - 1 ? 0 : AROUND;
  const left = lines.length - head - tail;
  if (left <= 1) return lines;
  return [...lines.slice(0, head), `… ${left} lines are the same`, ...lines.slice(lines.length - tail)];
}

function marked(mark: string, lines: readonly string[]): string {
  return lines.map((line) => `${mark} ${visible(line)}\n`).join('');
}

/** The texts of a version by the names of their files; a list that a file includes stands under both names. */
function textsOf({ files }: VersionText): ReadonlyMap<string, string> {
  return new Map(
    files.flatMap(({ file, text, lists }) => [
      [file, text] as const,
      ...lists.map((list) => [`${file}, ${list.name}`, list.text ?? 'It could not be read.'] as const),
    ]),
  );
}

function useVersion(version: string | null) {
  return useQuery({
    queryKey: ['policy-version', version],
    queryFn: () => ask<VersionText>('GET', pathOf(version ?? '')),
    enabled: version !== null,
    staleTime: Number.POSITIVE_INFINITY,
    retry: false,
  });
}

const pathOf = (version: string): string => `/v1/beta/policies/versions/${encodeURIComponent(version)}`;
