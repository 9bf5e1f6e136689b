import { expect, it } from 'vitest';
import {
  afterAttempt,
  type Attempted,
  type Delivery,
  isWanted,
  NOTIFICATION_EVENTS,
} from '../../src/effects/model/notification.ts';
import { INSTALLATION } from '../../src/effects/model/ledger.ts';

const HOUR = 3_600_000;
const NOW = 5_000;

const DELIVERY: Delivery = {
  id: 'dlv_1',
  notification: { id: 'msg_1', event: 'pause.set', workspace: 'w', at: 0, effectId: null, data: {} },
  receiver: 'ops',
  receiverName: 'ops',
  attempts: 0,
  lastFailure: 'it answered 500',
  createdAt: 0,
  triedFrom: 0,
  retryForMs: 1_000 * HOUR,
  state: { kind: 'waiting', dueAt: 0 },
};

const after = (attempted: Attempted, change: Partial<Delivery> = {}, random = 0.5): Delivery =>
  afterAttempt({ ...DELIVERY, ...change }, attempted, { retryFirstMs: 1_000 }, NOW, random);

it.each<[what: string, change: Partial<Delivery>, afterMs: number, random: number, waits: number]>([
  ['the first', {}, 0, 0.5, 1_000],
  ['the second', { attempts: 1 }, 0, 0.5, 2_000],
  ['the fourth', { attempts: 3 }, 0, 0.5, 8_000],
  ['a late one: six hours at most', { attempts: 60 }, 0, 0.5, 6 * HOUR],
  ['one at random: up to a quarter sooner', {}, 0, 0, 750],
  ['one at random: up to a quarter later', {}, 0, 1, 1_250],
  ['one whose receiver asks for more', {}, 7_000, 0.5, 7_000],
  ['one whose receiver asks for less', { attempts: 1 }, 500, 0.5, 2_000],
  ['one whose receiver asks for days: six hours', {}, 48 * HOUR, 0.5, 6 * HOUR],
  ['one that ends just in its time', { retryForMs: NOW + 1_000 }, 0, 0.5, 1_000],
  ['one that somebody sent again, whose time begins anew', { triedFrom: 4_000, retryForMs: 2_000 }, 0, 0.5, 1_000],
])('after a failed attempt, %s, it waits', (_, change, afterMs, random, waits) => {
  const failed = after({ kind: 'failed', why: 'it answered 503', afterMs }, change, random);
  expect(failed).toEqual({
    ...DELIVERY,
    ...change,
    attempts: (change.attempts ?? 0) + 1,
    lastFailure: 'it answered 503',
    state: { kind: 'waiting', dueAt: NOW + waits },
  });
});

it.each<[what: string, change: Partial<Delivery>]>([
  ['since it was made', { retryForMs: NOW + 999 }],
  ['since somebody sent it again', { triedFrom: 4_000, retryForMs: 1_999 }],
])('it is given up where the next attempt would come after its time %s', (_, change) => {
  const { state, lastFailure } = after({ kind: 'failed', why: 'it answered 503', afterMs: 0 }, change);
  expect([state, lastFailure]).toEqual([{ kind: 'dead', at: NOW }, 'it answered 503']);
});

it('what was delivered has no failure any more, and what was refused is not tried again', () => {
  expect(after({ kind: 'delivered' })).toEqual({
    ...DELIVERY,
    attempts: 1,
    lastFailure: null,
    state: { kind: 'delivered', at: NOW },
  });
  expect(after({ kind: 'refused', why: 'it answered 410' })).toEqual({
    ...DELIVERY,
    attempts: 1,
    lastFailure: 'it answered 410',
    state: { kind: 'dead', at: NOW },
  });
});

it.each([
  ['all', NOTIFICATION_EVENTS, null, [true, true, true]],
  ['what it names', ['pause.set'] as const, null, [true, true, false]],
  ['a workspace: not of the others, and not of the installation', NOTIFICATION_EVENTS, ['w'], [true, false, false]],
] as const)('a receiver of %s is told of it alone', (_, events, workspaces, told) => {
  const said = [
    { event: 'pause.set', workspace: 'w' },
    { event: 'pause.set', workspace: 'other' },
    { event: 'tool.quarantined', workspace: INSTALLATION },
  ] as const;
  expect(said.map((one) => isWanted({ events, workspaces }, one))).toEqual(told);
});
