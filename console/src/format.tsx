import type { JSX } from 'preact';
import type { Effect, Json } from './api.ts';

type Tone = 'yes' | 'wait' | 'stop' | 'bad' | 'plain';

/** What people call each decision, and what its colour says. */
export const DECISIONS: Readonly<Record<string, { readonly name: string; readonly tone: Tone }>> = {
  committed: { name: 'Happened', tone: 'yes' },
  duplicate_blocked: { name: 'Duplicate', tone: 'plain' },
  in_progress: { name: 'Running', tone: 'wait' },
  pending_approval: { name: 'Waits for approval', tone: 'wait' },
  failed: { name: 'Failed', tone: 'stop' },
  unknown_effect: { name: 'Unknown', tone: 'bad' },
  denied_policy: { name: 'Denied by policy', tone: 'stop' },
  denied_budget: { name: 'Over budget', tone: 'stop' },
  denied_claim: { name: 'Claim in the way', tone: 'stop' },
  denied_reservation: { name: 'No free unit', tone: 'stop' },
  denied_paused: { name: 'Paused', tone: 'stop' },
  denied_permission: { name: 'Key may not', tone: 'stop' },
  denied_identity: { name: 'Agent not known', tone: 'stop' },
  idempotency_conflict: { name: 'Key conflict', tone: 'stop' },
};

/** What people did, or did not, by the state of the effect or its reason: it is no word of policy, though one decision with it. */
const BY_PEOPLE: Readonly<Record<string, string>> = { rejected: 'Rejected', approval_expired: 'Nobody decided' };

/** The decision of an effect, with what people did apart from what policy denied. */
export const becameOf = ({ state, decision, reason }: Effect): string =>
  [state, reason.code].find((one) => BY_PEOPLE[one] !== undefined) ?? decision;
export const decisionOf = (became: string): string => (BY_PEOPLE[became] === undefined ? became : 'denied_policy');

/** @param of the decision, or what {@link becameOf} makes of it */
export function Mark({ of: became }: { readonly of: string }): JSX.Element {
  const decision = decisionOf(became);
  const { name, tone } = DECISIONS[decision] ?? { name: decision, tone: 'plain' as const };
  return <span class={`mark ${tone}`}>{BY_PEOPLE[became] ?? name}</span>;
}

/** Text of others: never HTML, and what would turn its direction stays within it. */
export function Text({ children, mono = false }: { readonly children: string; readonly mono?: boolean }): JSX.Element {
  return (
    <bdi class={mono ? 'mono' : undefined} title={children.length > 40 ? children : undefined}>
      {visible(children)}
    </bdi>
  );
}

/** So much of a text stands on a screen at once. */
const AT_ONCE = 2_000;

/** A long text begins, and goes on for who asks for the rest. */
export function LongText({ children: text }: { readonly children: string }): JSX.Element {
  const start = text.length <= AT_ONCE ? text : text.slice(0, AT_ONCE).replace(/[\uD800-\uDBFF]$/, '');
  const rest = text.slice(start.length);
  const part = (of: string): JSX.Element => (
    <pre class="text" tabIndex={0}>
      {visible(of)}
    </pre>
  );
  if (rest === '') return part(text);
  return (
    <>
      {part(`${start}…`)}
      <details>
        <summary>Show all: {rest.length.toLocaleString('en')} more characters</summary>
        {part(rest)}
      </details>
    </>
  );
}

/** Characters that nobody can see, and that would change how a text is read, are shown by their code. */
export function visible(text: string): string {
  return text.replaceAll(
    /(?![\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu,
    (hidden) => `\\u${(hidden.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`,
  );
}

const DAY = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric' });
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const SHORT_CLOCK = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' });

/** A time in the reader's zone; the exact one, in UTC, on hover. */
export function Time({ at, short = false }: { readonly at: string; readonly short?: boolean }): JSX.Element {
  const date = new Date(at);
  const isToday = date.toDateString() === new Date().toDateString();
  const clock = (short ? SHORT_CLOCK : CLOCK).format(date);
  return (
    <time dateTime={at} title={at}>
      {isToday ? clock : `${DAY.format(date)}, ${clock}`}
    </time>
  );
}

/** A sentence of the gateway, with its times in the reader's zone. */
export function WithTimes({ children: text }: { readonly children: string }): JSX.Element {
  const parts = text.split(/(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)/);
  // People write what looks like one into reasons.
  const isTime = (part: string, n: number): boolean => n % 2 === 1 && !Number.isNaN(Date.parse(part));
  return <bdi>{parts.map((part, n) => (isTime(part, n) ? <Time key={n} at={part} short /> : visible(part)))}</bdi>;
}

/** How long something took; short times to the millisecond. */
export const lastedText = (ms = 0): string => (ms < 10_000 ? `${ms} ms` : spanText(ms));

/** How long ago, or until when, in words. */
export function spanText(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min`;
  const [hours, minutes] = [Math.floor(seconds / 3_600), Math.floor((seconds % 3_600) / 60)];
  if (hours < 48) return minutes === 0 ? `${hours} h` : `${hours} h ${minutes} min`;
  return `${Math.floor(seconds / 86_400)} days`;
}

/** A value for people: texts as they are, all else as JSON. */
export function valueText(value: Json): string {
  return typeof value === 'string' ? value : JSON.stringify(value, null, 2);
}
