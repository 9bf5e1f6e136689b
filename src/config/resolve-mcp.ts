import { createHash } from 'node:crypto';
import type { FileReading } from '../diagnostics/file-reading.ts';
import { pinnedCall, type Tool } from '../effects/model/tool.ts';
import { canonicalJson } from '../json/text.ts';
import { isJsonObject, type JsonObject } from '../json/value.ts';
import type { ServerWords } from '../pins/compare.ts';
import { type PinLock, type PinnedTool, parsePinLock } from '../pins/lock-file.ts';
import type { McpSettings, UpstreamSettings } from './configuration.ts';
import { at, type Judge } from './judge.ts';
import { checkTarget, namedParam } from './param-names.ts';
import { resolveProbe } from './resolve-probe.ts';
import { schemaChecker } from './schema-fault.ts';
import { toolName } from './schema-fields.ts';
import type { GatewayFile } from './schema.ts';
import { parseDuration } from './units.ts';

type UpstreamEntry = GatewayFile['upstreams'][number];
type McpEntry = NonNullable<UpstreamEntry['mcp']>;

/** Longest lock file, bytes. */
const MAX_LOCK = 16 * 1024 * 1024;

/**
 * The program that is an MCP server; `null` where the server is at an address.
 * @param lookup variables of the gateway by name
 */
export function resolveMcpChild(
  upstream: UpstreamEntry,
  judge: Judge,
  lookup: (name: string) => string | undefined,
): McpSettings['child'] {
  const { mcp } = upstream;
  if (mcp?.command === undefined) return null;
  const both: readonly (readonly [string, unknown])[] = [
    ['url', mcp.url],
    ['credentials', upstream.credentials],
    ['tls', upstream.tls],
  ];
  for (const [field, given] of both)
    if (given !== undefined)
      judge.error('bad_url', at(mcp, 'command'), [
        `The upstream '${upstream.id}' has a command, which runs here, and ${field}`,
        'a program gets its secrets in variables that mcp.env names',
      ]);
  if (mcp.transport === 'sse')
    judge.error('bad_url', at(mcp, 'transport'), [
      `The upstream '${upstream.id}' has a command, and the transport of a server at a url`,
      'leave out transport',
    ]);
  const [command = '', ...args] = mcp.command;
  const env: Record<string, string> = {};
  for (const [index, name] of mcp.env.entries()) {
    const value = lookup(name);
    if (value !== undefined) env[name] = value;
    else
      judge.warn('bad_reference', at(mcp, 'env', index), `The variable ${name} is not set, so the program gets none`);
  }
  return { command, args, env, cwd: mcp.cwd ?? null, sessions: mcp.sessions, idleMs: parseDuration(mcp.idle) ?? 0 };
}

/** The sessions of a server of the transport `sse`; `null` for all others. */
export function resolveMcpSse({ mcp }: UpstreamEntry): McpSettings['sse'] {
  if (mcp?.transport !== 'sse' || mcp.command !== undefined) return null;
  return { sessions: mcp.sessions, idleMs: parseDuration(mcp.idle) ?? 0 };
}

/** The address of an MCP server; `null` where it cannot be used (reported). */
export function resolveMcpUrl(upstream: UpstreamEntry, judge: Judge): URL | null {
  const { mcp } = upstream;
  if (mcp === undefined) return null;
  const fault = (message: string, hint: string | null = null): null => {
    judge.error('bad_url', at(mcp, 'url'), [message, hint]);
    return null;
  };
  if (upstream.url !== undefined)
    judge.error('bad_url', at(upstream, 'url'), [
      'An MCP upstream has its url under mcp',
      'mcp: { url: https://…/mcp }',
    ]);
  if (mcp.url === undefined) {
    judge.error('missing_field', at(mcp), [
      `'url' is missing in mcp`,
      'url: its http or https URL, or command: [a program, …]',
    ]);
    return null;
  }
  const url = URL.canParse(mcp.url) ? new URL(mcp.url) : null;
  if (url === null || !/^https?:$/.test(url.protocol) || url.hostname === '')
    return fault('The url of an MCP server has to be an http or https URL', 'https://mcp.example.com/mcp');
  if (url.username !== '' || url.password !== '')
    return fault('The url of an upstream carries no user or password', 'write credentials: { header, value }');
  if (url.hash !== '') return fault('The url of an MCP server has no fragment');
  return url;
}

