import { expect, it } from 'vitest';
import { INSTALLATION } from '../../src/effects/model/ledger.ts';
import { appendTo, emptyOutbox, forgetArrived } from '../../src/records/outbox.ts';
import { createStepRunner, type StepRunner } from '../../src/records/runner.ts';
import { StoreUnavailable } from '../../src/effects/store.ts';
import type { RowStore } from '../../src/stores/port.ts';
import { emptyRows, mapStore } from '../port/map-rows.ts';

const MADE = { kind: 'workspace.created', effectId: null, actor: { type: 'user', id: 'maria' }, data: {} } as const;

/** Two gateways over one store; the second sees what waits before the first has brought it. */
function twoGateways() {
  const rows = emptyRows();
  let now = 1_750_000_000_000;
  const store = mapStore(rows, () => now);
  let seen = (): void => {};
  const whenSeen = new Promise<void>((resolve) => {
    seen = resolve;
  });
  let goOn = (): void => {};
  const mayGoOn = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  const slow: RowStore = {
    ...store,
    async list(query) {
      const listed = await store.list(query);
      seen();
      await mayGoOn;
      return listed;
    },
  };
  const first = createStepRunner(store);
  const append = (runner: StepRunner, id: string): Promise<unknown> =>
    runner.run(INSTALLATION, (draft) => appendTo(draft, 'w', id, [{ ...MADE, data: { id } }]));
  const arrived = async (): Promise<readonly string[]> =>
    (await store.ledger({ workspace: 'w', about: null, order: 'up', after: null, limit: 100 })).map(({ text }) => text);
  return {
    rows,
    store,
    slow,
    first,
    second: createStepRunner(slow),
    append,
    arrived,
    whenSeen,
    goOn: () => goOn(),
    pass: (ms: number) => {
      now += ms;
    },
  };
}

it('what two gateways bring at once comes once, also to one that comes late', async () => {
  const { store, slow, first, second, append, arrived, whenSeen, goOn, pass } = twoGateways();
  await append(first, 'a');
  const late = emptyOutbox(slow, second);
  await whenSeen;
  await emptyOutbox(store, first);
  pass(20_000);
  await forgetArrived(store, first, 'w', 10);
  goOn();
  await late;
  expect(await arrived()).toHaveLength(1);
});

/** A gateway whose changes of a workspace wait, each until it may go on. */
function heldUp(store: RowStore, workspace: string) {
  let begun = (): void => {};
  const whenHeld = new Promise<void>((resolve) => {
    begun = resolve;
  });
  let goOn = (): void => {};
  const mayGoOn = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  const slow: RowStore = {
    ...store,
    async commit(change) {
      if (change.workspace === workspace) {
        begun();
        await mayGoOn;
      }
      return store.commit(change);
    },
  };
  return { slow, runner: createStepRunner(slow), whenHeld, goOn: () => goOn() };
}

it('who comes minutes late brings nothing, and is told nothing of it', async () => {
  const { store, slow, first, second, append, arrived, whenSeen, goOn, pass } = twoGateways();
  await append(first, 'a');
  const late = emptyOutbox(slow, second);
  await whenSeen;
  await emptyOutbox(store, first);
  pass(6 * 60_000);
  await forgetArrived(store, first, 'w', 10);
  goOn();
  await late;
  expect(await arrived()).toHaveLength(1);
});

it('who is held up for minutes as it brings something does not bring it a second time', async () => {
  const { store, first, append, arrived, pass } = twoGateways();
  await append(first, 'a');
  const { slow, runner, whenHeld, goOn } = heldUp(store, 'w');
  const late = emptyOutbox(slow, runner);
  await whenHeld;
  await emptyOutbox(store, first);
  pass(6 * 60_000);
  await forgetArrived(store, first, 'w', 10);
  goOn();
  await expect(late).rejects.toThrow(StoreUnavailable);
  expect(await arrived()).toHaveLength(1);
});

it('what came is remembered for as long as it still waits, however long that is', async () => {
  const { store, first, append, arrived, pass } = twoGateways();
  await append(first, 'a');
  const { slow, runner, whenHeld, goOn } = heldUp(store, INSTALLATION);
  const late = emptyOutbox(slow, runner);
  await whenHeld;
  pass(6 * 60_000);
  await forgetArrived(store, first, 'w', 10);
  await emptyOutbox(store, first);
  goOn();
  await late;
  expect(await arrived()).toHaveLength(1);
});

it('that it came is forgotten in the end', async () => {
  const { rows, store, first, append, pass } = twoGateways();
  for (const id of ['a', 'b']) await append(first, id);
  await emptyOutbox(store, first);
  const remembered = (): number | undefined => rows.spaces.get('w')?.rows.size;
  expect(remembered()).toBe(2);
  pass(6 * 60_000);
  await forgetArrived(store, first, 'w', 1);
  expect(remembered()).toBe(1);
  await forgetArrived(store, first, 'w', 10);
  expect(remembered()).toBe(0);
});

it('what waits comes in the order in which it was left', async () => {
  const { store, first, append, arrived, pass } = twoGateways();
  for (const id of ['b.9', 'b.10', 'a.1']) {
    await append(first, id);
    pass(1);
  }
  await emptyOutbox(store, first);
  expect((await arrived()).map((text) => /"id":"(.*?)"\}/.exec(text)?.[1])).toEqual(['b.9', 'b.10', 'a.1']);
});
