import { Type } from 'typebox';
import { filePath, list, path, record, section, slug, slugWords, text } from './schema-fields.ts';

/** `brain`: where entities of the company brain are read from. */
export const brain = section('brain', 'The company brain: what agents and policies may know of the organisation.', {
  files: list(
    'Files of entities, and folders of them: YAML (a list) and JSON Lines (*.jsonl, *.ndjson). What a file names belongs to the file; the API changes nothing of it.',
    Type.Union(
      [
        Type.String({ pattern: filePath }),
        record('a path of entities', 'A path.', {
          path: path('A file or folder.'),
          workspace: Type.Optional(
            text(slug, slugWords, 'The workspace that the entities belong to. Default: the only one there is.'),
          ),
        }),
      ],
      { 'x-expected': 'a path, or { path, workspace }' },
    ),
  ),
});
