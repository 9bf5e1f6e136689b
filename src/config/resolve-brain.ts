import type { Configuration } from './configuration.ts';
import { at, type Judge } from './judge.ts';
import type { GatewayFile } from './schema.ts';
import { parseSize } from './units.ts';
import { kindOfFile } from '../diagnostics/file-reading.ts';

/** What the files themselves say is read with the policies (`src/brain/entity-files.ts`). */
export async function resolveBrain(
  { brain, workspaces, limits }: GatewayFile,
  judge: Judge,
): Promise<Configuration['brain']> {
  const ids = new Set(workspaces.map(({ id }) => id));
  const only = workspaces.length === 1 ? workspaces[0]?.id : undefined;
  const files = brain.files.map((entry) => (typeof entry === 'string' ? { path: entry, workspace: undefined } : entry));
  const seen = new Set<string>();
  for (const [index, { path, workspace }] of files.entries()) {
    if ((await kindOfFile(path)) === 'missing')
      judge.error('file_missing', at(brain, 'files', index), [
        `There is no file or folder ${path}`,
        'paths are relative to the working directory',
      ]);
    if (workspace !== undefined) judge.known('workspace', at(brain, 'files', index, 'workspace'), workspace, ids);
    else if (only === undefined)
      judge.error('no_workspace', at(brain, 'files', index), [
        `It is not said which workspace the entities of ${path} belong to`,
        workspaces.length === 0
          ? 'declare it under workspaces'
          : `write { path: ${path}, workspace: … }: there are ${workspaces.length}`,
      ]);
    const name = `${path}\n${workspace ?? only ?? ''}`;
    if (seen.has(name)) judge.error('duplicate_path', at(brain, 'files', index), `${path} stands twice`);
    seen.add(name);
  }
  return {
    files: files.map(({ path, workspace = only ?? '' }) => ({ path, workspace })),
    limits: { entities: limits.brain_entities, characters: parseSize(limits.brain_size) ?? 0 },
  };
}
