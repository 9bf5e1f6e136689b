import { CommandFailure } from '../cli/ports.ts';
import { type EffectStore, StoreUnavailable } from '../effects/store.ts';
import { KeyFileFault } from '../secrets/key-file.ts';
import { openSecrets, type SecretFiles, type Secrets } from '../secrets/vault.ts';

/** The part of a store that tells whether it has been used with a master secret. */
interface MarkedStore {
  secretMark(): Promise<string | null>;
  hasKeys(): Promise<boolean>;
}

/**
 * Opens the secrets for a store. A new master secret is made only if nothing was stored under another one.
 * @throws KeyFileFault, CommandFailure
 */
export function openSecretsFor(store: MarkedStore, files: SecretFiles): Promise<Secrets> {
  return openSecrets(files, async () => {
    try {
      return (await store.secretMark()) === null && !(await store.hasKeys());
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error;
      throw new KeyFileFault(
        `The master secret ${files.masterFile} is missing, and the store cannot be asked whether it was used with one before. Restore the file; or, on the first start, wait until the store can be reached and start again.`,
      );
    }
  });
}

/**
 * Binds a store to the master secret. The store remembers the secret by a mark that reveals nothing about it.
 * @throws CommandFailure if the store belongs to another secret
 */
export async function bindToStore(
  store: Pick<EffectStore, 'bindSecret'>,
  secrets: Pick<Secrets, 'marks'>,
  { masterFile }: SecretFiles,
): Promise<void> {
  if (await store.bindSecret(secrets.marks)) return;
  throw new CommandFailure(
    `The store is used with another master secret than ${masterFile}: its keys would be refused here, and ours there. Put the secret that belongs to this store there (all gateways of a store share one); while it is being rotated, name the old one under secrets.previous.`,
  );
}

export async function findSecret(
  store: MarkedStore,
  files: SecretFiles,
): Promise<
  | { readonly kind: 'right'; readonly secrets: Secrets }
  /** There is none yet, and nothing that needs one. */
  | { readonly kind: 'none' }
  | { readonly kind: 'fault'; readonly fault: string }
> {
  const mark = await store.secretMark();
  try {
    const secrets = await openSecrets(files, () => Promise.resolve(false));
    const isRight = mark === null || secrets.marks.includes(mark);
    return isRight ? { kind: 'right', secrets } : { kind: 'fault', fault: 'another secret' };
  } catch (error) {
    if (!(error instanceof KeyFileFault)) throw error;
    // Before the first start there is none.
    if (mark === null && !(await store.hasKeys())) return { kind: 'none' };
    return { kind: 'fault', fault: error.message };
  }
}
