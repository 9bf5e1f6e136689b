import { afterAll, beforeAll, expect, it } from 'vitest';
import { type Rig, startRig } from './rig.ts';

const WS = '/v1/workspaces/demo';

let rig: Rig;
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.close());

it.each([
  // There it is an effect of that name, which is not there.
  [`${WS}/effects/stream`, 404],
  [`${WS}/export`, 405],
])('HEAD opens no stream that nobody reads: %s', async (path, status) => {
  expect((await rig.send('GET', path)).status).toBe(200);
  expect((await rig.send('HEAD', path)).status).toBe(status);
});
