import { isUtf8 } from 'node:buffer';
import { setImmediate as others } from 'node:timers/promises';
import { percentDecoded } from '../../bytes/percent-decoded.ts';
import { isJsonArray, isJsonObject, type Json, type JsonObject, pointerTo } from '../../json/value.ts';
import { type JsonLimits, MAX_NAME } from '../../json/strict.ts';
import { type FileFacts, isFile } from '../../effects/model/files.ts';
import { type FormLists, rootOfName } from '../../effects/model/tool.ts';
import { itemSchema, memberSchema, readTyped, type SchemaAt, typesOf } from '../../json/schema-walk.ts';

export interface FormOptions {
  readonly lists: FormLists;
  /** The schema of the params: says which texts are numbers and which names are lists. */
  readonly schema: JsonObject | null;
  /** What references in the schema point into. Absent: the schema itself. */
  readonly root?: JsonObject | null;
  readonly limits: JsonLimits;
  /** The setting that lets a name stand more than once. Absent: that of forms. */
  readonly repeatedBy?: string;
}

/** A form as JSON, or what is wrong with it. `path` is a JSON Pointer into it. */
export type ReadForm =
  | { readonly ok: true; readonly members: Readonly<Record<string, Json>> }
  | { readonly ok: false; readonly path: string; readonly message: string };

/** The value of a field: a text or, in multipart, a file. */
export type Leaf = string | FileFacts;

/** The content of a name: a text, a list of texts (`a[]`, or bare: `a` more than once), or parts by name. */
type Node =
  | { readonly kind: 'text'; readonly text: Leaf }
  | { readonly kind: 'list'; readonly texts: Leaf[]; readonly isBare: boolean }
  | { readonly kind: 'parts'; readonly parts: Map<string, Node>; readonly folded: Set<string> };

type Parts = Extract<Node, { kind: 'parts' }>;

/** What a form has that servers would read in different ways. */
export class FormFault extends Error {
  readonly path: string;
  constructor(path: string, message: string) {
    super(message);
    this.path = path;
  }
}

/**
 * Reads `application/x-www-form-urlencoded` with nested names. Refuses whatever servers read in different ways: the
 * same name twice (except for lists), a name with both a text and parts, two names that differ only in case, lists
 * without numbers whose elements have parts. The body that is sent is written anew from what was read.
 */
export function readForm(bytes: Buffer, options: FormOptions): ReadForm {
  return caught(() => {
    const reading = readParts(bytes, options);
    for (;;) {
      const step = reading.next();
      if (step.done === true) return membersOf(step.value, options);
    }
  });
}

/** Like {@link readForm}, for a large form: reads a part at a time, so that other work can run in between. */
export async function readFormInSlices(bytes: Buffer, options: FormOptions): Promise<ReadForm> {
  let reading: Generator<void, Parts> | null = null;
  for (;;) {
    await others();
    let done: Parts | null = null;
    const fault = caught(() => {
      reading ??= readParts(bytes, options);
      const step = reading.next();
      if (step.done === true) done = step.value;
      return {};
    });
    if (!fault.ok) return fault;
    const root: Parts | null = done;
    if (root === null) continue;
    await others();
    return caught(() => membersOf(root, options));
  }
}

/** Fields that arrive one by one, put together as {@link readForm} does. */
export type Fields = ReturnType<typeof collectFields>;

/** Fields whose names and values were already read, such as those of multipart. */
export function collectFields(options: FormOptions) {
  const root: Parts = { kind: 'parts', parts: new Map(), folded: new Set() };
  const levels = Math.min(options.limits.depth, MOST_LEVELS);
  let count = 0;
  return {
    /**
     * @param index its place among all fields, for faults; by default counted
     * @returns what is wrong with the field; `null` if nothing is
     */
    put(name: string, value: Leaf, index = count): Extract<ReadForm, { ok: false }> | null {
      const fault = caught(() => {
        if (count >= options.limits.values) throw new FormFault('', `has more than ${options.limits.values} fields`);
        put(root, segmentsOf(name, index, levels), value, options);
        count += 1;
        return {};
      });
      return fault.ok ? null : fault;
    },
    members: (): ReadForm => caught(() => membersOf(root, options)),
  };
}

function caught(read: () => Record<string, Json>): ReadForm {
  try {
    return { ok: true, members: read() };
  } catch (error) {
    if (error instanceof FormFault) return { ok: false, path: error.path, message: error.message };
    throw error;
  }
}

/** Fields that are read before other work can run. */
const SLICE = 500;
/** Levels of nesting. No real form has more. The time that a form takes grows with levels times fields. */
const MOST_LEVELS = 16;

