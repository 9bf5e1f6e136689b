import type { Validator } from '@seriousme/openapi-schema-validator';
import { readFile, stat } from 'node:fs/promises';
import { dirname, resolve as resolvePath, sep } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Composer, LineCounter, Parser } from 'yaml';
import { Gathered } from '../../../../src/bytes/gathered.ts';
import { CommandFailure, fetchFailure } from '../../../../src/cli/ports.ts';
import { readYamlSource, nestsDeeper, type DataPath } from '../../../../src/diagnostics/yaml-source.ts';
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../../../../src/json/value.ts';
import { readJson } from '../../../../src/json/text.ts';
import type { ApiDocument } from './document.ts';

/** The largest document, bytes. GitHub's has 13 million. */
const MOST_BYTES = 64 * 1024 * 1024;
/** How many other documents one may refer to. DigitalOcean's refers to 1,600. */
const MOST_FILES = 5_000;
const PATIENCE_MS = 60_000;
const MOST_FAULTS = 5;

export interface ReadDocument {
  readonly document: ApiDocument;
  /** As the user wrote it. */
  readonly name: string;
  /** Where it violates the specification: `file:line:column: what`. It is still used as far as possible. */
  readonly faults: readonly string[];
}

/** Paths where APIs usually publish their OpenAPI document. `svc init` requests only these, with GET. */
const USUAL_PATHS = [
  '/openapi.json',
  '/openapi.yaml',
  '/v3/api-docs',
  '/swagger.json',
  '/api/openapi.json',
  '/v2/api-docs',
  '/swagger/v1/swagger.json',
  '/openapi/v1.json',
  '/api-docs',
  '/api-json',
  '/openapi/v2',
];

/** Reads the document that the user named. @throws CommandFailure that says where it is wrong */
export async function readDocument(name: string): Promise<ReadDocument> {
  const url = /^https?:\/\//i.test(name) ? urlOf(name) : pathToFileURL(resolvePath(name)).href;
  const text = await readText(url, name);
  return take(name, url, text);
}

/** The first document at one of the places where APIs usually publish theirs; `null` if there is none. */
export async function findDocument(origin: string): Promise<ReadDocument | null> {
  for (const path of USUAL_PATHS) {
    const url = origin + path;
    try {
      const answer = await fetch(url, { redirect: 'error', signal: AbortSignal.timeout(10_000) });
      const text = answer.ok ? await textUpTo(answer) : null;
      if (text === null || /^\s*</.test(text)) {
        if (!answer.ok) await answer.body?.cancel();
        continue;
      }
      const root = parseDocument(url, text);
      // Another kind of document may be here.
      if (versionOf(root) !== null || isJsonObject(root['paths'])) return await take(url, url, text, root);
    } catch (error) {
      if (error instanceof CommandFailure && /openapi|swagger/.test(path)) throw error;
      if (error instanceof TypeError && !(await answers(origin)))
        throw new CommandFailure(`nothing answers at ${origin}; start the API first, or check the URL`);
    }
  }
  return null;
}

async function take(name: string, url: string, text: string, parsed?: JsonObject): Promise<ReadDocument> {
  const root = parsed ?? parseDocument(name, text);
  const version = versionOf(root);
  if (version === null && !isJsonObject(root['paths']))
    throw new CommandFailure(
      `${name} is no OpenAPI document: it says neither \`openapi: 3.…\` nor \`swagger: "2.0"\`, and has no paths`,
    );
  if (version !== null && !/^(?:2\.0|3\.[012])/.test(version))
    throw new CommandFailure(
      `${placeOf(name, text, ['openapi' in root ? 'openapi' : 'swagger'])}: version ${version} is not read; OpenAPI 3.0, 3.1, 3.2 and Swagger 2.0 are`,
    );
  if (!isJsonObject(root['paths']) && version !== null && !isJsonObject(root['webhooks']))
    throw new CommandFailure(`${placeOf(name, text, ['paths'])}: the document has no paths`);
  const others = new Map<string, Json>();
  const faults = await loadOthers(root, url, others);
  return {
    document: { root, url, others },
    name,
    faults: [...(await faultsOfForm(name, text, root, version)), ...faults],
  };
}

/** YAML without quotes turns `2.0` into a number. */
function versionOf(root: JsonObject): string | null {
  const version = root['openapi'] ?? root['swagger'];
  if (typeof version === 'number') return Number.isInteger(version) ? version.toFixed(1) : String(version);
  return typeof version === 'string' ? version : null;
}

