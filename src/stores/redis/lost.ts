import { StoreUnavailable } from '../../effects/store.ts';
import { fieldsOf, textsOf } from './connection.ts';
import { type Fields, unpacked } from './effect-record.ts';
import type { Frame } from './frame.ts';
import { keyOf } from './names.ts';

/** Effects that one script handles at most. */
const AT_ONCE = 100;

/**
 * Effects that execute on record though nobody runs them any more: their lease is over, or their gateway has started
 * again. They are unknown from the first answer on; who reads one has it declared so first.
 */
export interface LostEffects {
  /** Hashes of effects, in order, without those that are not there. Ids as they stand in keys. */
  effects(workspace: string, ids: readonly string[]): Promise<readonly Fields[]>;
  /** Declares those of some effects that nobody runs any more. @returns whether there was one */
  declare(workspace: string, ids: readonly string[]): Promise<boolean>;
}

export function createLost(frame: Frame, now: () => number): LostEffects {
  async function read(workspace: string, ids: readonly string[]): Promise<readonly Fields[]> {
    const replies = await frame.commands(
      workspace,
      ids.map((id) => ['HGETALL', keyOf(workspace, `e:${id}`)] as const),
    );
    return replies.map((reply) => fieldsOf(textsOf(reply)));
  }

  /** Effects as they are on record, and which of them nobody runs any more. */
  async function look(
    workspace: string,
    ids: readonly string[],
  ): Promise<{ readonly found: readonly Fields[]; readonly lost: ReadonlySet<string> }> {
    const [found, [gone]] = await Promise.all([
      read(workspace, ids),
      frame.commands(workspace, [['ZRANGE', keyOf(workspace, 'gone'), 0, -1]]),
    ]);
    const ended = new Set(textsOf(gone));
    const lost = ids.filter((_, index) => {
      const fields = found[index];
      if (fields?.get('st') !== 'executing') return false;
      return Number(fields.get('lend')) <= now() || (ended.size > 0 && ended.has(unpacked(fields).get('bt') ?? ''));
    });
    return { found, lost: new Set(lost) };
  }

  async function put(workspace: string, lost: ReadonlySet<string>): Promise<void> {
    const ids = [...lost];
    for (let from = 0; from < ids.length; from += AT_ONCE)
      await frame.step('lose', workspace, [JSON.stringify(ids.slice(from, from + AT_ONCE))]);
  }

  return {
    async effects(workspace, ids) {
      const { found, lost } = await look(workspace, ids);
      const isThere = ({ size }: Fields): boolean => size > 0;
      if (lost.size === 0) return found.filter(isThere);
      try {
        await put(workspace, lost);
      } catch (error) {
        if (!(error instanceof StoreUnavailable)) throw error;
        // While nothing can be written, what is read says it all the same.
        const at = String(now());
        return found
          .map((fields, index) => (lost.has(ids[index] ?? '') ? asUnknown(fields, at) : fields))
          .filter(isThere);
      }
      return (await read(workspace, ids)).filter(isThere);
    },
    async declare(workspace, ids) {
      if (ids.length === 0) return false;
      const { lost } = await look(workspace, ids);
      await put(workspace, lost);
      return lost.size > 0;
    },
  };
}

function asUnknown(fields: Fields, at: string): Fields {
  return new Map([...unpacked(fields), ['st', 'unknown'], ['at', at], ['lost', '1'], ['claims', '']]);
}
