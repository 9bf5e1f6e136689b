import { access, mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CommandFailure } from '../../../src/cli/ports.ts';
import { HOME } from '../../../src/home.ts';

/** Refuses to overwrite files, and to activate policies that belong to another configuration. */
export async function refuseToDisturb(folder: string, files: readonly string[]): Promise<void> {
  for (const file of files)
    if (await exists(file)) throw new CommandFailure(`${file} is there already; --force overwrites it`);
  const policies = join(folder, 'policies');
  const [other] = (await readdir(policies).catch(() => [])).filter((name) => /\.ya?ml$/.test(name));
  if (other !== undefined)
    throw new CommandFailure(
      `${join(policies, other)} is there already and would be in force too; name a folder of its own, e.g. --dir my-gateway`,
    );
}

export async function makeFolders(folder: string): Promise<void> {
  await mkdir(join(folder, 'policies'), { recursive: true });
  // The folder will hold the master secret and the first key. They must not end up in version control.
  await mkdir(join(folder, 'data'), { recursive: true, mode: 0o700 });
  await writeFile(join(folder, 'data', '.gitignore'), '*\n');
}

async function exists(file: string): Promise<boolean> {
  return access(file).then(
    () => true,
    () => false,
  );
}

/** The schema files of the product. Editors use them for completion and checks. */
export function schemaUrl(name: string): string {
  return new URL(`schemas/${name}.schema.json`, HOME).href;
}