async function faultsOfForm(name: string, text: string, root: JsonObject, version: string | null): Promise<string[]> {
  if (version === null) return [`${name}: it does not say its version (openapi: 3.…); it is read as OpenAPI 3.0`];
  const field = 'openapi' in root ? 'openapi' : 'swagger';
  let errors: Awaited<ReturnType<Validator['validate']>>['errors'];
  try {
    const { Validator: Checker } = await import('@seriousme/openapi-schema-validator');
    ({ errors } = await new Checker().validate({ ...root, [field]: version }));
  } catch (error) {
    return [`${name}: it could not be checked: ${error instanceof Error ? error.message : String(error)}`];
  }
  // The checker reports faults of references as a text. They are ignored here, because references are followed where
  // they are used.
  if (!Array.isArray(errors)) return [];
  // The checker reports every alternative that does not match. The deepest fault is the most specific one.
  const deepest = Math.max(...errors.map(({ instancePath }) => instancePath.split('/').length));
  const listed = errors.filter(({ instancePath }) => instancePath.split('/').length === deepest).slice(0, MOST_FAULTS);
  return listed.map(({ instancePath, message, params }) => {
    const steps = instancePath
      .split('/')
      .slice(1)
      .map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'));
    const unknown: unknown = params['additionalProperty'] ?? params['unevaluatedProperty'];
    const what = typeof unknown === 'string' ? `has the unknown field ${unknown}` : (message ?? 'is wrong');
    return `${placeOf(name, text, pathIn(root, steps))}: ${steps.at(-1) ?? 'the document'} ${what}`;
  });
}

/** The steps as a path, with numbers for steps into lists. */
function pathIn(root: JsonObject, steps: readonly string[]): (string | number)[] {
  let node: Json | undefined = root;
  return steps.map((step) => {
    const isIndex = isJsonArray(node);
    node = isJsonArray(node) ? node[Number(step)] : isJsonObject(node) ? node[step] : undefined;
    return isIndex ? Number(step) : step;
  });
}

/**
 * Loads what a document refers to in other files or at other URLs of its origin, and replaces each such reference with
 * a whole URL. After that, a reference can be followed without knowing which document it is in.
 */
async function loadOthers(root: JsonObject, url: string, others: Map<string, Json>): Promise<string[]> {
  const faults: string[] = [];
  const waiting: { readonly url: string; readonly value: Json }[] = [{ url, value: root }];
  const seen = new Set([url]);
  for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
    for (const wanted of qualify(next.value, next.url, url)) {
      if (seen.has(wanted)) continue;
      seen.add(wanted);
      if (seen.size > MOST_FILES)
        throw new CommandFailure(
          `the document refers to more than ${MOST_FILES} others: make one of them all first (npx @redocly/cli bundle)`,
        );
      const refusal = refusalOf(wanted, url);
      if (refusal !== null) {
        faults.push(`${wanted}: ${refusal}`);
        continue;
      }
      try {
        const value = parseDocument(shown(wanted), await readText(wanted, shown(wanted)));
        others.set(wanted, value);
        waiting.push({ url: wanted, value });
      } catch (error) {
        // What it concerns is left out; what refers elsewhere is used.
        if (!(error instanceof CommandFailure)) throw error;
        faults.push(error.message);
      }
    }
  }
  return faults;
}

/** Fields with examples and constants of the API, and texts for people: a `$ref` in them is data. */
const DATA = new Set(['example', 'examples', 'default', 'enum', 'const', 'description', 'summary']);

/** Fields whose members have names that the API chose. */
const MAPS = new Set(['properties', 'patternProperties', 'schemas', 'definitions', '$defs', 'parameters', 'responses']);

/** Replaces references to other documents with whole URLs. @returns those documents */
function qualify(value: Json, base: string, root: string): Set<string> {
  const wanted = new Set<string>();
  const visit = (node: Json, isMap: boolean): void => {
    if (isJsonArray(node)) for (const item of node) visit(item, false);
    if (!isJsonObject(node)) return;
    const ref = node['$ref'];
    if (typeof ref === 'string' && !(ref.startsWith('#') && base === root) && URL.canParse(ref, base)) {
      const target = new URL(ref, base);
      const pointer = target.hash;
      target.hash = '';
      const isRoot = target.href === root;
      if (!isRoot) wanted.add(target.href);
      Object.assign(node, { $ref: isRoot ? pointer || '#' : target.href + pointer });
    }
    for (const [name, item] of Object.entries(node))
      if (isMap || !(DATA.has(name) || name.startsWith('x-'))) visit(item, !isMap && MAPS.has(name));
  };
  visit(value, false);
  wanted.delete(base);
  return wanted;
}

