import { expect, it } from 'vitest';
import { StoreUnavailable } from '../../src/effects/store.ts';
import { TakeUp } from '../../src/gateway/take-up.ts';

/** Work that fails with each of these in turn, and then succeeds. */
function failing(...faults: Error[]): { readonly work: () => Promise<void>; tries: number } {
  const of = {
    tries: 0,
    work: async () => {
      of.tries += 1;
      const fault = faults.shift();
      if (fault !== undefined) throw fault;
    },
  };
  return of;
}

it('what the store lets pass at once is done once', async () => {
  const of = failing();
  const takeUp = new TakeUp(of.work, () => undefined);
  expect(takeUp.isDone()).toBe(false);
  await takeUp.begin();
  await takeUp.finished;
  expect(takeUp.isDone()).toBe(true);
  await takeUp.stop();
  expect(of.tries).toBe(1);
});

it('a fault of the work stops the start; it is not tried again', async () => {
  const of = failing(new Error('budget_redefined'));
  const takeUp = new TakeUp(of.work, () => undefined);
  await expect(takeUp.begin()).rejects.toThrow('budget_redefined');
  await takeUp.stop();
  expect([of.tries, takeUp.isDone()]).toEqual([1, false]);
});

it('a store that is away is waited for, four times a second; of what else stops the work somebody hears', async () => {
  const of = failing(new StoreUnavailable('away'), new StoreUnavailable('away'), new Error('refused'));
  const reported: unknown[] = [];
  const takeUp = new TakeUp(of.work, (error) => reported.push(error));
  const began = Date.now();
  await takeUp.begin();
  expect([of.tries, takeUp.isDone()]).toEqual([1, false]);
  await takeUp.finished;
  expect(Date.now() - began).toBeGreaterThanOrEqual(3 * 240);
  expect(Date.now() - began).toBeLessThan(5_000);
  expect([of.tries, takeUp.isDone(), reported]).toEqual([4, true, [new Error('refused')]]);
  await takeUp.stop();
});

it('a gateway that stops waits for no store', async () => {
  const of = failing(new StoreUnavailable('away'), new StoreUnavailable('away'));
  const takeUp = new TakeUp(of.work, () => undefined);
  await takeUp.begin();
  await takeUp.stop();
  expect([of.tries, takeUp.isDone()]).toEqual([1, false]);
});

it('a gateway that stops while the work runs waits for it: the store closes after that', async () => {
  const away = new StoreUnavailable('away');
  let tries = 0;
  let isOver = false;
  let end = (): void => undefined;
  const takeUp = new TakeUp(
    async () => {
      tries += 1;
      if (tries === 1) throw away;
      await new Promise<void>((resolve) => (end = resolve));
      isOver = true;
    },
    () => undefined,
  );
  await takeUp.begin();
  await expect.poll(() => tries).toBe(2);
  const stopped = takeUp.stop().then(() => isOver);
  await new Promise((resolve) => setImmediate(resolve));
  end();
  expect(await stopped).toBe(true);
});
