import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { EffectRecord, Evidence, Fence, Lease, Life } from '../../src/effects/model/effect.ts';
import { advance, begin, type FreshEffect, type LifeEvent, MAX_ATTEMPTS } from '../../src/effects/steps/lifecycle.ts';

const evidence: Evidence = {
  code: 'http_status',
  message: 'seen',
  answered: { kind: 'http', status: 200 },
  startedAt: 1,
  endedAt: 2,
};
const receipt = { id: 'rcp_1', jws: 'a.b.c' };

const fresh: FreshEffect = {
  id: 'eff_1',
  workspace: 'w',
  idempotencyKey: 'k',
  fingerprint: 'f',
  action: { type: 'mcp.tool_call', tool: 't', toolDigest: 'd', upstream: 'u', kind: 'write', target: 't' },
  actor: {
    agentId: 'a',
    agentOwner: null,
    keyId: 'key_1',
    keyKind: 'agent',
    user: null,
    keyMadeBy: null,
    via: 'effects_api',
  },
  createdAt: 0,
  attempt: 0,
  unsent: 0,
  generation: 1,
  firstDispatchAt: null,
  mayHaveHappened: false,
  closed: false,
  holds: [],
  holdState: 'none',
  claims: [],
  uses: [],
  trace: { policyVersion: 'v', matched: [], shadow: [], observed: null },
  stages: [],
  metadata: null,
  sealed: null,
};

function lease(n: number, at = 0): Lease {
  return {
    fence: { epoch: 1, n, nonce: `n${n}` },
    owner: 'boot',
    admittedAt: at,
    dispatchBy: at + 2000,
    leaseEnd: at + 14_000,
    quiesceUntil: at + 74_000,
  };
}

function fence(n: number): Fence {
  return lease(n).fence;
}

function settle(
  n: number,
  outcome: 'committed' | 'failed' | 'unknown' | 'denied',
  at = 100,
  seen = evidence,
  of = fence(n),
): LifeEvent {
  const outcomes = {
    committed: { kind: 'committed', receipt, result: null, accepted: false, responseTruncated: false },
    failed: { kind: 'failed', result: null },
    unknown: { kind: 'unknown' },
    denied: {
      kind: 'denied',
      decision: 'denied_claim',
      reason: { code: 'state_drift', message: 'drift' },
      mismatches: [],
    },
  } as const;
  return {
    kind: 'settle',
    at,
    fence: of,
    outcome: outcomes[outcome],
    settledBy: { by: 'owner' },
    evidence: seen,
  };
}

function resolve(n: number, outcome: 'happened' | 'not_happened', at: number, force = false): LifeEvent {
  return {
    kind: 'resolve',
    at,
    fence: fence(n),
    outcome: outcome === 'happened' ? { kind: 'happened', receipt } : { kind: 'not_happened' },
    settledBy: { by: 'resolve', keyId: 'key_2', user: 'maria', forced: force, comment: null, evidence: null },
    evidence,
    force,
  };
}

function giveUp(at: number): LifeEvent {
  return {
    kind: 'give_up',
    at,
    decision: 'denied_permission',
    reason: { code: 'key_ended', message: 'The key was revoked.' },
  };
}

function play(...events: LifeEvent[]): EffectRecord {
  return events.reduce<EffectRecord>(
    (effect, event) => {
      const step = advance(effect, event);
      return step.kind === 'next' ? step.effect : effect;
    },
    begin(fresh, { kind: 'admit', lease: lease(1) }),
  );
}

function why(effect: EffectRecord, event: LifeEvent): string {
  const step = advance(effect, event);
  return step.kind === 'refused' ? step.why : `next:${step.effect.life.state}`;
}

