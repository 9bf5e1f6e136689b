import {
  Composer,
  type CST,
  isAlias,
  isCollection,
  isMap,
  isPair,
  isScalar,
  isSeq,
  Parser,
  type Pair,
  type Scalar,
  type YAMLMap,
} from 'yaml';
import { type Finding, type FindingText, type Position, textOf } from './finding.ts';

/** The data that a YAML file can hold: the same as JSON. Objects have own, enumerable keys only, never `__proto__`. */
export type PlainValue =
  | null
  | boolean
  | number
  | string
  | readonly PlainValue[]
  | { readonly [name: string]: PlainValue };

/** Steps from the top of a file to a value: names of keys, indices of lists. */
export type DataPath = readonly (string | number)[];

/** A YAML file after reading: its data, its faults as YAML, and the position of every value. */
export interface YamlSource {
  readonly file: string;
  readonly text: string;
  /**
   * The data; `undefined` if there is no usable structure. If `findings` has an error, use it only to find more errors.
   */
  readonly value: PlainValue | undefined;
  readonly findings: readonly Finding[];
  /**
   * The position of a value, or of its key. For a path that the file does not have, it is the nearest place above: the
   * key of the parent, or else the first line.
   */
  at(path: DataPath, part?: 'key' | 'value'): Position;
}

/** Deeper nesting is refused. */
const MAX_DEPTH = 64;
/** In characters. A policy set of 10,000 rules has about 3 million. */
const MAX_TEXT = 16 * 1024 * 1024;

const PRIMITIVE_TAGS = /^[-+]?[0-9][0-9_]*_[0-9_]*(?:\.[0-9_]*)?$/;

/**
 * Reads one YAML 1.2 file (core schema) as plain data, strictly. Reports a finding wherever YAML would silently read
 * something that the writer did not mean. Never throws.
 * @param file its name for positions
 */
export function readYamlSource(file: string, text: string): YamlSource {
  const findings: Finding[] = [];
  const position = positionsIn(file, text);
  const report: Report = (code, offset, text) =>
    void findings.push({ code, severity: 'error', ...textOf(text), at: position(offset) });

  const contents = compose(text, position, report);
  const value = contents === null ? undefined : plainData(contents, report, 0);
  return {
    file,
    text,
    value,
    findings,
    at: (path, part = 'value') => position(offsetOf(contents, path, part)),
  };
}

/** Turns offsets into positions. Lines end with LF or CRLF, as in the parser. */
function positionsIn(file: string, text: string): (offset: number) => Position {
  let starts: readonly number[] | null = null;
  return (offset) => {
    starts ??= [0, ...[...text.matchAll(/\n/g)].map(({ index }) => index + 1)];
    let low = 0;
    let high = starts.length - 1;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if ((starts[middle] ?? 0) <= offset) low = middle;
      else high = middle - 1;
    }
    return { file, line: low + 1, column: offset - (starts[low] ?? 0) + 1 };
  };
}

type Report = (code: string, offset: number, text: FindingText) => void;

/** Whether collections of a concrete syntax tree are nested deeper than `most`. */
export function nestsDeeper(root: CST.Token, most: number): boolean {
  const open: { readonly token: CST.Token; readonly depth: number }[] = [{ token: root, depth: 0 }];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { token, depth } = next;
    if (depth > most) return true;
    if (token.type === 'document' && token.value !== undefined) open.push({ token: token.value, depth });
    if (!('items' in token)) continue;
    for (const item of token.items) {
      for (const inner of [item.key, item.value]) if (inner) open.push({ token: inner, depth: depth + 1 });
    }
  }
  return false;
}

