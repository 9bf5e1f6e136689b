import { Composer, LineCounter, Parser } from 'yaml';
import { readYamlSource, nestsDeeper, type DataPath } from '../../../../src/diagnostics/yaml-source.ts';
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../../../../src/json/value.ts';
import { CommandFailure } from '../../../../src/cli/ports.ts';
import { readJson } from '../../../../src/json/read.ts';

/** Deeper documents are refused, because the code that walks through them is recursive. */
const MOST_LEVELS = 300;

/** How many values YAML aliases may expand to, as a multiple of what is written. */
const MOST_ALIASES = 1_000;

/** The text of a document as data. @throws CommandFailure that says where it is not JSON or YAML */
export function parseDocument(name: string, text: string): JsonObject {
  const plain = text.replace(/^\uFEFF/, '');
  if (plain.trim() === '') throw new CommandFailure(`${name} is empty`);
  const isJson = /^\s*[[{]/.test(plain);
  const value = isJson && !/\.ya?ml$/i.test(name) ? parseJson(name, plain) : parseYaml(name, plain);
  if (!isJsonObject(value))
    throw new CommandFailure(
      `${name} is ${isHtml(plain) ? 'an HTML page' : 'a text or a list'}, and no OpenAPI document`,
    );
  refuseDeep(name, value);
  return value;
}

function isHtml(text: string): boolean {
  return /^\s*<(?:!doctype|html)/i.test(text);
}

function parseJson(name: string, text: string): Json {
  try {
    return readJson(text);
  } catch (error) {
    const message = error instanceof Error ? error.message : 'it is not JSON';
    const position = /position (\d+)/.exec(message)?.[1];
    const offset = position === undefined ? text.trimEnd().length : Number(position);
    const reason = message
      .replace(/,? ?(?:\.{3})?"[^]*" is not valid JSON$/, '')
      .replace(/ in JSON at position.*$/s, '')
      .replace(/ \(line.*$/s, '');
    throw new CommandFailure(`${name}:${place(text, offset)}: it is not JSON: ${reason}`);
  }
}

function parseYaml(name: string, text: string): Json {
  const lines = new LineCounter();
  const tokens = [...new Parser(lines.addNewLine).parse(text)];
  if (tokens.some((token) => nestsDeeper(token, 2 * MOST_LEVELS))) throw tooDeep(name);
  const [document] = new Composer({ merge: true, prettyErrors: false, logLevel: 'silent' }).compose(tokens);
  if (document === undefined) throw new CommandFailure(`${name} is empty`);
  const [fault] = document.errors;
  if (fault !== undefined) {
    const what = isHtml(text) ? 'it is an HTML page' : `it is not YAML: ${fault.message}`;
    throw new CommandFailure(`${name}:${place(text, fault.pos[0])}: ${what}`);
  }
  try {
    const value: Json = document.toJS({ maxAliasCount: MOST_ALIASES });
    return value;
  } catch (error) {
    throw new CommandFailure(`${name}: ${error instanceof Error ? error.message : 'its aliases cannot be read'}`);
  }
}

/** Line and column of an offset, counted as editors do. */
function place(text: string, offset: number): string {
  const before = text.slice(0, offset);
  const line = before.split('\n').length;
  return `${line}:${offset - before.lastIndexOf('\n')}`;
}

/** A YAML alias may be inside the value that it names; that nests without end. */
function refuseDeep(name: string, value: Json): void {
  const open: { readonly value: Json; readonly level: number }[] = [{ value, level: 0 }];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    if (next.level > MOST_LEVELS) throw tooDeep(name);
    const inner = isJsonArray(next.value) ? next.value : isJsonObject(next.value) ? Object.values(next.value) : [];
    for (const one of inner)
      if (typeof one === 'object' && one !== null) open.push({ value: one, level: next.level + 1 });
  }
}

function tooDeep(name: string): CommandFailure {
  return new CommandFailure(`${name} nests deeper than ${MOST_LEVELS} levels`);
}

/** `file:line:column` of a value of the document; only the file's name if the place is not known. */
export function placeOf(name: string, text: string, path: DataPath): string {
  const source = readYamlSource(name, text);
  if (source.value === undefined) return name;
  const { line, column } = source.at(path);
  return `${name}:${line}:${column}`;
}