describe('the state table', () => {
  const executing = play();
  const unknown = play(settle(1, 'unknown'));
  const failed = play(settle(1, 'failed'));
  const committed = play(settle(1, 'committed'));
  const pending = begin(fresh, { kind: 'ask', approvalId: 'apr_1' });

  it.each([
    ['executing → committed by its owner', executing, settle(1, 'committed'), 'next:committed'],
    ['executing → failed by its owner', executing, settle(1, 'failed'), 'next:failed'],
    ['executing → unknown by its owner', executing, settle(1, 'unknown'), 'next:unknown'],
    ['executing → denied by its owner before the first byte', executing, settle(1, 'denied'), 'next:denied'],
    ['executing: nobody else settles it', executing, settle(2, 'committed'), 'fenced_off'],
    [
      'executing: the lease is alive until its end',
      executing,
      { kind: 'lose', at: 13_999, ownerDead: false },
      'lease_alive',
    ],
    [
      'executing → unknown when the lease is over',
      executing,
      { kind: 'lose', at: 14_000, ownerDead: false },
      'next:unknown',
    ],
    [
      'executing → unknown at once when the owner is dead',
      executing,
      { kind: 'lose', at: 1, ownerDead: true },
      'next:unknown',
    ],
    [
      'executing: a lease never gives permission to send again',
      executing,
      { kind: 'admit', lease: lease(2) },
      'not_allowed',
    ],
    ['unknown → committed by a late answer of the owner', unknown, settle(1, 'committed'), 'next:committed'],
    ['unknown → failed by a late answer of the owner', unknown, settle(1, 'failed'), 'next:failed'],
    ['unknown: not_happened is too early before it is quiet', unknown, resolve(1, 'not_happened', 73_999), 'too_early'],
    ['unknown → failed once it is quiet', unknown, resolve(1, 'not_happened', 74_000), 'next:failed'],
    ['unknown → failed by force', unknown, resolve(1, 'not_happened', 1, true), 'next:failed'],
    ['unknown → committed at any time', unknown, resolve(1, 'happened', 1), 'next:committed'],
    ['unknown: a resolution of another attempt is refused', unknown, resolve(2, 'happened', 1), 'fenced_off'],
    ['unknown → executing repeats', unknown, { kind: 'admit', lease: lease(2) }, 'next:executing'],
    ['failed → executing', failed, { kind: 'admit', lease: lease(2) }, 'next:executing'],
    ['failed → pending_approval', failed, { kind: 'ask', approvalId: 'apr_2' }, 'next:pending_approval'],
    ['failed → committed by late evidence', failed, settle(1, 'committed'), 'next:committed'],
    ['failed: resolve has nothing to say', failed, resolve(1, 'happened', 1), 'not_allowed'],
    ['committed is final', committed, settle(1, 'failed'), 'unchanged'],
    ['committed: no further attempt', committed, { kind: 'admit', lease: lease(2) }, 'not_allowed'],
    ['committed: no resolution', committed, resolve(1, 'not_happened', 1e9), 'not_allowed'],
    ['pending_approval → executing', pending, { kind: 'admit', lease: lease(1) }, 'next:executing'],
    [
      'pending_approval → pending_approval (a new generation)',
      pending,
      { kind: 'ask', approvalId: 'apr_2' },
      'next:pending_approval',
    ],
    ['pending_approval → rejected', pending, { kind: 'reject', at: 1, until: 2 }, 'next:rejected'],
    ['pending_approval → denied by expiry', pending, { kind: 'expire', at: 1, granted: false }, 'next:denied'],
    ['pending_approval → denied where it cannot be sent any more', pending, giveUp(1), 'next:denied'],
    ['executing: nothing is given up', executing, giveUp(1), 'not_allowed'],
    ['committed: nothing is given up', committed, giveUp(1), 'not_allowed'],
    ['pending_approval: an attempt has to be the next one', pending, { kind: 'admit', lease: lease(2) }, 'not_allowed'],
  ] as const)('%s', (_name, effect, event, expected) => {
    expect(why(effect, event)).toBe(expected);
  });

  it.each([{ nonce: 'another' }, { epoch: 2 }, { n: 2 }])(
    'an attempt with another fence settles nothing: %j',
    (other) => {
      const foreign = { ...fence(1), ...other };
      for (const effect of [executing, unknown])
        expect(why(effect, settle(1, 'committed', 100, evidence, foreign))).toBe('fenced_off');
    },
  );

  it('late evidence against a failure that was acted on is a contradiction', () => {
    const second = play(settle(1, 'failed'), { kind: 'admit', lease: lease(2) });
    expect(why(second, settle(1, 'committed'))).toBe('contradiction');
    const secondFailed = play(settle(1, 'failed'), { kind: 'admit', lease: lease(2) }, settle(2, 'failed'));
    expect(why(secondFailed, settle(1, 'committed'))).toBe('contradiction');
  });

  it('late evidence of an attempt that was repeated while its outcome was unknown contradicts nothing', () => {
    const second = play(settle(1, 'unknown'), { kind: 'admit', lease: lease(2) });
    expect(why(second, settle(1, 'committed'))).toBe('fenced_off');
  });

  it('certainty never falls: a failure after an unknown attempt stays unknown', () => {
    expect(play(settle(1, 'unknown'), { kind: 'admit', lease: lease(2) }, settle(2, 'failed')).life.state).toBe(
      'unknown',
    );
    expect(play(settle(1, 'unknown'), { kind: 'admit', lease: lease(2) }, settle(2, 'denied')).life.state).toBe(
      'unknown',
    );
    expect(play(settle(1, 'unknown'), { kind: 'admit', lease: lease(2) }, settle(2, 'committed')).life.state).toBe(
      'committed',
    );
  });

  it('the upstream’s key changes only after an attempt that is known not to have happened', () => {
    expect(play(settle(1, 'unknown'), { kind: 'admit', lease: lease(2) }).generation).toBe(1);
    const waiting = begin(fresh, { kind: 'ask', approvalId: 'apr_1' });
    const approved = advance(waiting, { kind: 'admit', lease: lease(1) });
    expect(approved).toMatchObject({ kind: 'next', effect: { attempt: 1, generation: 1 } });
    expect(play(settle(1, 'failed'), { kind: 'admit', lease: lease(2) }).generation).toBe(2);
    expect(
      play(settle(1, 'unknown'), resolve(1, 'not_happened', 1e6), { kind: 'admit', lease: lease(2) }).generation,
    ).toBe(2);
  });

  it('a denial before the first byte leaves an effect that failed before as failed', () => {
    expect(play(settle(1, 'failed'), { kind: 'admit', lease: lease(2) }, settle(2, 'denied')).life.state).toBe(
      'failed',
    );
  });
});

