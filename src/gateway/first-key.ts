import type { KeyObject } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CommandFailure, type GatewayOptions, type RunningGateway } from '../cli/ports.ts';
import { bootstrapAdminKeyFile } from '../config/environment.ts';
import type { EffectStore } from '../effects/store.ts';
import { bootstrapAdministrativeKey } from '../identity/bootstrap.ts';
import { makeKeyFile, readKeyFile } from '../secrets/key-file.ts';

/**
 * The first administrative key of an empty store: given by the operator, shown on a terminal, or left in a file.
 * @param folder where the file goes
 * @throws CommandFailure if what the operator gave cannot be used
 */
export async function makeFirstKey(
  store: EffectStore,
  pepper: KeyObject,
  options: GatewayOptions,
  folder: string,
): Promise<RunningGateway['administrativeKey']> {
  const file = join(folder, 'admin.key');
  const given = bootstrapAdminKeyFile();
  const provided = given === null ? null : await readFile(given, 'utf8').catch(() => failToRead(given));
  const made = await bootstrapAdministrativeKey({ store, pepper, provided }).catch((error: unknown) => {
    throw new CommandFailure(error instanceof Error ? error.message : String(error));
  });
  if (made.key === null) return (await readKeyFile(file)) === null ? null : { file };
  if (options.firstKey === 'shown') return { key: made.key };
  await makeKeyFile(file, `${made.key}\n`);
  return { file };
}

function failToRead(file: string): never {
  throw new CommandFailure(`SVC_BOOTSTRAP_ADMIN_KEY_FILE names ${file}, which cannot be read.`);
}