function* readParts(bytes: Buffer, options: FormOptions): Generator<void, Parts> {
  if (!isUtf8(bytes)) throw new FormFault('', 'is not UTF-8');
  const text = withSpaces(bytes).toString('utf8');
  const root: Parts = { kind: 'parts', parts: new Map(), folded: new Set() };
  const { depth, values } = options.limits;
  const levels = Math.min(depth, MOST_LEVELS);
  const pairs = text.split('&', values + 1);
  if (pairs.length > values) throw new FormFault('', `has more than ${values} fields`);
  for (const [index, pair] of pairs.entries()) {
    if (index % SLICE === SLICE - 1) yield;
    if (pair === '') continue;
    const equals = pair.indexOf('=');
    const name = decoded(equals === -1 ? pair : pair.slice(0, equals), index);
    const value = equals === -1 ? '' : decoded(pair.slice(equals + 1), index);
    put(root, segmentsOf(name, index, levels), value, options);
  }
  return root;
}

const SPACE = 0x20;
const PLUS = 0x2b;
const DELETE = 0x7f;

/** The bytes with a space for each "+". The loop is a hundred times faster than replacing in a text. */
function withSpaces(bytes: Buffer): Buffer {
  const spaced = Buffer.from(bytes);
  for (let at = 0; at < spaced.length; at += 1) {
    const byte = spaced[at] ?? 0;
    if (byte <= SPACE || byte === DELETE)
      throw new FormFault('', 'has a space or a control character that must be percent-encoded');
    if (byte === PLUS) spaced[at] = SPACE;
  }
  return spaced;
}

function decoded(text: string, index: number): string {
  const plain = text.includes('%') ? percentDecoded(text) : text;
  if (plain === null) throw new FormFault('', `field ${index + 1} is not percent-encoded UTF-8`);
  return plain;
}

/** `a[b][]` becomes `a`, `b` and the empty name. */
function segmentsOf(name: string, index: number, depth: number): readonly string[] {
  const where = (): string => `field ${index + 1}`;
  if (name.length > MAX_NAME) throw new FormFault('', `${where()} has a name of more than ${MAX_NAME} characters`);
  const open = name.indexOf('[');
  const first = open === -1 ? name : name.slice(0, open);
  const fault = rootFault(first) ?? nameFault(name);
  if (fault !== null) throw new FormFault(pathOf([first]), `${where()}: the name ${fault}`);
  if (open === -1) return [first];
  const segments = [first];
  let at = open;
  while (at < name.length) {
    const close = name.indexOf(']', at);
    const segment = close === -1 || name[at] !== '[' ? null : name.slice(at + 1, close);
    if (segment === null || segment.includes('['))
      throw new FormFault(pathOf([name]), `${where()}: the brackets of the name do not match`);
    if (segment === '' && close < name.length - 1)
      throw new FormFault(
        pathOf(segments),
        'has parts in a list without numbers, which servers group in different ways: write [0][name]',
      );
    segments.push(segment);
    if (segments.length > depth) throw new FormFault(pathOf([first]), `is nested deeper than ${depth} levels`);
    at = close + 1;
  }
  const inherited = segments.find(isInherited);
  if (inherited !== undefined) throw new FormFault(pathOf(segments), `${where()}: a part of the name is ${inherited}`);
  return segments;
}

/** Why a text cannot be the name of a field; `null` if it can. */
function rootFault(name: string): string | null {
  if (name === '') return 'is empty';
  if (/^\s|\s$/.test(name)) return 'begins or ends with a space, which some servers cut off';
  if (name.includes(']')) return 'has a "]" without a "["';
  return nameFault(name);
}

function nameFault(name: string): string | null {
  if (isInherited(name)) return `is ${name}, which some servers drop`;
  // eslint-disable-next-line no-control-regex -- control characters are what it looks for
  return /[\u0000-\u001f\u007f]/.test(name) ? 'has a control character' : null;
}

/** Names that every object of JavaScript has: `__proto__`, `constructor`, `toString`, … */
function isInherited(name: string): boolean {
  return name in Object.prototype;
}

