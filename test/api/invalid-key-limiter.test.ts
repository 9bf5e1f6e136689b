import { expect, it } from 'vitest';
import { createInvalidKeyLimiter, INVALID_KEY_LIMIT } from '../../src/api/invalid-key-limiter.ts';

const { burst, perSecond, addresses, remembered } = INVALID_KEY_LIMIT;

it('an address has so many invalid keys, gets them back with time, and never more than those', () => {
  let now = 0;
  const limiter = createInvalidKeyLimiter(() => now);
  const spend = (): number => {
    let count = 0;
    for (; limiter.check('10.0.0.1', null) === null; count += 1) limiter.failed('10.0.0.1');
    return count;
  };
  expect(spend()).toBe(burst);
  expect(limiter.check('10.0.0.1', null)).toBe(1000 / perSecond);
  expect(limiter.check('10.0.0.2', null)).toBeNull();
  now += 2_000;
  expect(spend()).toBe(2 * perSecond);
  // Half of one is none.
  now += 500 / perSecond;
  expect(limiter.check('10.0.0.1', null)).toBe(500 / perSecond);
  now += 3_600_000;
  expect(spend()).toBe(burst);
});

it('a key that was good lately passes from an address that has none left, and only that one', () => {
  const limiter = createInvalidKeyLimiter(() => 0);
  limiter.passed('known');
  for (let count = 0; count < burst; count += 1) limiter.failed('10.0.0.1');
  expect(limiter.check('10.0.0.1', 'known')).toBeNull();
  for (const handle of ['other', null]) expect(limiter.check('10.0.0.1', handle)).toBeGreaterThan(0);
});

it('so many addresses are remembered, and the one that failed longest ago is forgotten first', () => {
  const limiter = createInvalidKeyLimiter(() => 0);
  for (let count = 0; count < burst; count += 1) for (const one of ['first', 'second']) limiter.failed(one);
  limiter.failed('first');
  for (let count = 0; count < addresses - 1; count += 1) limiter.failed(`10.1.${count}`);
  expect(limiter.check('second', null)).toBeNull();
  expect(limiter.check('first', null)).toBeGreaterThan(0);
});

it('so many good keys are remembered, and the one that was good first is forgotten first', () => {
  const limiter = createInvalidKeyLimiter(() => 0);
  limiter.passed('first');
  limiter.passed('second');
  for (let count = 0; count < remembered - 1; count += 1) limiter.passed(`key-${count}`);
  for (let count = 0; count < burst; count += 1) limiter.failed('10.0.0.1');
  expect(limiter.check('10.0.0.1', 'first')).toBeGreaterThan(0);
  expect(limiter.check('10.0.0.1', 'second')).toBeNull();
});

it('whoever goes on all the same waits no longer for it: the debt does not grow', () => {
  let now = 0;
  const limiter = createInvalidKeyLimiter(() => now);
  for (let count = 0; count < 3 * burst; count += 1) limiter.failed('10.0.0.1');
  now = 1_000 / perSecond;
  expect(limiter.check('10.0.0.1', null)).toBeNull();
});