/** The tree of the single document in a text, or `null` if there is no usable one. */
function compose(text: string, position: (offset: number) => Position, report: Report): unknown {
  if (text.length > MAX_TEXT) {
    report('file_too_large', 0, `The file has ${text.length} characters; at most ${MAX_TEXT} are read`);
    return null;
  }
  const tokens = [...new Parser().parse(text)];
  // The parser is recursive. It must not reach the end of the stack: there, even compiling a regular expression can end
  // the process, so catching a RangeError is no protection.
  if (tokens.some((token) => nestsDeeper(token, 4 * MAX_DEPTH))) {
    report('too_deep', 0, `The file nests deeper than ${MAX_DEPTH} levels`);
    return null;
  }
  const documents = [
    ...new Composer({
      version: '1.2',
      schema: 'core',
      merge: false,
      uniqueKeys: false,
      strict: true,
      prettyErrors: false,
      logLevel: 'silent',
    }).compose(tokens),
  ];
  const [document, second] = documents;
  if (document === undefined || (isScalar(document.contents) && document.contents.source === '')) {
    report('empty_file', 0, [
      'The file is empty',
      'a file that is being written looks like this too: write it whole, then rename it',
    ]);
    return null;
  }
  if (second !== undefined)
    report('many_documents', second.range[0], [
      'The file has a second document',
      "one file holds one document: remove the line '---', or make two files",
    ]);
  if (document.directives.yaml.explicit === true && document.directives.yaml.version !== '1.2')
    report('yaml_version', 0, ['The file asks for another YAML version', 'remove the %YAML line: files are YAML 1.2']);
  let structure = true;
  let reported = false;
  let lastLine = Number.NEGATIVE_INFINITY;
  for (const { code, pos, message } of document.errors) {
    // An empty alias is reported below, with a better message.
    if (code === 'BAD_ALIAS') continue;
    structure = false;
    // Errors in the lines right below an error are mostly consequences of it.
    const { line } = position(pos[0]);
    const isEcho = line <= lastLine + 1;
    lastLine = Math.max(lastLine, line);
    if (isEcho) continue;
    // For the parser the document ends here, so it would report everything that follows.
    const isOver = message.endsWith('in YAML stream') || message.includes(' in YAML stream:');
    if (isOver && reported) break;
    reported ||= isOver;
    const words = SYNTAX.find(([form]) => form.test(`${code} ${message}`));
    const offset = Math.min(pos[0], Math.max(0, text.length - 1));
    report('yaml_syntax', offset, [words?.[1] ?? message, syntaxHint(text, pos[0]) ?? words?.[2] ?? null]);
  }
  return structure ? document.contents : null;
}

/** Our own messages and hints for the parser errors that people meet most, by pattern of code and message. */
const SYNTAX: readonly (readonly [RegExp, string, string | null])[] = [
  [/^TAB_AS_INDENT/, 'A tab is used for indentation', 'use spaces'],
  [
    /^BLOCK_AS_IMPLICIT_KEY/,
    'A mapping begins in the middle of a line',
    "check the indentation, and quote a value that holds ': '",
  ],
  [/^MULTILINE_IMPLICIT_KEY/, 'A key goes over several lines', "check the indentation; is a ':' missing?"],
  [/^BAD_SCALAR_START/, 'A value cannot begin with this character', 'quote the value'],
  [/^MISSING_CHAR Implicit map keys/, "A ':' is missing after the key", null],
  [/^MISSING_CHAR Missing closing (?:"|')quote/, 'A quote is not closed', null],
  [/ in YAML stream/, 'The data ended before this line', 'check the indentation of the lines above'],
  [
    /Block collections are not allowed within flow/,
    "A ',' is missing inside { } or [ ]",
    "if none is, quote a value that holds ': '",
  ],
  [
    /^MISSING_CHAR Missing , (?:or : )?between flow/,
    "A ',' is missing inside { } or [ ]",
    'if none is, quote what holds one of [ ] { } ,',
  ],
  [/Flow sequence .* end with a \]/, "A list is not closed: ']' is missing", null],
  [/Flow map .* end with a \}/, "A mapping is not closed: '}' is missing", null],
  [
    /^BAD_INDENT All (?:mapping|sequence) items/,
    'This line begins in another column than its neighbours',
    'check the indentation',
  ],
];

function syntaxHint(text: string, offset: number): string | null {
  if (text.slice(0, offset).endsWith('$')) return 'quote a value with ${…} inside [ ] or { }';
  if (text.slice(offset).trim() === '') return 'the file seems to end in the middle';
  return null;
}

/** Turns the tree into plain data, and reports everything that YAML reads differently from how it looks. */
function plainData(node: unknown, report: Report, depth: number): PlainValue {
  if (node === null || node === undefined) return null;
  if (depth > MAX_DEPTH) {
    report('too_deep', start(node), `The file nests deeper than ${MAX_DEPTH} levels`);
    return null;
  }
  if (isAlias(node)) {
    const written = `*${node.source}`;
    report('unquoted_star', start(node), [
      `${written} is read as a YAML alias, not as text`,
      `write "${written}" in quotes; aliases are not used in these files`,
    ]);
    return written;
  }
  if ((isScalar(node) || isCollection(node)) && node.anchor !== undefined)
    report('yaml_anchor', start(node), [
      `&${node.anchor} is read as a YAML anchor`,
      'quote the value, or remove it; anchors are not used in these files',
    ]);
  if ((isScalar(node) || isCollection(node)) && node.tag !== undefined)
    report('yaml_tag', start(node), ['A YAML tag stands before the value', "remove the '!…', or quote the value"]);
  if (isMap(node)) return mapData(node, report, depth);
  if (isSeq(node)) return node.items.map((item) => plainData(item, report, depth + 1));
  if (isScalar(node)) return scalarData(node, report);
  return null;
}