/** The tools of the MCP upstreams, by their lock files, and the upstreams with what else the lock files pin. */
export async function resolveMcpTools(
  file: GatewayFile,
  upstreams: readonly UpstreamSettings[],
  judge: Judge,
  reading: FileReading,
): Promise<{ readonly tools: readonly Tool[]; readonly upstreams: readonly UpstreamSettings[] }> {
  const tools: Tool[] = [];
  const words = new Map<string, ServerWords>();
  const declared = new Set(file.tools.map(({ name }) => name));
  for (const entry of file.upstreams) {
    const upstream = upstreams.find(({ id }) => id === entry.id);
    if (entry.mcp === undefined || upstream === undefined) continue;
    const wrong = file.tools.find((tool) => tool.upstream === entry.id);
    if (wrong !== undefined)
      judge.error('mcp_tool_declared', at(wrong, 'upstream'), [
        `The upstream '${entry.id}' is an MCP server: its tools stand in its lock file`,
        'say what holds for single tools in mcp.tools of the upstream',
      ]);
    const lock = await readLock(entry, entry.mcp, judge, reading);
    if (lock === null) continue;
    tools.push(...toolsOf(entry, entry.mcp, upstream, lock, judge));
    words.set(entry.id, { server: lock.server, instructions: lock.instructions });
  }
  checkFederated(file, tools, judge);
  for (const { name, upstream } of tools)
    if (declared.has(name))
      judge.error('duplicate_tool', at(file.upstreams.find(({ id }) => id === upstream) ?? file, 'mcp'), [
        `The tool '${name}' stands in the lock file and under tools`,
        'rename the one under tools',
      ]);
  const pinned = upstreams.map((upstream) => {
    const stated = words.get(upstream.id);
    return upstream.mcp === null || stated === undefined
      ? upstream
      : { ...upstream, mcp: { ...upstream.mcp, words: stated } };
  });
  return { tools, upstreams: pinned };
}

export function lockFileOf(id: string, { pins }: Pick<McpEntry, 'pins'>): string {
  return pins ?? `mcp/${id}.lock.json`;
}

async function readLock(
  upstream: UpstreamEntry,
  entry: McpEntry,
  judge: Judge,
  reading: FileReading,
): Promise<PinLock | null> {
  const fault = (message: string, hint: string | null): null => {
    judge.error('bad_pins', at(entry, 'pins'), [message, hint]);
    return null;
  };
  const file = lockFileOf(upstream.id, entry);
  let bytes: Buffer;
  try {
    if ((await reading.size(file)) > MAX_LOCK) return fault(`${file} is too long for a lock file`, null);
    bytes = await reading.bytes(file);
  } catch {
    return fault(
      `There is no lock file ${file}`,
      'svc tools pin writes it; paths are relative to the working directory',
    );
  }
  const read = parsePinLock(bytes);
  if (!read.ok) return fault(`${file} cannot be used: ${read.message}`, null);
  if (read.lock.upstream !== upstream.id)
    return fault(`${file} holds the pins of '${read.lock.upstream}', not of '${upstream.id}'`, null);
  return read.lock;
}