describe('what an attempt leaves behind', () => {
  const NOT_SENT: Evidence = { ...evidence, code: 'not_dispatched' };
  const next = (n: number): LifeEvent => ({ kind: 'admit', lease: lease(n) });
  const attempts = (count: number, seen: Evidence): EffectRecord =>
    play(
      ...Array.from({ length: count }, (_, index) => index + 1).flatMap((n) => [
        settle(n, 'failed', 100, seen),
        ...(n < count ? [next(n + 1)] : []),
      ]),
    );

  it('as many attempts as may be, and none more; those that sent nothing do not count', () => {
    const last = attempts(MAX_ATTEMPTS, evidence);
    expect(last).toMatchObject({ attempt: MAX_ATTEMPTS, unsent: 0, life: { state: 'failed' } });
    expect(why(last, next(MAX_ATTEMPTS + 1))).toBe('not_allowed');
    expect(why(attempts(MAX_ATTEMPTS - 1, evidence), next(MAX_ATTEMPTS))).toBe('next:executing');
    const unsent = attempts(2 * MAX_ATTEMPTS, NOT_SENT);
    expect(unsent.unsent).toBe(2 * MAX_ATTEMPTS);
    expect(why(unsent, next(2 * MAX_ATTEMPTS + 1))).toBe('next:executing');
  });

  it('an attempt that sent nothing is counted once, also where its settlement comes a second time', () => {
    const again = play(settle(1, 'unknown'), next(2), settle(2, 'failed', 100, NOT_SENT));
    expect(again).toMatchObject({ unsent: 1, life: { state: 'unknown' } });
    const twice = advance(again, settle(2, 'failed', 200, NOT_SENT));
    expect(twice.kind === 'next' ? twice.effect.unsent : again.unsent).toBe(1);
  });

  it('a key with evidence against its record takes no attempt and asks nobody', () => {
    const closed = { ...attempts(1, evidence), closed: true };
    expect(why(closed, next(2))).toBe('not_allowed');
    expect(why(closed, { kind: 'ask', approvalId: 'apr_2' })).toBe('not_allowed');
  });

  it('that nothing happened is certain from then on: the next attempt may fail again', () => {
    const resolved = play(settle(1, 'unknown'), next(2), settle(2, 'failed'), resolve(2, 'not_happened', 1e6));
    expect(resolved).toMatchObject({ mayHaveHappened: false, life: { state: 'failed' } });
    const third = advance(resolved, next(3));
    expect(third.kind === 'next' ? why(third.effect, settle(3, 'failed')) : third.why).toBe('next:failed');
  });

  it.each([
    ['waits for approval', { kind: 'ask', approvalId: 'apr_2' } as const, null],
    ['was rejected', { kind: 'ask', approvalId: 'apr_2' } as const, { kind: 'reject', at: 1, until: 2 } as const],
    ['expired', { kind: 'ask', approvalId: 'apr_2' } as const, { kind: 'expire', at: 1, granted: false } as const],
  ])('an answer that says it happened contradicts a record that %s since', (_name, asked, ended) => {
    const later = play(settle(1, 'failed'), asked, ...(ended === null ? [] : [ended]));
    expect(why(later, settle(1, 'committed'))).toBe('contradiction');
    expect(why(later, settle(1, 'failed'))).toBe('fenced_off');
  });
});

