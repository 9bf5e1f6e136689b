import { throttledBy } from '../../effects/steps/refusal.ts';
import type { Admission, AdmitRequest } from '../../effects/store.ts';
import { passingMap } from '../passing-map.ts';

/** What an admission came to, and whether it wrote anything. */
export interface Answered {
  readonly admission: Admission;
  readonly written: boolean;
}

interface Waiting {
  readonly request: AdmitRequest;
  resolve(admission: Admission): void;
  reject(error: unknown): void;
}

/**
 * Puts the admissions of one key in a row. When one finds the key bound and writes nothing, its answer is also that of
 * all that asked the same before it was sent: ten thousand duplicates at once cost the store a handful of questions.
 * @param ask sends one admission
 * @param shared told of each request that took another's answer
 */
export function createKeyQueues(
  ask: (request: AdmitRequest) => Promise<Answered>,
  shared: (request: AdmitRequest, admission: Admission) => void,
): (request: AdmitRequest) => Promise<Admission> {
  const queues = passingMap<string, Waiting[]>();

  async function drain(name: string, queue: Waiting[]): Promise<void> {
    for (let head = queue.shift(); head !== undefined; head = queue.shift()) {
      const before = queue.length;
      try {
        const { admission, written } = await ask(head.request);
        head.resolve(admission);
        if (written || admission.kind !== 'existing') continue;
        const { request } = head;
        const alike = queue.slice(0, before).filter((other) => asksTheSame(other.request, request));
        const taken = new Set(alike);
        const left = queue.filter((other) => !taken.has(other));
        queue.splice(0, queue.length, ...left);
        for (const other of alike) {
          shared(other.request, admission);
          other.resolve(admission);
        }
      } catch (error) {
        head.reject(error);
      }
    }
    queues.delete(name);
  }

  return (request) =>
    new Promise((resolve, reject) => {
      // Refusals of one API key go in a row too: the later ones know how many were written.
      const name = `${request.workspace}\n${throttledBy(request)}`;
      const queue = queues.get(name);
      const waiting = { request, resolve, reject };
      if (queue !== undefined) {
        queue.push(waiting);
        return;
      }
      const made: Waiting[] = [waiting];
      queues.set(name, made);
      void drain(name, made);
    });
}

/** Whether the answer "the key is bound" to one is the answer to the other: all that it depends on is the same. */
function asksTheSame(one: AdmitRequest, other: AdmitRequest): boolean {
  return (
    one.fingerprint === other.fingerprint &&
    one.actor.keyId === other.actor.keyId &&
    one.actor.agentId === other.actor.agentId &&
    one.verdict.kind === 'permit' &&
    other.verdict.kind === 'permit' &&
    one.pausedBy === null &&
    other.pausedBy === null &&
    one.seen.policy === other.seen.policy &&
    one.seen.pauses === other.seen.pauses &&
    one.action.toolDigest === other.action.toolDigest &&
    one.times.idempotentForMs === other.times.idempotentForMs &&
    one.nonce !== other.nonce
  );
}