/**
 * Why a document may not refer to a place. It may refer to its own origin, or to its own folder and the folder that
 * `svc` runs in.
 */
function refusalOf(wanted: string, root: string): string | null {
  const [other, own] = [new URL(wanted), new URL(root)];
  if (other.protocol !== own.protocol || other.host !== own.host)
    return 'references to another origin are not followed';
  if (other.protocol !== 'file:') return null;
  const path = fileURLToPath(other);
  const folders = [dirname(fileURLToPath(own)), process.cwd()];
  return folders.some((folder) => path.startsWith(folder + sep))
    ? null
    : 'references are followed within the folder of the document, and the one that svc runs in';
}

function shown(url: string): string {
  return url.startsWith('file:') ? fileURLToPath(url) : url;
}

function urlOf(name: string): string {
  if (!URL.canParse(name)) throw new CommandFailure(`'${name}' is not a URL`);
  return new URL(name).href;
}

async function readText(url: string, name: string): Promise<string> {
  return url.startsWith('file:') ? fileText(fileURLToPath(url), name) : webText(url, name);
}

async function fileText(path: string, name: string): Promise<string> {
  try {
    const { size } = await stat(path);
    if (size > MOST_BYTES) throw new CommandFailure(`${name} is larger than ${MOST_BYTES} bytes`);
    return utf8(await readFile(path), name);
  } catch (error) {
    if (error instanceof CommandFailure) throw error;
    const code = error instanceof Error && 'code' in error ? error.code : null;
    if (code === 'ENOENT') throw new CommandFailure(`There is no file ${name}`);
    if (code === 'EISDIR') throw new CommandFailure(`${name} is a folder; name a file in it`);
    throw new CommandFailure(`${name} cannot be read: ${error instanceof Error ? error.message : String(error)}`);
  }
}

async function webText(url: string, name: string): Promise<string> {
  let answer: Response;
  try {
    answer = await fetch(url, { signal: AbortSignal.timeout(PATIENCE_MS) });
  } catch (error) {
    throw new CommandFailure(`${name} cannot be fetched: ${fetchFailure(error)}`);
  }
  if (!answer.ok) throw new CommandFailure(`${name} answers ${answer.status}`);
  const text = await textUpTo(answer);
  if (text === null) throw new CommandFailure(`${name} is larger than ${MOST_BYTES} bytes`);
  return text;
}

function utf8(bytes: Uint8Array, name: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw new CommandFailure(`${name} is not UTF-8 text`);
  }
}

/** The text of an answer; `null` if it is too long, and then the rest is not read. */
async function textUpTo(answer: Response): Promise<string | null> {
  const gathered = new Gathered();
  for await (const chunk of answer.body ?? []) {
    gathered.add(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength));
    // Returning from the loop closes the connection.
    if (gathered.byteLength > MOST_BYTES) return null;
  }
  return utf8(gathered.take(), answer.url);
}

async function answers(origin: string): Promise<boolean> {
  return fetch(origin, { method: 'HEAD', redirect: 'manual', signal: AbortSignal.timeout(3000) }).then(
    () => true,
    () => false,
  );
}

/** Deeper documents are refused, because the code that walks through them is recursive. */
const MOST_LEVELS = 300;

/** How many values YAML aliases may expand to, as a multiple of what is written. */
const MOST_ALIASES = 1_000;

/** The text of a document as data. @throws CommandFailure that says where it is not JSON or YAML */
function parseDocument(name: string, text: string): JsonObject {
  if (text.trim() === '') throw new CommandFailure(`${name} is empty`);
  const isJson = /^\s*[[{]/.test(text);
  const value = isJson && !/\.ya?ml$/i.test(name) ? parseJson(name, text) : parseYaml(name, text);
  if (!isJsonObject(value))
    throw new CommandFailure(
      `${name} is ${isHtml(text) ? 'an HTML page' : 'a text or a list'}, and no OpenAPI document`,
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
function placeOf(name: string, text: string, path: DataPath): string {
  const source = readYamlSource(name, text);
  if (source.value === undefined) return name;
  const { line, column } = source.at(path);
  return `${name}:${line}:${column}`;
}
