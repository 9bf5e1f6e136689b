import type { AdmitRequest } from '../store.ts';
import type { Binding, StepView } from './plan.ts';

/*
 * A call that brings no idempotency key gets a derived one: it names the action. Nobody chose it, so it cannot hold for
 * ever: the same action may be meant again. A generation is one time that it was meant, and an effect of its own, with a
 * key of its own: the derived key and a number. The derived key is bound to the last generation.
 */

/**
 * Joins the last generation while it waits, runs, or has an unknown outcome, at any age, and for a time after it was
 * settled. A read that runs is not joined: reading twice at once harms nobody, and both want an answer.
 * @param windowMs how long after it was settled
 */
export function generationOf(
  view: Pick<StepView, 'now' | 'binding'>,
  request: Pick<AdmitRequest, 'workspace' | 'idempotencyKey' | 'action'>,
  windowMs: number,
): { readonly kind: 'joins'; readonly binding: Binding } | { readonly kind: 'begins'; readonly key: string } {
  const { workspace, idempotencyKey } = request;
  const binding = view.binding(workspace, idempotencyKey);
  if (binding === null) return { kind: 'begins', key: `${idempotencyKey}.1` };
  const settledAt = settledTime(binding);
  const isOpen = settledAt === null || view.now < settledAt + windowMs;
  const isRunningRead =
    request.action.kind === 'read' && binding.kind === 'effect' && binding.effect.life.state === 'executing';
  if (isOpen && !isRunningRead) return { kind: 'joins', binding };
  const last = binding.kind === 'effect' ? binding.effect.idempotencyKey : binding.tombstone.idempotencyKey;
  return { kind: 'begins', key: `${idempotencyKey}.${generationNumber(last) + 1}` };
}

/** When an effect was settled; `null` while it is not. */
function settledTime(binding: Binding): number | null {
  if (binding.kind === 'tombstone') return binding.tombstone.at;
  const { life } = binding.effect;
  switch (life.state) {
    case 'pending_approval':
    case 'executing':
    case 'unknown':
      return null;
    case 'committed':
    case 'failed':
    case 'rejected':
      return life.at;
    // Nothing was sent, and nothing is bound: the call is judged anew.
    case 'denied':
      return -Infinity;
  }
}

/** The number of a generation, in its key; 0: the key is none. */
export function generationNumber(key: string): number {
  return Number(/\.(\d+)$/.exec(key)?.[1] ?? 0);
}

/** The derived key of which a key is a generation; `null` if it is none. */
export function derivedKeyOf(key: string): string | null {
  return key.startsWith(DERIVED) ? (/^(.+)\.\d+$/.exec(key)?.[1] ?? null) : null;
}

/** How derived keys that have generations begin. Keys that a caller sends never count as generations of another. */
export const DERIVED = 'meant:';
