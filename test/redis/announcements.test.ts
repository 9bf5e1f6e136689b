import { expect, it } from 'vitest';
import type { Fleet } from '../../src/stores/redis/fleet.ts';
import { createAnnouncements } from '../../src/stores/redis/announcements.ts';

/** A store that takes what a gateway announces in it. */
function world() {
  const written: string[] = [];
  const evaluate: Parameters<typeof createAnnouncements>[0]['evaluate'] = async (_name, _workspace, args) => {
    written.push(args.join(' '));
    return ['ok'];
  };
  const never = () => Promise.reject(new Error('nobody asks for it'));
  const fleet: Fleet = {
    attached: () => new Map([['', '1']]),
    detach: () => undefined,
    installId: () => 'inst_1',
    waiting: () => new Map(),
    rolledBack: () => null,
    refused: () => null,
    attach: never,
    recover: never,
    recoverLost: never,
    acceptLoss: never,
    followAcceptance: never,
    noteNeighbours: never,
    leave: never,
  };
  return { written, announcements: createAnnouncements({ evaluate }, fleet, 'one') };
}
const IN_FORCE = { policies: 'v1', configuration: 'c1' };

it('what the store has lost, or has of before, is announced again; what stands there is not', async () => {
  const { written, announcements } = world();
  announcements.announce(IN_FORCE);
  expect(written).toHaveLength(1);
  const there = new Map([['one', JSON.stringify(IN_FORCE)]]);
  await announcements.read(there, ['one']);
  expect(written).toHaveLength(1);
  await announcements.read(new Map(), ['one']);
  await announcements.read(new Map([['one', JSON.stringify({ ...IN_FORCE, policies: 'v0' })]]), ['one']);
  expect(written).toEqual([written[0], written[0], written[0]]);
});

it('others are those that are registered and have announced something', async () => {
  const { announcements } = world();
  const text = JSON.stringify(IN_FORCE);
  await announcements.read(new Map(['one', 'two', 'gone'].map((name) => [name, text])), ['one', 'two', 'three']);
  expect([...announcements.others()]).toEqual([['two', IN_FORCE]]);
});