function toolsOf(
  { id }: UpstreamEntry,
  entry: McpEntry,
  upstream: UpstreamSettings,
  { tools: pins }: PinLock,
  judge: Judge,
): readonly Tool[] {
  judge.unique('tool', entry.tools, 'name');
  const known = new Set(pins.map(({ name }) => name));
  for (const stated of entry.tools) judge.known('pinned tool', at(stated, 'name'), stated.name, known);
  const tools: Tool[] = [];
  for (const pin of pins) {
    const name = `${id}.${pin.name}`;
    if (!new RegExp(toolName).test(name) || name.length > 128) {
      judge.warn(
        'tool_name',
        at(entry, 'pins'),
        `The pinned tool '${pin.name}' cannot be called: it has no usable name`,
      );
      continue;
    }
    const stated = entry.tools.find((one) => one.name === pin.name);
    const kind = stated?.kind ?? (entry.trust_annotations && isAnnotated(pin, 'readOnlyHint') ? 'read' : 'write');
    const meta = [...new Set([...entry.meta, ...(stated?.meta ?? [])])];
    const schema = withMeta(schemaOf(pin, entry, judge), meta, pin, entry, judge);
    if (stated !== undefined) checkTarget(stated, schema, judge);
    const keyFrom =
      stated?.key_from === undefined ? null : namedParam(stated, 'key_from', stated.key_from, schema, judge);
    const federated = federatedName(id, pin.name);
    if (federated === null)
      judge.warn(
        'tool_name',
        at(entry, 'pins'),
        `The pinned tool '${pin.name}' is at /mcp/${id} only: ${id}__${pin.name} is no name of at most 64 letters, digits, '_' and '-'`,
      );
    tools.push({
      name,
      title: titleOf(pin),
      upstream: id,
      kind,
      actionType: 'mcp.tool_call',
      tags: stated?.tags ?? [],
      risk: stated?.risk ?? null,
      env: upstream.env,
      call: {
        kind: 'mcp',
        name: pin.name,
        pinned: pin.tool,
        ...(federated === null ? {} : { federated }),
        ...(meta.length === 0 ? {} : { meta }),
        ...(keyFrom === null ? {} : { keyFrom }),
        repeatMs:
          stated?.repeat_window === undefined
            ? usualRepeatMs(kind, pin, entry)
            : (parseDuration(stated.repeat_window) ?? 0),
        isError: stated?.is_error ?? 'unknown',
        onClientClose: stated?.on_client_close ?? 'finish',
      },
      paramsSchema: schema,
      target: stated?.target ?? null,
      timeoutMs: (stated?.timeout === undefined ? null : parseDuration(stated.timeout)) ?? upstream.timeoutMs,
      maxProcessingMs: parseDuration(stated?.max_processing ?? '60s') ?? 0,
      idempotent: { kind: 'none' },
      digest: digestOf(upstream, pin, meta),
    });
  }
  return tools.map((tool) => withProbe(tool, entry, tools, judge));
}

/** A tool with its probe: a pinned read tool of the same server. */
function withProbe(tool: Tool, { tools: stated }: McpEntry, all: readonly Tool[], judge: Judge): Tool {
  const entry = stated.find(({ name }) => name === pinnedCall(tool)?.name);
  if (entry?.probe === undefined) return tool;
  const { probe } = entry;
  const read = all.find((one) => pinnedCall(one)?.name === probe.tool);
  const fault = (message: string, hint: string): void =>
    judge.error('bad_probe', at(entry, 'probe', 'tool'), [message, hint]);
  if (tool.kind === 'read') fault('A read leaves nothing to find out', 'remove the probe');
  if (read === undefined) fault(`There is no pinned tool '${probe.tool}' at this server`, 'svc tools pin');
  else if (read.kind !== 'read')
    fault(`${read.name} is no read: a probe changes nothing`, `- { name: ${probe.tool}, kind: read }`);
  if (read === undefined) return tool;
  const properties = tool.paramsSchema?.['properties'];
  const names = isJsonObject(properties) ? new Set(Object.keys(properties)) : null;
  const asked = { entry, names, isKeyed: false };
  return { ...tool, probe: resolveProbe(probe, { read, params: probe.arguments }, asked, judge) };
}

