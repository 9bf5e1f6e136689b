import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Costs } from './measure.ts';
import type { Door, Store } from './world.ts';

const FILE = join(import.meta.dirname, 'ceilings.json');

type Ceilings = Partial<Record<Store, Partial<Record<Door, Costs>>>>;

/**
 * Bytes differ a little from run to run; those that the collector moves by what else the machine does, as calls then wait
 * elsewhere. Nothing else does.
 */
const ROOM: Readonly<Record<string, number>> = { allocatedBytes: 1.04, movedBytes: 2 };
/** Below this part of its ceiling a count is worth a lower one. */
const WELL_BELOW = 0.9;

/** A count beside its ceiling, for a person. */
export interface Compared {
  readonly line: string;
  readonly isAbove: boolean;
}

/** A count without a ceiling is above it. */
export function compare(store: Store, door: Door, costs: Costs): readonly Compared[] {
  const ceilings = read()[store]?.[door];
  return (['main', 'threads'] as const).flatMap((where) =>
    Object.entries(costs[where]).map(([name, cost]) => {
      const ceiling = ceilings?.[where][name] ?? -1;
      const isAbove = cost > ceiling;
      const isLow = withRoom(name, cost) < ceiling * WELL_BELOW;
      const remark = isAbove ? '  ABOVE ITS CEILING' : isLow ? '  well below: npm run test:cost -- --lower' : '';
      return { line: `${where} ${name}: ${cost}, at most ${ceiling}${remark}`, isAbove };
    }),
  );
}

/** Lowers the ceilings to what was counted; raises none. */
export function lower(store: Store, door: Door, costs: Costs): void {
  const all = read();
  const before = all[store]?.[door];
  const lowered = (where: keyof Costs): Readonly<Record<string, number>> =>
    Object.fromEntries(
      Object.entries(costs[where]).map(([name, cost]) => {
        const wanted = withRoom(name, cost);
        return [name, Math.min(wanted, before?.[where][name] ?? wanted)];
      }),
    );
  const next: Ceilings = {
    ...all,
    [store]: { ...all[store], [door]: { main: lowered('main'), threads: lowered('threads') } },
  };
  writeFileSync(FILE, `${JSON.stringify(next, null, 2)}\n`);
}

function withRoom(name: string, cost: number): number {
  return Math.ceil(cost * (ROOM[name] ?? 1));
}

function read(): Ceilings {
  return JSON.parse(readFileSync(FILE, 'utf8')) as Ceilings;
}
