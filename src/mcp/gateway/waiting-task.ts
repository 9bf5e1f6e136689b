import type { RunOutcome } from '../../effects/model/outcome.ts';
import type { JsonObject } from '../../json/value.ts';

/** How often a client is to ask, ms. */
const POLL_MS = 5_000;

/** A call that waits for a person, in place of its result. The task is the effect, and has its id. */
export function waitingTask(
  { effectId, approval }: Extract<RunOutcome, { decision: 'pending_approval' }>,
  keptMs: number,
  meta: JsonObject,
): JsonObject {
  const { createdAt } = approval;
  return { resultType: 'task', ...waitingTaskOf(effectId, createdAt, keptMs), _meta: meta };
}

/** An effect as a task. @param ttlMs how long it is kept */
export function taskOf(
  taskId: string,
  status: 'working' | 'completed',
  createdAt: number,
  lastUpdatedAt: number,
  ttlMs: number,
): JsonObject {
  return {
    taskId,
    status,
    createdAt: new Date(createdAt).toISOString(),
    lastUpdatedAt: new Date(lastUpdatedAt).toISOString(),
    ttlMs,
    pollIntervalMs: POLL_MS,
  };
}

/** An effect that waits for a person, as a task. */
export function waitingTaskOf(taskId: string, createdAt: number, ttlMs: number): JsonObject {
  return {
    ...taskOf(taskId, 'working', createdAt, createdAt, ttlMs),
    statusMessage: 'A person has to approve it; nothing has happened yet.',
  };
}
