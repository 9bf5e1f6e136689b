import { didYouMean } from '../diagnostics/nearest.ts';
import type { DataPath } from '../diagnostics/yaml-source.ts';
import { type Entities, type EntityPlan, isPathFault, parseFactPath } from './fact-path.ts';
import { below, type Reporter } from './reporter.ts';
import type { PolicyFile } from './schema.ts';

/** Most links between the entity that a call names and the one that is read. */
const MOST_LINKS = 3;
const NAME = /^[A-Za-z_][A-Za-z0-9_-]{0,62}$/;
/** Words of the company brain (`src/brain/check-entity.ts`). */
const WORD = /^[A-Za-z][A-Za-z0-9_-]{0,63}$/;

/** Reads which entities the names of a set stand for. An entity that refers to itself is an error. */
export function readEntities(file: PolicyFile, report: Reporter): NonNullable<Entities> {
  const sources = new Map(Object.entries(file.entities ?? {}));
  const read = new Map<string, EntityPlan>();
  for (const [name, source] of sources) {
    const path = ['entities', name];
    if (!NAME.test(name))
      report.error('wrong_value', path, [`'${name}' cannot stand in a path`, 'letters, digits, - and _'], 'key');
    const plan = planOf(source, path, sources, report);
    if (plan !== null) read.set(name, plan);
  }
  return read;
}

function planOf(
  source: NonNullable<PolicyFile['entities']>[string],
  path: DataPath,
  sources: ReadonlyMap<string, NonNullable<PolicyFile['entities']>[string]>,
  report: Reporter,
): EntityPlan | null {
  const links: string[] = [];
  let at = source;
  while ('of' in at) {
    if (!isWord(at.link, [...path, 'link'], report)) return null;
    links.unshift(at.link);
    if (links.length > MOST_LINKS) {
      report.error('too_deep', path, `There are at most ${MOST_LINKS} links in a row, and none leads back to itself`);
      return null;
    }
    const next = sources.get(at.of);
    if (next === undefined) {
      report.error('unknown_entity', below(path, 'of'), [
        `The set names no entity '${at.of}'`,
        didYouMean(at.of, sources.keys()),
      ]);
      return null;
    }
    at = next;
  }
  const id = parseFactPath(at.id, 'rule', null);
  if (isPathFault(id)) {
    report.error(id.code, below(path, 'id'), [id.message, id.hint]);
    return null;
  }
  return isWord(at.type, [...path, 'type'], report) ? { type: at.type, id, links } : null;
}

function isWord(text: string, path: DataPath, report: Reporter): boolean {
  if (WORD.test(text)) return true;
  report.error('wrong_value', path, [`'${text}' is no word for entities`, 'a letter, then letters, digits, _ and -']);
  return false;
}
