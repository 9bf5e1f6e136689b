import { join } from 'node:path';
import { loadConfiguration } from '../../../src/config/load.ts';
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../../../src/json/value.ts';
import { type HttpTool, isHttpTool, pathParams } from '../../../src/effects/model/tool.ts';
import type { CliContext } from '../../../src/cli/command.ts';
import type { InitOptions } from '../../../src/cli/init.ts';
import { plainFolder } from './options.ts';
import { draftFrom, type Source } from './source.ts';
import type { DraftTool } from './openapi/draft.ts';
import { plainText } from './openapi/words.ts';
import { CommandFailure } from '../../../src/cli/ports.ts';
import { json } from '../../../src/cli/terminal.ts';

interface Change {
  readonly change: 'new' | 'gone' | 'changed';
  readonly tool: string;
  /** `POST /v1/refunds`. */
  readonly operation: string;
  /** For a changed tool: the changes, one line each. */
  readonly details: readonly string[];
}

const SIGNS: Readonly<Record<Change['change'], string>> = { new: '+', gone: '-', changed: '~' };

/** `svc init --diff`: compares the tools that a document gives with the configured ones. Writes nothing. */
export async function showChanges(options: InitOptions, from: Source, { terminal, exit }: CliContext): Promise<void> {
  if (from.found === null) throw new CommandFailure('No OpenAPI document was found; name it with --openapi');
  const file = join(plainFolder(options.dir), 'gateway.yaml');
  const { configuration } = await loadConfiguration(file);
  const upstream = configuration.upstreams.find(({ id, url }) =>
    options.name === undefined ? url === from.origin : id === options.name,
  );
  if (upstream === undefined)
    throw new CommandFailure(
      `${file} has no upstream ${options.name ?? from.origin}; name the one that the document belongs to with --name ID`,
    );
  const { draft, upstreams } = draftFrom(options, from, upstream.id, null);
  const ids = new Set(upstreams.map(({ id }) => id));
  const changes = changesOf(
    configuration.tools.filter(isHttpTool).filter((tool) => ids.has(tool.upstream)),
    draft.tools,
  );
  if (options.json) terminal.out(json({ openapi: from.found.name, file, changes }));
  else if (changes.length === 0) terminal.out(`${plainText(from.found.name, 200)} changes nothing in ${file}.`);
  else {
    for (const { change, operation, tool, details } of changes) {
      terminal.out(`${SIGNS[change]} ${operation}  ${tool}`);
      for (const detail of details) terminal.out(`    ${detail}`);
    }
    const count = (kind: Change['change']): number => changes.filter(({ change }) => change === kind).length;
    terminal.out(`${count('new')} new, ${count('gone')} gone, ${count('changed')} changed. Nothing was written.`);
  }
  exit(changes.length === 0 ? 0 : 1);
}

/** Two tools correspond if they send the same method to the same path, whatever their names are. */
function changesOf(now: readonly HttpTool[], then: readonly DraftTool[]): readonly Change[] {
  const known = new Map(
    now.map((tool) => [keyOf(tool.upstream, tool.call.request.method, tool.call.request.path), tool]),
  );
  const changes: Change[] = [];
  for (const tool of then) {
    const key = keyOf(tool.upstream, tool.method, tool.path);
    const before = known.get(key);
    known.delete(key);
    const operation = `${tool.method} ${tool.path}`;
    if (before === undefined) changes.push({ change: 'new', tool: tool.name, operation, details: [] });
    else {
      const details = differences(before, tool);
      if (details.length > 0) changes.push({ change: 'changed', tool: before.name, operation, details });
    }
  }
  for (const { name, call } of known.values())
    changes.push({ change: 'gone', tool: name, operation: `${call.request.method} ${call.request.path}`, details: [] });
  return changes;
}

function keyOf(upstream: string, method: string, path: string): string {
  return `${upstream} ${method} ${path.replace(/\{[^{}]*\}/g, '{}')}`;
}

/** The most details that are shown for one tool. */
const MOST_DETAILS = 40;

