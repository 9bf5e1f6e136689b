import { expect, it } from 'vitest';
import { createExitStack } from '../../src/gateway/exit-stack.ts';

it('closes in the opposite order, and waits no longer than it is told to', async () => {
  const stack = createExitStack();
  const closed: string[] = [];
  stack.push(() => void closed.push('first'));
  stack.push(async () => void closed.push('second'));
  expect(await stack.closeWithin(60_000)).toBe(true);
  expect(closed).toEqual(['second', 'first']);

  stack.push(() => void closed.push('never'));
  stack.push(() => new Promise(() => {}));
  expect(await stack.closeWithin(20)).toBe(false);
  expect(closed).toEqual(['second', 'first']);
});
