import type { DeniedDecision, Reason } from '../effects/model/decision.ts';
import type { JsonObject } from '../json/value.ts';
import type { LedgerDraft } from '../effects/model/ledger.ts';
import type { RunResult } from '../effects/model/outcome.ts';
import { StoreUnavailable } from '../effects/store.ts';
import { type Arrived, problemOf } from './arrival.ts';
import type { ProxyPorts } from './ports.ts';

export interface DoorRefusal {
  readonly decision: DeniedDecision;
  readonly reason: Reason;
}

/** Refusals that the door decides alone: calls that no rule declares never reach the core. */
export type Refusals = ReturnType<typeof createRefusals>;

/** How many refusals of one key and code get their own event in a second. The rest becomes one counted event. */
const EVENTS_PER_SECOND = 10;

/** Of what never reached the core. */
const NEVER_RUN = {
  mismatches: [],
  idempotencyKey: '',
  attempt: 0,
  budgets: [],
  observed: null,
  repeat: false,
  retryAfterMs: null,
  next: null,
} as const;

interface Burst {
  readonly workspace: string;
  readonly event: LedgerDraft;
  events: number;
  counted: number;
}

export function createRefusals(ports: Pick<ProxyPorts, 'append' | 'newId'>) {
  let bursts = new Map<string, Burst>();
  let timer: NodeJS.Timeout | null = null;

  const flush = async (): Promise<void> => {
    timer = null;
    const over = bursts;
    bursts = new Map();
    for (const { workspace, event, counted } of over.values()) {
      if (counted === 0) continue;
      const data: JsonObject = { ...event.data, count: counted };
      // A count that cannot be written is lost. Each of these callers was refused anyway.
      await ports.append(workspace, [{ ...event, effectId: null, data }]).catch(() => {});
    }
  };
  const takesEvent = (workspace: string, keyId: string, event: LedgerDraft, code: string): boolean => {
    const key = `${workspace}\n${keyId}\n${code}`;
    let burst = bursts.get(key);
    if (burst === undefined) {
      burst = { workspace, event, events: 0, counted: 0 };
      bursts.set(key, burst);
      timer ??= setTimeout(() => void flush(), 1000).unref();
    }
    if (burst.events < EVENTS_PER_SECOND) {
      burst.events += 1;
      return true;
    }
    burst.counted += 1;
    return false;
  };
  return {
    /** Refuses a request. The refusal gets an effect id and an event. */
    refuse: async (arrived: Arrived, method: string, { decision, reason }: DoorRefusal): Promise<RunResult> => {
      const { match, principal } = arrived;
      const effectId = ports.newId('eff');
      const tool = match.kind === 'rule' ? match.tool.name : '';
      const agentId = agentOf(arrived);
      const { workspace } = arrived;
      const upstream = match.kind === 'none' ? null : match.route.upstream;
      const event: LedgerDraft = {
        kind: 'effect.denied',
        effectId,
        actor: agentId === '' ? { type: 'key', id: principal.keyId } : { type: 'agent', id: agentId },
        data: { decision, code: reason.code, method, path: arrived.path, upstream, tool, key_id: principal.keyId },
      };
      try {
        if (takesEvent(workspace, principal.keyId, event, reason.code)) await ports.append(workspace, [event]);
      } catch (error) {
        if (!(error instanceof StoreUnavailable)) throw error;
        const problem = problemOf('store_unavailable', 'The store cannot be reached, so nothing was sent.');
        return { kind: 'problem', problem: { ...problem, retryAfterMs: 1000 } };
      }
      const target = `${method} ${arrived.path}`;
      return {
        kind: 'outcome',
        outcome: { decision, reason, workspace, effectId, tool, target, agentId, ...NEVER_RUN },
      };
    },
    /** Writes the refusals that were only counted so far. */
    close: async (): Promise<void> => {
      if (timer !== null) clearTimeout(timer);
      await flush();
    },
  };
}

/**
 * The agent that the key is bound to. An agent that is only named in the request was not authorised, so it did not act.
 */
function agentOf({ principal }: Arrived): string {
  if (principal.kind === 'agent') return principal.agentId;
  return (principal.kind === 'profile' ? principal.agentId : null) ?? '';
}
