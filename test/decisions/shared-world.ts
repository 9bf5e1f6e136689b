import { startWorld, type World } from '../system/world.ts';

/** The world that the decisions of `decisions.test.ts` are taken in, while that runs: to start one for each takes longer. */
export let world: World;

export async function openWorld(): Promise<void> {
  world = await startWorld();
}

export async function closeWorld(): Promise<void> {
  await world.close();
}
