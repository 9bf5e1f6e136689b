import { afterEach, expect, it, vi } from 'vitest';
import { createElapsed } from '../../src/gateway/core-ports.ts';

afterEach(() => void vi.restoreAllMocks());

it('time that the machine slept counts, and a clock that is set back takes none away', () => {
  let wall = 1_750_000_000_000;
  vi.spyOn(Date, 'now').mockImplementation(() => wall);
  const elapsed = createElapsed();
  wall += 60_000;
  const slept = elapsed();
  expect(slept).toBeGreaterThanOrEqual(60_000);
  wall -= 3_600_000;
  expect(elapsed()).toBeGreaterThanOrEqual(slept);
});
