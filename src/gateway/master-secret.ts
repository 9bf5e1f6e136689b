import { CommandFailure } from '../cli/ports.ts';
import { type EffectStore, StoreUnavailable } from '../effects/store.ts';
import { KeyFileFault } from '../secrets/key-file.ts';
import { openSecrets, type SecretFiles, type Secrets } from '../secrets/vault.ts';

/** The part of a store that tells whether it was used with a master secret before. */
interface MarkedStore {
  secretMark(): string | null | Promise<string | null>;
  keys(user: null): readonly unknown[] | Promise<readonly unknown[]>;
}

/**
 * Opens the secrets for a store. A master secret is made only where nothing was stored under another one.
 * @throws KeyFileFault, CommandFailure
 */
export function openSecretsFor(store: MarkedStore, files: SecretFiles): Promise<Secrets> {
  return openSecrets(files, async () => {
    try {
      return (await store.secretMark()) === null && (await store.keys(null)).length === 0;
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error;
      throw new KeyFileFault(
        `The master secret ${files.masterFile} is missing, and the store cannot be asked whether it was used with one before. Restore the file; or, on the first start, wait until the store can be reached and start again.`,
      );
    }
  });
}

/**
 * Binds a store to the master secret; the store remembers it by a mark that tells nothing of it.
 * @throws CommandFailure where the store belongs to another secret
 */
export async function bindToStore(
  store: { bindSecret(marks: Secrets['marks']): boolean | Promise<boolean> },
  secrets: Pick<Secrets, 'marks'>,
  { masterFile }: SecretFiles,
): Promise<void> {
  if (await store.bindSecret(secrets.marks)) return;
  throw new CommandFailure(
    `The store is used with another master secret than ${masterFile}: its keys would be refused here, and ours there. Put the secret that belongs to this store there (all gateways of a store share one); while it is being rotated, name the old one under secrets.previous.`,
  );
}

/** What is wrong with the master secret of a store; `null` where it is the right one. Changes nothing. */
export async function faultOfSecret(
  store: Pick<EffectStore, 'secretMark' | 'keys'>,
  files: SecretFiles,
): Promise<string | null> {
  const mark = await store.secretMark();
  try {
    const { marks } = await openSecrets(files, () => Promise.resolve(false));
    return mark === null || marks.includes(mark) ? null : 'another secret';
  } catch (error) {
    if (!(error instanceof KeyFileFault)) throw error;
    // Before the first start there is none.
    if (mark === null && (await store.keys(null)).length === 0) return null;
    return error.message;
  }
}