function digestOf(
  { id, url, credentials, mcp }: UpstreamSettings,
  { name, sha256 }: PinnedTool,
  meta: readonly string[],
): string {
  const child = mcp?.child ?? null;
  const bound: JsonObject = {
    ...(child !== null && {
      child: { command: child.command, args: child.args, cwd: child.cwd, env: Object.keys(child.env).sort() },
    }),
    upstream: { id, url, path: mcp?.path ?? '', credentials: credentials?.header ?? null },
    mcp: { name, sha256, ...(meta.length > 0 && { meta }) },
  };
  return createHash('sha256').update(canonicalJson(bound)).digest('base64url');
}

function titleOf({ name, tool }: PinnedTool): string {
  const { title, annotations } = tool;
  if (typeof title === 'string' && title !== '') return title;
  const annotated = isJsonObject(annotations) ? annotations['title'] : undefined;
  return typeof annotated === 'string' && annotated !== '' ? annotated : name;
}

function isAnnotated({ tool: { annotations } }: PinnedTool, hint: 'readOnlyHint' | 'idempotentHint'): boolean {
  return isJsonObject(annotations) && annotations[hint] === true;
}

/** A host that lost an answer calls again within this time, ms. */
const REPEAT_MS = 120_000;

function usualRepeatMs(kind: Tool['kind'], pin: PinnedTool, { trust_annotations: trusted }: McpEntry): number {
  return kind === 'read' || (trusted && isAnnotated(pin, 'idempotentHint')) ? 0 : REPEAT_MS;
}

/** The schema of the arguments. One that cannot be checked here is the server's to check. */
function schemaOf({ name, tool }: PinnedTool, entry: McpEntry, judge: Judge): JsonObject | null {
  const { inputSchema } = tool;
  if (!isJsonObject(inputSchema)) return null;
  // Pinned schemas of draft 7 are read as 2020-12: for arguments of tools they mean the same.
  const { $schema: _dialect, $id: _name, ...schema } = inputSchema;
  const fault = schemaChecker()(schema);
  if (fault === null) return schema;
  judge.warn(
    'schema_not_checked',
    at(entry, 'pins'),
    `The arguments of '${name}' are not checked here, only by the server: ${fault.message}`,
  );
  return null;
}

/** The schema of the params: the arguments, and beside them what is declared of `_meta`. */
function withMeta(
  schema: JsonObject | null,
  meta: readonly string[],
  { name }: PinnedTool,
  entry: McpEntry,
  judge: Judge,
): JsonObject | null {
  if (meta.length === 0) return schema;
  const properties = isJsonObject(schema?.['properties']) ? schema['properties'] : {};
  if (properties['_meta'] !== undefined)
    judge.error('bad_pins', at(entry, 'meta'), [
      `The tool '${name}' has an argument _meta, so nothing of the message's _meta can be declared for it`,
      'name the members under mcp.tools of those tools that need them',
    ]);
  const declared = {
    type: 'object',
    properties: Object.fromEntries(meta.map((one) => [one, {}])),
    additionalProperties: false,
  };
  return { ...schema, properties: { ...properties, _meta: declared } };
}

/** What clients and models take for the name of a tool. */
const USABLE = /^[A-Za-z0-9_-]{1,64}$/;

/** The name of a tool at the door to all MCP servers; `null` if it would be none that clients take. */
function federatedName(upstream: string, tool: string): string | null {
  const name = `${upstream}__${tool}`;
  return USABLE.test(name) ? name : null;
}

/** No tool of one server may have the name of another's: ids may have `__` in them, too. */
function checkFederated(file: GatewayFile, tools: readonly Tool[], judge: Judge): void {
  const owners = new Map<string, Tool>();
  for (const tool of tools) {
    const name = tool.call.kind === 'mcp' ? tool.call.federated : undefined;
    if (name === undefined) continue;
    const other = owners.get(name);
    if (other === undefined) owners.set(name, tool);
    else
      judge.error('duplicate_tool', at(file.upstreams.find(({ id }) => id === tool.upstream) ?? file, 'id'), [
        `At /mcp both '${other.name}' and '${tool.name}' would be ${name}`,
        "give one of the two upstreams an id without '__'",
      ]);
  }
}
