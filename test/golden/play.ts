import { bodies, bodyReads } from './scenarios/bodies.ts';
import { control } from './scenarios/control.ts';
import { effects } from './scenarios/effects.ts';
import { holdings, pauses } from './scenarios/holdings.ts';
import { mcp } from './scenarios/mcp.ts';
import { people } from './scenarios/people.ts';
import { proxy, proxyReads } from './scenarios/proxy.ts';
import { refused } from './scenarios/refused.ts';
import type { Segment } from './segment.ts';

/** Some calls that belong together. How many they are does not depend on what is answered. */
export type Scenario = (at: Segment) => Promise<void>;

/** Each with how often it is drawn. */
const ANYWHERE: readonly (readonly [number, Scenario])[] = [
  ...effects,
  ...proxy,
  ...bodies,
  ...mcp,
  ...people,
  ...holdings,
  ...refused,
  ...control,
];

/** Reads learn of a pause up to two seconds later than writes, so those with reads are in segments without pauses. */
const WITH_PAUSES: typeof ANYWHERE = [...ANYWHERE, ...pauses];
const WITH_READS: typeof ANYWHERE = [...ANYWHERE, ...proxyReads, ...bodyReads];

/** Draws scenarios until the segment is full. */
export async function play(at: Segment): Promise<void> {
  const all = at.hasReads ? WITH_READS : WITH_PAUSES;
  const total = all.reduce((sum, [often]) => sum + often, 0);
  while (!at.isFull) {
    let draw = at.int(total);
    for (const [often, scenario] of all) {
      draw -= often;
      if (draw >= 0) continue;
      await scenario(at);
      break;
    }
  }
}