function mapData(node: YAMLMap, report: Report, depth: number): PlainValue {
  const entries = new Map<string, PlainValue>();
  for (const pair of node.items) {
    const key = keyOf(pair, report);
    if (key === null) continue;
    const value = plainData(pair.value, report, depth + 1);
    if (entries.has(key))
      report('duplicate_key', start(pair.key), [
        `'${key}' stands twice in one mapping`,
        'only one can be meant: remove the other',
      ]);
    else entries.set(key, value);
  }
  return Object.fromEntries(entries);
}

function keyOf(pair: Pair, report: Report): string | null {
  const { key } = pair;
  if (isAlias(key)) {
    plainData(key, report, 0);
    return null;
  }
  if (!isScalar(key)) {
    report('key_not_text', start(key), 'A key has to be text');
    return null;
  }
  if (key.anchor !== undefined || key.tag !== undefined) plainData(key, report, 0);
  if (typeof key.value !== 'string') {
    const written = key.source ?? '';
    report('key_not_text', start(key), [
      `The key ${written} is read as ${kindOf(key.value)}, not as text`,
      `write "${written}" in quotes`,
    ]);
    return null;
  }
  if (key.value === '<<' && key.type === 'PLAIN') {
    report('merge_key', start(key), ["'<<' (merge) is not used in these files", 'write the fields out']);
    return null;
  }
  if (key.value === '__proto__') {
    report('reserved_key', start(key), "'__proto__' cannot be a key");
    return null;
  }
  return key.value;
}

function scalarData(node: Scalar, report: Report): PlainValue {
  const { value } = node;
  const source = node.source ?? '';
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) {
      report('number_range', start(node), `${source} is not a finite number`);
      return 0;
    }
    if (Number.isInteger(value) && !Number.isSafeInteger(value))
      report('number_range', start(node), [
        `${source} is beyond 2^53-1 and would be rounded`,
        'quote it where it is an identifier',
      ]);
    else if (/^[-+]?0[0-9]/.test(source))
      report('number_zeros', start(node), [
        `${source} is read as ${value}`,
        'quote it where it is an identifier, else drop the leading zero',
      ]);
    // JSON writes -0 as 0, so -0 would have two forms.
    return value === 0 ? 0 : value;
  }
  if (typeof value === 'string') {
    if (node.type === 'PLAIN' && PRIMITIVE_TAGS.test(source))
      report('number_underscore', start(node), [
        `${source} is text in YAML 1.2, not a number`,
        `write ${source.replaceAll('_', '')}, or quote it where text is meant`,
      ]);
    return value;
  }
  if (value === null || typeof value === 'boolean') return value;
  report('yaml_value', start(node), ['A value of this kind is not used in these files', 'quote it']);
  return null;
}

function kindOf(value: unknown): string {
  return value === null ? 'null' : `a ${typeof value}`;
}

function start(node: unknown): number {
  if (isScalar(node) || isCollection(node) || isAlias(node)) return node.range?.[0] ?? 0;
  return 0;
}

function pairAt(node: unknown, key: string): Pair | undefined {
  if (!isMap(node)) return undefined;
  return node.items.find((pair) => isPair(pair) && isScalar(pair.key) && pair.key.value === key);
}

function step(node: unknown, name: string | number): unknown {
  if (isSeq(node) && typeof name === 'number') return node.items[name];
  return pairAt(node, String(name))?.value;
}

/** Offset of a value or key, or of its nearest existing parent if the path does not exist. */
function offsetOf(contents: unknown, path: DataPath, part: 'key' | 'value'): number {
  let node = contents;
  let offset = start(contents);
  for (const [index, name] of path.entries()) {
    const last = index === path.length - 1;
    const pair = isMap(node) ? pairAt(node, String(name)) : undefined;
    const next = step(node, name);
    if (pair === undefined && (next === undefined || next === null)) return offset;
    const keyOffset = pair === undefined ? start(next) : start(pair.key);
    // For a parent, the position of its key is better: its value begins at the first child.
    offset = pair !== undefined && (!last || part === 'key' || !hasText(next)) ? keyOffset : start(next);
    node = next;
  }
  return offset;
}

/** Whether a value has text to point at. An empty value (`key:`) has none. */
function hasText(node: unknown): boolean {
  return isAlias(node) || isCollection(node) || (isScalar(node) && node.source !== '' && node.range != null);
}
