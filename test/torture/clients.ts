import { setTimeout as pause } from 'node:timers/promises';
import type { LedgerUpstream } from '../upstream/start.ts';
import type { Rig } from './rigs.ts';
import { type Op, pathOf } from './workload.ts';

/** An answer with a decision that a client saw. */
export interface Seen {
  readonly decision: string;
  readonly effectId: string;
  readonly attempt: number;
  /** The signed receipt, byte for byte. */
  readonly receipt: string | null;
}

/** The clients of a run: they send, send again, send twice at once, and ask a person about what nobody knows. */
export interface Clients {
  /** Sends an operation until its answer is final. */
  serve(op: Op): Promise<void>;
  /** Waits for the people who still look into unknown outcomes. */
  settled(): Promise<void>;
  readonly seen: ReadonlyMap<string, readonly Seen[]>;
  requests(): number;
  /** Answers that no gateway should give: 500, or none of the interface's. */
  faults(): readonly string[];
  /** Keys of unknown outcomes that a person settled meanwhile. */
  readonly resolved: ReadonlySet<string>;
}

/** The longest that a client goes on asking, ms. */
const PATIENCE_MS = 90_000;

/** Waits between a client's tries, ms. */
const PAUSE_FIRST_MS = 40;
const PAUSE_MOST_MS = 300;

/** How often a person looks again, and how often an operation comes back to one. */
const CHECK_MS = 400;
const MOST_ROUNDS = 4;

/** A library leaves keys in progress for ever: asking on is of no use. */
const TRIES_WITHOUT_RECORDS = 40;

export function createClients(rig: Rig, upstream: LedgerUpstream, random: () => number): Clients {
  const seen = new Map<string, Seen[]>();
  const people = new Set<Promise<void>>();
  const faults: string[] = [];
  const resolved = new Set<string>();
  let requests = 0;

  async function ask(op: Op): Promise<Seen | null> {
    requests += 1;
    try {
      const response = await fetch(`${rig.url(random)}/v1/workspaces/demo/effects`, {
        method: 'POST',
        headers: { 'x-api-key': rig.agentKeys[op.agent], 'content-type': 'application/json' },
        body: JSON.stringify({
          tool: 'ledger.book',
          params: { op: op.key, amount: op.amount },
          idempotency_key: op.key,
        }),
        signal: AbortSignal.timeout(20_000),
      });
      const text = await response.text();
      const answer = seenIn(text);
      if (answer === null && response.status !== 503) faults.push(`${response.status} ${text.slice(0, 300)}`);
      return answer;
    } catch {
      // The gateway died, or is frozen.
      return null;
    }
  }

  async function asked(op: Op, first: boolean): Promise<Seen | null> {
    const answers = seen.get(op.key) ?? [];
    seen.set(op.key, answers);
    const deadline = performance.now() + PATIENCE_MS;
    let wait = PAUSE_FIRST_MS;
    let failures = 0;
    for (let tries = 0; performance.now() < deadline; tries += 1) {
      const times = first && tries === 0 ? 1 + op.duplicates : 1;
      const burst = await Promise.all(Array.from({ length: times }, () => ask(op)));
      const told = burst.filter((answer) => answer !== null);
      answers.push(...told);
      const [last] = told;
      if (last?.decision === 'failed') failures += 1;
      if (last !== undefined && isFinal(op, last.decision, failures)) return last;
      if (rig.accountKey === null && tries >= TRIES_WITHOUT_RECORDS) return null;
      await pause(wait);
      wait = Math.min(wait * 1.3, PAUSE_MOST_MS);
    }
    return null;
  }

  /** Whether the upstream has done it, as a person sees who looks there now. */
  async function happened(op: Op): Promise<boolean> {
    for (;;) {
      try {
        const response = await fetch(`${upstream.url}${pathOf(op)}`);
        const body: unknown = response.status === 200 ? await response.json() : null;
        if (typeof body === 'object' && body !== null && 'effects' in body) return Number(body.effects) > 0;
      } catch {
        // It misbehaves towards people as well.
      }
      await pause(PAUSE_FIRST_MS);
    }
  }

  /** @returns `null` when it is settled; else the outcome that was taken */
  async function resolve(op: Op, effectId: string, accountKey: string): Promise<'happened' | 'not_happened' | null> {
    const deadline = performance.now() + PATIENCE_MS;
    while (performance.now() < deadline) {
      const outcome = (await happened(op)) ? 'happened' : 'not_happened';
      const response = await fetch(`${rig.url(random)}/v1/workspaces/demo/effects/${effectId}/resolve`, {
        method: 'POST',
        headers: { 'x-api-key': accountKey, 'content-type': 'application/json' },
        body: JSON.stringify({ outcome }),
        signal: AbortSignal.timeout(20_000),
      }).catch(() => null);
      const text = await response?.text().catch(() => '');
      if (response?.status === 200) return outcome;
      const isEarly = text?.includes('"too_early"') === true;
      if (response?.status === 409 && !isEarly) return null;
      if (response !== null && response.status !== 503 && !isEarly)
        faults.push(`resolve: ${response.status} ${text?.slice(0, 300)}`);
      await pause(CHECK_MS);
    }
    return null;
  }

  async function lookInto(op: Op, effectId: string, accountKey: string, round: number): Promise<void> {
    const outcome = await resolve(op, effectId, accountKey);
    if (outcome !== null) resolved.add(op.key);
    const next = await asked(op, false);
    if (next?.decision === 'unknown_effect' && round < MOST_ROUNDS)
      await lookInto(op, next.effectId, accountKey, round + 1);
  }

  return {
    async serve(op) {
      const last = await asked(op, true);
      const { accountKey } = rig;
      if (last?.decision !== 'unknown_effect' || !op.resolves || accountKey === null) return;
      const looking = lookInto(op, last.effectId, accountKey, 1).finally(() => people.delete(looking));
      people.add(looking);
    },
    async settled() {
      await Promise.all(people);
    },
    seen,
    requests: () => requests,
    faults: () => faults,
    resolved,
  };
}

function seenIn(text: string): Seen | null {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof body !== 'object' || body === null || !('decision' in body) || !('effect_id' in body)) return null;
  const receipt = 'receipt' in body && typeof body.receipt === 'object' ? body.receipt : null;
  return {
    decision: String(body.decision),
    effectId: String(body.effect_id),
    attempt: 'attempt' in body ? Number(body.attempt) : 0,
    receipt: receipt !== null && 'jws' in receipt ? String(receipt.jws) : null,
  };
}

function isFinal(op: Op, decision: string, failures: number): boolean {
  switch (decision) {
    case 'committed':
    case 'duplicate_blocked':
    case 'unknown_effect':
    case 'denied_budget':
    case 'denied_policy':
      return true;
    case 'failed':
      return !op.retriesFailed || failures > 8;
    default:
      return false;
  }
}
