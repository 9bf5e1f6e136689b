import { readdir, readFile, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { makePrivateFolder, replaceFile } from '../private-folder.ts';
import { type EffectStore, type SettleRequest, StoreUnavailable } from '../../effects/store.ts';

/**
 * Settlements that the store did not take. They are durable here until it does. Each is a file, named after the effect
 * and the attempt.
 */
export type SpillJournal = Awaited<ReturnType<typeof openSpillJournal>>;

const SUFFIX = '.settlement.json';

/** Opens the journal in `folder`, which it creates with mode 0700. */
export async function openSpillJournal(
  folder: string,
  texts: {
    write(request: SettleRequest): string;
    /** @param text of `write` */
    read(text: string): SettleRequest;
  },
) {
  makePrivateFolder(folder);

  async function write(request: SettleRequest): Promise<void> {
    const name = `${request.effectId}.${request.fence.n}.${request.outcome.kind}${SUFFIX}`;
    await replaceFile(join(folder, name), texts.write(request));
  }

  async function drain(store: EffectStore): Promise<number> {
    const names = (await readdir(folder)).filter((name) => name.endsWith(SUFFIX)).sort();
    const refused: string[] = [];
    for (const [index, name] of names.entries()) {
      const path = join(folder, name);
      try {
        // Written completely by `write`: the rename came after the sync.
        const request = texts.read(await readFile(path, 'utf8'));
        await store.settle(request);
      } catch (error) {
        if (error instanceof StoreUnavailable) return names.length - index + refused.length;
        refused.push(name);
        continue;
      }
      await unlink(path);
    }
    if (refused.length > 0)
      throw new Error(`Settlements in ${folder} that the store does not take: ${refused.join(', ')}.`);
    return 0;
  }

  return {
    /** @throws when it cannot be made durable here either */
    write /**
     * Hands the settlements to the store, oldest first, until the store is away.
     * @returns how many are left
     * @throws after all others are done, if one cannot be read or the store refuses it: it stays, and somebody has to
     *   look at it
     */,
    drain,
  };
}
