import { canonicalJson } from '../json/text.ts';
import { type Json, type JsonObject, isJsonArray, isJsonObject } from '../json/value.ts';
import { didYouMean } from '../diagnostics/nearest.ts';
import type { Entity, EntityLink } from '../effects/model/entity.ts';

/** Characters of a type and of the word for a link. */
export const MAX_TYPE = 64;
/** Characters of an id, and of a name. */
export const MAX_ID = 256;
export const MAX_NAME = 512;
/** Characters of an entity as JSON. */
export const MAX_ENTITY = 16_384;
export const MAX_LINKS = 100;
/** Levels of nesting below `attributes`. */
export const MAX_DEPTH = 8;

/** Faults after which unknown members are not reported any more: to find what each was meant to be takes its time. */
export const MOST_FAULTS = 100;

/** Something in an entity that cannot be used. `path` leads there from the entity. */
export interface EntityFault {
  readonly path: readonly (string | number)[];
  readonly message: string;
}

/** Types and words for links can stand in the paths of policies, and in queries. */
const WORD = new RegExp(`^[A-Za-z][A-Za-z0-9_-]{0,${MAX_TYPE - 1}}$`);
const WORD_IS = `must be a word of at most ${MAX_TYPE} letters, digits, _ and -, that begins with a letter`;
/** Control characters and characters that turn the direction of writing: a reader would see another id. */
const HIDDEN = /[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/u;
const MEMBERS = ['type', 'id', 'name', 'attributes', 'links'];
const LINK_MEMBERS = ['rel', 'type', 'id'];

export function isEntityType(text: string): boolean {
  return WORD.test(text);
}

export function isEntityId(text: string): boolean {
  return text !== '' && text.length <= MAX_ID && text.isWellFormed() && !HIDDEN.test(text);
}

/** Reads an entity from JSON, or says everything that is wrong with it. */
export function checkEntity(
  value: Json,
): { readonly ok: true; readonly entity: Entity } | { readonly ok: false; readonly faults: readonly EntityFault[] } {
  const faults: EntityFault[] = [];
  if (!isJsonObject(value))
    return { ok: false, faults: [{ path: [], message: 'must be an object with type, id and name' }] };
  unknownMembers(value, MEMBERS, [], faults);
  const type = wordOf(value, 'type', [], faults);
  const id = idOf(value, [], faults);
  const name = nameOf(value, faults);
  const attributes = attributesOf(value, faults);
  const links = linksOf(value, faults);
  if (faults.length > 0) return { ok: false, faults };
  const entity: Entity = { type, id, name, attributes, links };
  const { length } = canonicalJson({ name, attributes, links: links.map((link) => ({ ...link })) });
  if (length > MAX_ENTITY)
    return {
      ok: false,
      faults: [
        {
          path: [],
          message: `has ${length} characters as JSON; at most ${MAX_ENTITY} are kept. Leave out what no agent or policy needs`,
        },
      ],
    };
  return { ok: true, entity };
}

function unknownMembers(
  of: JsonObject,
  known: readonly string[],
  path: EntityFault['path'],
  faults: EntityFault[],
): void {
  for (const member of Object.keys(of)) {
    if (known.includes(member)) continue;
    if (faults.length >= MOST_FAULTS) return;
    const hint = didYouMean(member, known) ?? `it has ${known.join(', ')}`;
    faults.push({ path: [...path, member], message: `is not known here; ${hint}` });
  }
}

/** The member of an object that is its own; what every object inherits is none. */
function own(of: JsonObject, name: string): Json | undefined {
  return Object.hasOwn(of, name) ? of[name] : undefined;
}

function wordOf(of: JsonObject, member: string, path: EntityFault['path'], faults: EntityFault[]): string {
  const value = own(of, member);
  if (typeof value === 'string' && WORD.test(value)) return value;
  faults.push({ path: [...path, member], message: value === undefined ? `is missing; it ${WORD_IS}` : WORD_IS });
  return '';
}

function idOf(of: JsonObject, path: EntityFault['path'], faults: EntityFault[]): string {
  const value = own(of, 'id');
  if (typeof value === 'string' && isEntityId(value)) return value;
  const must = `must be a text of 1 to ${MAX_ID} characters without control characters`;
  const hint = typeof value === 'number' ? '; write it in quotes' : '';
  faults.push({ path: [...path, 'id'], message: value === undefined ? `is missing; it ${must}` : `${must}${hint}` });
  return '';
}

function nameOf(of: JsonObject, faults: EntityFault[]): string {
  const value = own(of, 'name');
  const isSound =
    typeof value === 'string' &&
    value.trim() !== '' &&
    value.length <= MAX_NAME &&
    value.isWellFormed() &&
    !HIDDEN.test(value);
  if (isSound) return value;
  const must = `must be a text of 1 to ${MAX_NAME} characters without control characters`;
  faults.push({ path: ['name'], message: value === undefined ? `is missing; it ${must}` : must });
  return '';
}

function attributesOf(of: JsonObject, faults: EntityFault[]): JsonObject {
  const value = own(of, 'attributes');
  if (value === undefined) return {};
  if (!isJsonObject(value)) {
    faults.push({ path: ['attributes'], message: 'must be an object' });
    return {};
  }
  const fault = faultWithin(value, ['attributes'], MAX_DEPTH);
  if (fault !== null) faults.push(fault);
  return value;
}

/** The first thing in a value that cannot be kept; `null` if there is none. */
function faultWithin(value: Json, path: EntityFault['path'], depth: number): EntityFault | null {
  if (typeof value === 'string') return value.isWellFormed() ? null : { path, message: 'has half a character' };
  if (typeof value === 'number') return Number.isFinite(value) ? null : { path, message: 'must be a finite number' };
  if (typeof value !== 'object' || value === null) return null;
  if (depth === 0) return { path, message: `is nested too deeply; attributes have at most ${MAX_DEPTH} levels` };
  if (isJsonArray(value)) {
    for (const [index, item] of value.entries()) {
      const fault = faultWithin(item, [...path, index], depth - 1);
      if (fault !== null) return fault;
    }
    return null;
  }
  for (const [name, item] of Object.entries(value)) {
    if (name === '__proto__' || !name.isWellFormed()) return { path, message: `has a name that cannot be used` };
    const fault = faultWithin(item, [...path, name], depth - 1);
    if (fault !== null) return fault;
  }
  return null;
}

function linksOf(of: JsonObject, faults: EntityFault[]): readonly EntityLink[] {
  const value = own(of, 'links');
  if (value === undefined) return [];
  if (!isJsonArray(value) || value.length > MAX_LINKS) {
    faults.push({ path: ['links'], message: `must be a list of at most ${MAX_LINKS} links { rel, type, id }` });
    return [];
  }
  const seen = new Set<string>();
  return value.map((item, index) => {
    const path = ['links', index];
    if (!isJsonObject(item)) {
      faults.push({ path, message: 'must be an object with rel, type and id' });
      return { rel: '', type: '', id: '' };
    }
    unknownMembers(item, LINK_MEMBERS, path, faults);
    const link = {
      rel: wordOf(item, 'rel', path, faults),
      type: wordOf(item, 'type', path, faults),
      id: idOf(item, path, faults),
    };
    const name = `${link.rel}\n${link.type}\n${link.id}`;
    if (link.id !== '' && seen.has(name)) faults.push({ path, message: 'stands twice in the list' });
    seen.add(name);
    return link;
  });
}