function put(
  root: Parts,
  segments: readonly string[],
  text: Leaf,
  { lists, repeatedBy = 'form_lists: repeat' }: FormOptions,
): void {
  const isList = segments.length > 1 && segments.at(-1) === '';
  const last = segments.length - (isList ? 2 : 1);
  let node = root;
  for (let level = 0; level < last; level += 1) {
    const name = segments[level] ?? '';
    const known = node.parts.get(name);
    if (known !== undefined && known.kind !== 'parts')
      throw new FormFault(pathOf(segments.slice(0, level + 1)), 'is a value and has parts');
    if (known === undefined) {
      const next: Parts = { kind: 'parts', parts: new Map(), folded: new Set() };
      take(node, segments, level);
      node.parts.set(name, next);
      node = next;
    } else node = known;
  }
  const name = segments[last] ?? '';
  const known = node.parts.get(name);
  if (known === undefined) {
    take(node, segments, last);
    node.parts.set(name, isList ? { kind: 'list', texts: [text], isBare: false } : { kind: 'text', text });
  } else if (known.kind === 'list' && known.isBare !== isList) known.texts.push(text);
  else if (known.kind === 'text' && !isList && lists === 'repeat')
    node.parts.set(name, { kind: 'list', texts: [known.text, text], isBare: true });
  else
    throw new FormFault(
      pathOf(segments.slice(0, last + 1)),
      known.kind === 'text' && !isList
        ? `stands more than once. If it is a list, add ${repeatedBy} to the request of the tool`
        : 'is written in two ways',
    );
}

/** Takes a name that was not there before. */
function take(node: Parts, segments: readonly string[], level: number): void {
  const name = segments[level] ?? '';
  const folded = level === 0 ? foldedName(name) : name.toLowerCase();
  if (node.folded.has(folded)) throw new FormFault(pathOf(segments.slice(0, level + 1)), CLASHES);
  node.folded.add(folded);
}

/** Why a name is refused beside another with the same folded form. */
export const CLASHES = 'stands beside a name that some servers take for the same';

/** Two names with the same folded form clash. PHP turns dots and spaces in names of fields into "_". */
export function foldedName(name: string): string {
  return name.toLowerCase().replaceAll(/[. ]/g, '_');
}

const OVERRIDES = new Set(['_method', '_httpmethod', '$httpmethod', 'x-http-method-override', '_charset_']);

/** Why a name that the tool does not name has no place: whatever the method or other params say, some servers go by it. */
export function overrideFault(name: string, place: 'query' | 'body'): string | null {
  if (!OVERRIDES.has(foldedName(rootOfName(name)))) return null;
  return `changes for some servers what the request is; name it in request.${place} of the tool to let it go on`;
}

function membersOf(root: Parts, { lists, schema, root: whole = schema }: FormOptions): Record<string, Json> {
  const at: SchemaAt = { schema, root: whole };
  const members: Record<string, Json> = {};
  for (const [name, node] of root.parts) members[name] = valueOf(node, memberSchema(at, name), lists, name);
  return members;
}

/** @param field the first name, for faults */
function valueOf(node: Node, at: SchemaAt, lists: FormLists, field: string): Json {
  switch (node.kind) {
    case 'text': {
      // One element of a list that would be written once for each element.
      const isList = lists === 'repeat' && isOnly(at, 'array');
      return isList ? [readLeaf(itemSchema(at), node.text)] : readLeaf(at, node.text);
    }
    case 'list':
      return node.texts.map((text) => readLeaf(itemSchema(at), text));
    case 'parts': {
      const { parts } = node;
      if (isNumbered(parts.keys(), parts.size) && !isOnly(at, 'object')) {
        const items = itemSchema(at);
        return Array.from({ length: parts.size }, (_, index) => {
          const item = parts.get(String(index));
          return item === undefined ? null : valueOf(item, items, lists, field);
        });
      }
      if (hasGaps(parts.keys(), parts.size) && !isOnly(at, 'object')) throw new FormFault(pathOf([field]), GAPS);
      const members: Record<string, Json> = {};
      for (const [name, part] of parts) members[name] = valueOf(part, memberSchema(at, name), lists, field);
      return members;
    }
  }
}

function readLeaf(at: SchemaAt, leaf: Leaf): Json {
  return typeof leaf === 'string' ? readTyped(at, leaf) : leaf;
}

function isOnly(at: SchemaAt, type: 'array' | 'object'): boolean {
  const types = typesOf(at);
  return types.size === 1 && types.has(type);
}

/** Whether names are exactly 0, 1, … */
function isNumbered(names: Iterable<string>, count: number): boolean {
  for (const name of names) if (!/^(?:0|[1-9][0-9]{0,5})$/.test(name) || Number(name) >= count) return false;
  return count > 0;
}

/** Up to this number, servers turn numbered names into lists, and close gaps between the numbers. */
const MOST_LISTED = 1_000;
const NINE = 0x39;