describe('any sequence of events', () => {
  const attempt = fc.integer({ min: 1, max: 4 });
  const time = fc.integer({ min: 0, max: 100_000 });
  const event: fc.Arbitrary<LifeEvent> = fc.oneof(
    attempt.map((n): LifeEvent => ({ kind: 'admit', lease: lease(n) })),
    fc
      .tuple(attempt, fc.constantFrom('committed', 'failed', 'unknown', 'denied'), time, fc.boolean())
      .map(([n, outcome, at, sent]) =>
        settle(n, outcome, at, { ...evidence, code: sent ? 'http_status' : 'not_dispatched' }),
      ),
    fc
      .tuple(attempt, fc.constantFrom('happened', 'not_happened'), time, fc.boolean())
      .map(([n, outcome, at, force]) => resolve(n, outcome, at, force)),
    fc.tuple(time, fc.boolean()).map(([at, ownerDead]): LifeEvent => ({ kind: 'lose', at, ownerDead })),
    fc.constant<LifeEvent>({ kind: 'ask', approvalId: 'apr_9' }),
    time.map((at): LifeEvent => ({ kind: 'reject', at, until: at + 1 })),
    fc.tuple(time, fc.boolean()).map(([at, granted]): LifeEvent => ({ kind: 'expire', at, granted })),
    time.map(giveUp),
  );

  it('never leaves committed, never exceeds the attempts, never calls an open unknown a failure', () => {
    fc.assert(
      fc.property(fc.array(event, { maxLength: 40 }), (events) => {
        let effect = begin(fresh, { kind: 'admit', lease: lease(1) });
        let openUnknown = false;
        for (const one of events) {
          const before: Life = effect.life;
          const step = advance(effect, one);
          if (step.kind === 'refused') continue;
          effect = step.effect;
          expect(before.state).not.toBe('committed');
          expect(effect.attempt - effect.unsent).toBeLessThanOrEqual(MAX_ATTEMPTS);
          // Each attempt is counted once, and only when it is over.
          expect(effect.unsent).toBeLessThanOrEqual(effect.attempt - (effect.life.state === 'executing' ? 1 : 0));
          if (one.kind === 'admit' && before.state === 'unknown') openUnknown = true;
          if (one.kind === 'resolve') openUnknown = false;
          if (openUnknown && one.kind === 'settle') expect(effect.life.state).not.toBe('failed');
        }
      }),
    );
  });
});