function differences(before: HttpTool, after: DraftTool): readonly string[] {
  const details: string[] = [];
  const schema = withNames(
    JSON.parse(JSON.stringify(after.schema)),
    pathParams(after.path),
    pathParams(before.call.request.path),
  );
  const old = before.paramsSchema;
  if (old !== null) compare(old, schema, '', details);
  for (const [name, header] of after.headers)
    if (before.call.request.headers[name] !== header.toLowerCase() && old?.['properties'] !== undefined)
      details.push(`${name}: is sent as the header ${header}`);
  const placed = new Set(before.call.request.query);
  const moved = after.query.filter((name) => !placed.has(name) && isNamed(old, name));
  for (const name of moved) details.push(`${shown(name)}: is sent in the query`);
  const styles = before.call.request.queryStyles ?? {};
  for (const [name, style] of Object.entries(after.queryStyles))
    if (placed.has(name) && styles[name] !== style)
      details.push(`${shown(name)}: is written in the query as query_styles: ${style} says`);
  return details.length <= MOST_DETAILS
    ? details
    : [...details.slice(0, MOST_DETAILS), `and ${details.length - MOST_DETAILS} more`];
}

/** Gives a path param the name that the configured tool uses: a different name there changes nothing for the API. */
function withNames(schema: JsonObject, names: readonly string[], own: readonly string[]): JsonObject {
  const called = new Map(names.map((name, index) => [name, own[index] ?? name]));
  const properties = Object.entries(objectIn(schema, 'properties')).map(([name, value]): [string, Json] => [
    called.get(name) ?? name,
    value,
  ]);
  const required = [...namesIn(schema)].map((name) => called.get(name) ?? name);
  return { ...schema, required, properties: Object.fromEntries(properties) };
}

function isNamed(schema: JsonObject | null, name: string): boolean {
  const properties = schema?.['properties'];
  return isJsonObject(properties) && Object.hasOwn(properties, name);
}

/** Lists the differences between two schemas, member by member. */
function compare(before: Json, after: Json, at: string, details: string[]): void {
  if (!isJsonObject(before) || !isJsonObject(after)) {
    if (JSON.stringify(before) !== JSON.stringify(after))
      details.push(`${at || 'params'}: ${text(before)} → ${text(after)}`);
    return;
  }
  const [old, now] = [objectIn(before, 'properties'), objectIn(after, 'properties')];
  const [needed, needs] = [namesIn(before), namesIn(after)];
  for (const [name, schema] of Object.entries(now)) {
    const path = at === '' ? shown(name) : `${at}.${shown(name)}`;
    const other = old[name];
    if (other === undefined) details.push(`${path}: new${needs.has(name) ? ', required' : ''}`);
    else {
      if (needs.has(name) !== needed.has(name))
        details.push(`${path}: ${needs.has(name) ? 'now' : 'no longer'} required`);
      compare(other, schema, path, details);
    }
  }
  for (const name of Object.keys(old))
    if (now[name] === undefined) details.push(`${at === '' ? shown(name) : `${at}.${shown(name)}`}: gone`);
  const [oldDefs, newDefs] = [objectIn(before, '$defs'), objectIn(after, '$defs')];
  for (const [name, schema] of Object.entries(newDefs)) {
    const other = oldDefs[name];
    if (other !== undefined) compare(other, schema, shown(name), details);
  }
  const keywords = new Set([...Object.keys(before), ...Object.keys(after)]);
  for (const keyword of [...keywords].filter((one) => !['properties', 'required', '$defs'].includes(one))) {
    const [one, other] = [before[keyword], after[keyword]];
    if (isJsonObject(one) && isJsonObject(other)) compare(one, other, `${at || 'params'}[${keyword}]`, details);
    else if (JSON.stringify(one) !== JSON.stringify(other))
      details.push(`${at || 'params'}: ${keyword} ${text(one)} → ${text(other)}`);
  }
}

function objectIn(schema: JsonObject, keyword: string): JsonObject {
  const value = schema[keyword];
  return isJsonObject(value) ? value : {};
}

function namesIn(schema: JsonObject): ReadonlySet<string> {
  const value = schema['required'];
  return new Set(isJsonArray(value) ? value.filter((name) => typeof name === 'string') : []);
}

function shown(name: string): string {
  return plainText(name, 80);
}

function text(value: Json | undefined): string {
  return value === undefined ? 'none' : plainText(JSON.stringify(value), 100);
}