const GAPS =
  'has numbers with gaps, which some servers read as a list without them; number from 0 on, or say type: object in its schema';

/** Whether all names are small numbers, and not exactly 0, 1, … */
function hasGaps(names: Iterable<string>, count: number): boolean {
  let highest = -1;
  for (const name of names) {
    // Most names are words: their first character shows it.
    const isNumber = name.charCodeAt(0) <= NINE && /^(?:0|[1-9][0-9]{0,2})$/.test(name);
    const number = isNumber ? Number(name) : MOST_LISTED;
    if (number >= MOST_LISTED) return false;
    highest = Math.max(highest, number);
  }
  return highest >= count;
}

interface Written extends Omit<FormOptions, 'limits'> {
  /** Absent: a form. */
  readonly into?: string;
  /** Why a file cannot be a field; absent if the form takes no files. */
  readonly fileMisfit?: (file: FileFacts) => string | null;
}

/** Why a param cannot be written as a field of a form and read back unchanged; `null` if it can. */
export function formMisfit(name: string, value: Json, options: Written): string | null {
  const { schema, root = schema, into = 'a form' } = options;
  const fault = name.includes('[') ? 'has a "["' : rootFault(name);
  if (fault !== null) return `goes into ${into}: its name ${fault}`;
  const misfit = valueMisfit(value, memberSchema({ schema, root }, name), options);
  return misfit === null ? null : `goes into ${into}: ${misfit}`;
}

function valueMisfit(value: Json, at: SchemaAt, written: Written): string | null {
  if (written.fileMisfit !== undefined && isFile(value)) return written.fileMisfit(value);
  if (value === null) return 'it has no null; leave it out, or send an empty text';
  if (isJsonArray(value)) {
    if (value.length === 0) return 'it has no empty list; leave it out, or send an empty text';
    if (isOnly(at, 'object')) return 'the schema says that this is no list';
    const items = itemSchema(at);
    for (const item of value) {
      const misfit = valueMisfit(item, items, written);
      if (misfit !== null) return misfit;
    }
    return null;
  }
  if (!isJsonObject(value)) return null;
  const names = Object.keys(value);
  if (names.length === 0) return 'it has no empty object; leave it out';
  if (isNumbered(names, names.length) && !isOnly(at, 'object'))
    return 'an object whose names are 0, 1, … would be read as a list; say type: object in its schema';
  if (hasGaps(names, names.length) && !isOnly(at, 'object')) return `it ${GAPS}`;
  const folded = new Set<string>();
  for (const name of names) {
    const fault = name === '' || /[[\]]/.test(name) ? 'is empty or has a bracket' : nameFault(name);
    if (fault !== null) return `a name in it ${fault}`;
    if (folded.has(name.toLowerCase())) return 'two names in it are equal but for case';
    folded.add(name.toLowerCase());
    const member = value[name];
    const misfit = member === undefined ? null : valueMisfit(member, memberSchema(at, name), written);
    if (misfit !== null) return misfit;
  }
  return null;
}

/** Writes params as a form. Always the same spelling is sent, whichever door the call came through. */
export function writeForm(members: JsonObject, lists: FormLists): string {
  return fieldsOf(members, lists, () => false)
    .map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(typeof value === 'string' ? value : '')}`)
    .join('&');
}

/** The fields that params are written as, in order. @param isWhole whether an object is one value, without parts */
export function fieldsOf(
  members: JsonObject,
  lists: FormLists,
  isWhole: (value: JsonObject) => boolean,
): readonly (readonly [name: string, value: string | JsonObject])[] {
  const fields: [string, string | JsonObject][] = [];
  const isPlain = (value: Json): boolean => typeof value !== 'object' || (isJsonObject(value) && isWhole(value));
  const write = (name: string, value: Json): void => {
    if (isJsonArray(value)) {
      const numbered = lists === 'indices' || !value.every(isPlain);
      for (const [index, item] of value.entries())
        write(numbered ? `${name}[${index}]` : lists === 'brackets' ? `${name}[]` : name, item);
    } else if (isJsonObject(value) && !isWhole(value)) {
      for (const [part, member] of Object.entries(value)) write(`${name}[${part}]`, member);
    } else fields.push([name, isJsonObject(value) ? value : String(value ?? '')]);
  };
  for (const [name, value] of Object.entries(members)) write(name, value);
  return fields;
}

/** The most characters of a name that the path of a fault shows. */
export const MOST_SHOWN = 300;

function pathOf(names: readonly string[]): string {
  return pointerTo(names, MOST_SHOWN);
}
