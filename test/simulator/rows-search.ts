import { createHash } from 'node:crypto';
import { newWorld, type Product, type Scope, type World } from './rows-world.ts';

export interface Found {
  readonly states: number;
  readonly ends: number;
  /** What broke, with the way there. */
  readonly broken: string | null;
  readonly history: readonly string[];
}

/**
 * Every way that a small world can take. A world cannot be copied, so that each way is gone from the start; where it
 * comes to a state that is known, it goes no further.
 */
export async function search(scope: Scope, product: Product, most = Infinity): Promise<Found> {
  const seen = new Set<string>();
  const open: (readonly number[])[] = [[]];
  let ends = 0;

  function isNew(world: World): boolean {
    const signature = createHash('sha1').update(world.signature()).digest('base64');
    if (seen.has(signature)) return false;
    seen.add(signature);
    return true;
  }

  for (let way = open.pop(); way !== undefined && seen.size < most; way = open.pop()) {
    const world = await newWorld(scope, product);
    const history: string[] = [];
    const gone = [...way];
    const go = async (choice: number): Promise<boolean> => {
      const action = world.actions()[choice];
      if (action === undefined) throw new Error('the same way leads elsewhere');
      history.push(action.name);
      action.apply();
      await world.turn();
      return world.broken() === null;
    };
    let isWhole = true;
    for (const choice of way) isWhole &&= await go(choice);
    // The state that this way leads to is known where another led there meanwhile.
    let isFurther = isWhole && isNew(world);
    while (isWhole && isFurther) {
      const choices = world.actions().length;
      if (choices === 0) {
        ends += 1;
        const broken = await world.end();
        if (broken !== null) return { states: seen.size, ends, broken, history };
        break;
      }
      for (let other = choices - 1; other > 0; other -= 1) open.push([...gone, other]);
      gone.push(0);
      isWhole = await go(0);
      isFurther = isWhole && isNew(world);
    }
    const broken = world.broken();
    if (broken !== null) return { states: seen.size, ends, broken, history };
  }
  return { states: seen.size, ends, broken: null, history: [] };
}
