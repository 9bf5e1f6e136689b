import { createHash } from 'node:crypto';

/** What is recorded of a call, in the order in which it is shown. */
export const PARTS = ['request', 'status', 'headers', 'body', 'receipt', 'effect', 'upstream'] as const;

type Part = (typeof PARTS)[number];

/** A call as it is recorded: what varies has names. */
export interface CallRecord {
  /** Of all calls, from 0. */
  readonly number: number;
  /** Which way it came, and what it was to show. */
  readonly title: string;
  /** Status and decision, or code. */
  readonly outcome: string;
  readonly parts: Readonly<Record<Part, string>>;
}

/** One line of the recording. */
export interface Line {
  readonly number: number;
  readonly outcome: string;
  readonly digest: string;
  /** In the order of {@link PARTS}: enough to say which part differs. */
  readonly partDigests: readonly string[];
}

export function lineOf(record: CallRecord): Line {
  return {
    number: record.number,
    outcome: record.outcome,
    digest: digestOf(textOf(record)).slice(0, 16),
    partDigests: PARTS.map((part) => digestOf(record.parts[part]).slice(0, 3)),
  };
}

export function textOf({ number, title, parts }: CallRecord): string {
  const shown = PARTS.filter((part) => parts[part] !== '').map((part) => `-- ${part}\n${parts[part]}\n`);
  return `== call ${number}: ${title}\n${shown.join('')}`;
}

function digestOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
