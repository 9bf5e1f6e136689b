import { createHash } from 'node:crypto';
import { createReading, type FileReading } from '../diagnostics/file-reading.ts';
import { inReadingOrder, type Finding, type Position } from '../diagnostics/finding.ts';
import { InvalidFiles, count, renderFindings } from '../diagnostics/render.ts';
import { readYamlSource, type DataPath, type PlainValue, type YamlSource } from '../diagnostics/yaml-source.ts';
import { canonicalJson } from '../json/text.ts';
import type { Json } from '../json/value.ts';
import type { Configuration, McpSettings, UpstreamSettings } from './configuration.ts';
import { environmentLookup } from './environment.ts';
import { expandReferences, type Tree } from './expand.ts';
import { at, createJudge } from './judge.ts';
import { lockFileOf } from './resolve-mcp.ts';
import { filesOfTls } from './resolve-tls.ts';
import { resolveConfiguration, resolveUpstreams } from './resolve.ts';
import { GATEWAY_FILE, type GatewayFile } from './schema.ts';
import { checkShape } from './shape.ts';

export interface LoadedConfiguration {
  readonly configuration: Configuration;
  readonly warnings: readonly Finding[];
  /** Text of the files by name, with secrets hidden, to show warnings with. */
  readonly sources: ReadonlyMap<string, string>;
  /** Files to watch for changes. Policy files are not among them; the policies name those. */
  readonly files: readonly string[];
}

export interface LoadOptions {
  /** Has priority over the environment when `${NAME}` is expanded. */
  readonly environment: Readonly<Record<string, string>>;
  /** Only these are read: what else the file has may need variables that are not set here. All, where it is absent. */
  readonly sections?: readonly (keyof GatewayFile)[];
}

/** What a command needs that works in the store. */
export const OF_STORE = ['store', 'secrets', 'retention', 'users', 'roles', 'auth', 'workspaces'] as const;

/**
 * Reads, checks, resolves and freezes a configuration.
 * @param file path of `gateway.yaml`, relative to the working directory
 * @throws InvalidFiles with all faults at once; it never shows a secret
 */
export async function loadConfiguration(
  file: string,
  { environment, sections }: LoadOptions = { environment: {} },
  reading: FileReading = createReading(),
): Promise<LoadedConfiguration> {
  const { source: whole, findings, sources } = await readFile(file, reading);
  const source = sections === undefined ? whole : { ...whole, value: onlyOf(whole.value, sections) };
  const credentialFiles: string[] = [];
  const configuration = await judgeFile(source, environment, findings, reading, credentialFiles);
  const ordered = inReadingOrder(findings);
  if (configuration === null || ordered.some(({ severity }) => severity === 'error'))
    throw new InvalidFiles(ordered, sources);
  return { configuration: deepFreeze(configuration), warnings: ordered, sources, files: [file, ...credentialFiles] };
}

/**
 * Reads one MCP server out of a configuration, as a gateway would, without its pins: they may not be written yet, or be
 * what somebody is about to mend.
 * @throws InvalidFiles with the faults in the form of the file and in the meaning of this upstream
 */
export async function loadMcpServer(
  file: string,
  id: string,
  { environment }: LoadOptions,
  reading: FileReading = createReading(),
): Promise<
  Pick<LoadedConfiguration, 'warnings' | 'sources'> & {
    readonly upstream: UpstreamSettings & { readonly mcp: McpSettings };
    /** Its lock file, which may not be there yet. */
    readonly lock: string;
  }
> {
  const { source: whole, findings, sources } = await readFile(file, reading);
  const source = { ...whole, value: onlyOf(whole.value, ['upstreams']) };
  const fault = (): InvalidFiles => new InvalidFiles(inReadingOrder(findings), sources);
  const shaped = shapeOf(source, environment, findings);
  if (shaped === null || findings.some(({ severity }) => severity === 'error')) throw fault();
  const judge = createJudge(source, shaped.pathOf, findings);
  const servers = shaped.file.upstreams.filter(({ mcp }) => mcp !== undefined);
  judge.known('MCP server', at(shaped.file, 'upstreams'), id, new Set(servers.map((server) => server.id)));
  const [entry] = servers.filter((server) => server.id === id);
  if (entry?.mcp === undefined) throw fault();
  const [upstream] = await resolveUpstreams({ ...shaped.file, upstreams: [entry] }, judge, reading, shaped.lookup);
  if (!upstream?.mcp || findings.some(({ severity }) => severity === 'error')) throw fault();
  const found = { upstream: { ...upstream, mcp: upstream.mcp }, lock: lockFileOf(id, entry.mcp) };
  return { ...found, warnings: inReadingOrder(findings), sources };
}

/** With names that are no section: a misspelled `store` must not pass for the store's defaults. */
function onlyOf(value: PlainValue | undefined, sections: readonly string[]): PlainValue | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  const isRead = ([name]: [string, unknown]): boolean => sections.includes(name) || !(name in GATEWAY_FILE.properties);
  return Object.fromEntries(Object.entries(value).filter(isRead));
}

function many(items: readonly unknown[], noun: string): string {
  return `${items.length} ${noun}${items.length === 1 ? '' : 's'}`;
}

/** Checks a configuration without using it. `exit`: 0 clean or only warnings, 1 findings, 2 the file cannot be read. */
export async function checkConfiguration(
  file: string,
  options: LoadOptions & { readonly color: boolean } = { environment: {}, color: false },
): Promise<{ readonly exit: 0 | 1 | 2; readonly text: string; readonly findings: readonly Finding[] }> {
  try {
    const { configuration, warnings, sources } = await loadConfiguration(file, options);
    const { tools, routes, upstreams } = configuration;
    const summary = `${file} holds: ${[many(upstreams, 'upstream'), many(tools, 'tool'), many(routes, 'route')].join(', ')}`;
    if (warnings.length === 0) return { exit: 0, text: `${summary}\n`, findings: [] };
    const text = `${renderFindings(warnings, sources, options)}${summary} (${count(warnings)})\n`;
    return { exit: 0, text, findings: warnings };
  } catch (error) {
    if (!(error instanceof InvalidFiles)) throw error;
    const text = renderFindings(error.findings, error.sources, options);
    const isUnreadable = error.findings.every(({ code }) => code === 'file_unreadable');
    return { exit: isUnreadable ? 2 : 1, text, findings: error.findings };
  }
}

async function readFile(
  file: string,
  reading: FileReading,
): Promise<{ readonly source: YamlSource; readonly findings: Finding[]; readonly sources: Map<string, string> }> {
  const read = await readText(file, reading);
  if (typeof read !== 'string') throw new InvalidFiles([read], new Map());
  const source = readYamlSource(file, read);
  const credentials = literalCredentials(source).map(({ value }) => value);
  return { source, findings: [...source.findings], sources: new Map([[file, withoutSecrets(read, credentials)]]) };
}

async function readText(file: string, reading: FileReading): Promise<string | Finding> {
  const unreadable = (message: string, hint: string | null): Finding => {
    return { code: 'file_unreadable', severity: 'error', message, hint, at: null };
  };
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(await reading.bytes(file));
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : '';
    switch (code) {
      case 'ENOENT':
        return unreadable(`There is no file ${file}`, 'paths are relative to the working directory');
      case 'EISDIR':
        return unreadable(`${file} is a folder`, 'name the file in it');
      case 'EACCES':
        return unreadable(`${file} may not be read by this user`, null);
      case 'EINVAL':
        return unreadable(`${file} is a pipe or a device`, 'name a file');
      case 'ERR_ENCODING_INVALID_ENCODED_DATA':
        return { ...unreadable(`${file} is not UTF-8 text`, 'save it as UTF-8'), code: 'not_utf8' };
      default:
        return unreadable(`${file} cannot be read (${code || 'unknown fault'})`, null);
    }
  }
}

/** A file whose form is right, as far as it is. */
interface Shaped {
  readonly file: GatewayFile;
  /** The data of the file with its faulty items. */
  readonly tree: Tree;
  readonly pathOf: (item: object) => DataPath;
  readonly lookup: (name: string) => string | undefined;
  /** Whether a finding is about a place that has no error yet. */
  readonly isNews: (finding: Finding) => boolean;
}

/** Expands references and checks the form. @param findings gets what is wrong */
function shapeOf(
  source: YamlSource,
  environment: Readonly<Record<string, string>>,
  findings: Finding[],
): Shaped | null {
  const { value } = source;
  if (value === undefined) return null;
  const add = (severity: Finding['severity'], code: string, path: DataPath, message: string, hint: string): void => {
    findings.push({ code, severity, message, hint, at: source.at(path) });
  };
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    add('error', 'wrong_type', [], 'The file has to be a mapping of sections', 'server: { … }, store: { … }, …');
    return null;
  }
  const secrets = findLiteralSecrets(value);
  for (const { path, what } of secrets)
    add('error', 'literal_secret', path, `The file holds ${what}`, 'put it into the environment and write ${NAME}');
  for (const { path } of literalCredentials(source))
    if (!secrets.some((known) => String(known.path) === String(path)))
      add(
        'warning',
        'literal_secret',
        path,
        'The file holds credentials',
        'put them into the environment and write ${NAME}',
      );
  const lookup = environmentLookup(environment);
  const expanded = expandReferences(value, lookup, (path, message, hint) =>
    add('error', 'bad_reference', path, message, hint),
  );
  const tree = structuredClone(expanded.tree);
  const { file, pathOf, findings: faults } = checkShape(expanded, source);
  // If YAML or a reference has already caused an error at a place, further shape errors there add nothing.
  const reported = new Set(findings.filter(({ severity }) => severity === 'error').map(({ at }) => placeOf(at)));
  const isNews = ({ code, at }: Finding): boolean =>
    /^missing|^unknown|^not_yet/.test(code) || !reported.has(placeOf(at));
  findings.push(...faults.filter(isNews));
  return file === null ? null : { file, tree, pathOf, lookup, isNews };
}

async function judgeFile(
  source: YamlSource,
  environment: Readonly<Record<string, string>>,
  findings: Finding[],
  reading: FileReading,
  credentialFiles: string[],
): Promise<Configuration | null> {
  const shaped = shapeOf(source, environment, findings);
  if (shaped === null) return null;
  const { file, tree, pathOf, lookup, isNews } = shaped;
  const judged: Finding[] = [];
  const judge = createJudge(source, pathOf, judged);
  const configuration = await resolveConfiguration(file, tree, judge, reading, lookup);
  findings.push(...judged.filter(isNews));
  for (const { id, credentials, tls, mcp } of file.upstreams) {
    if (mcp !== undefined) credentialFiles.push(lockFileOf(id, mcp));
    if (typeof credentials === 'object' && credentials.file !== undefined) credentialFiles.push(credentials.file);
    if (tls !== undefined) credentialFiles.push(...filesOfTls(tls));
  }
  for (const { tls } of [file.server, ...file.routes]) if (tls !== undefined) credentialFiles.push(tls.cert, tls.key);
  const { digest, sharedDigest } = digestsOf(file, source, pathOf);
  return { ...configuration, digest: withFiles(digest, file, configuration), sharedDigest };
}

function placeOf(at: Position | null): string {
  return at === null ? '' : `${at.line}:${at.column}`;
}

/** Credentials that the file holds instead of taking them from the environment, in places that have them. */
function literalCredentials({ value: file }: YamlSource): { readonly path: DataPath; readonly value: string }[] {
  const found: { path: DataPath; value: string }[] = [];
  const note = (path: DataPath, form = /^(.+)$/s): void => {
    const written = valueAt(file, path);
    const value = typeof written === 'string' ? form.exec(written)?.[1] : undefined;
    if (value !== undefined && !value.includes('${')) found.push({ path, value });
  };
  const each = (section: string): DataPath[] =>
    Object.keys(field(file, section) ?? {}).map((index) => [section, Number(index)]);
  note(['store', 'archive', 'secret_key']);
  for (const form of [PASSWORD_IN_URL, /\?(.+)$/]) note(['store', 'url'], form);
  for (const upstream of each('upstreams')) note([...upstream, 'credentials', 'value']);
  for (const webhook of each('webhooks')) {
    note([...webhook, 'url'], PASSWORD_IN_URL);
    for (const name of ['secret', 'previous_secret']) note([...webhook, name]);
  }
  return found;
}

const PASSWORD_IN_URL = /\/\/[^/@]*:([^/]+)@/;

function valueAt(value: PlainValue | undefined, path: DataPath): PlainValue | undefined {
  return path.reduce((node, step) => (Array.isArray(node) ? node[Number(step)] : field(node, String(step))), value);
}

function field(value: PlainValue | undefined, name: string): PlainValue | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  return Object.entries(value).find(([key]) => key === name)?.[1];
}

/** Digests of all settings. Credentials count as written in the file, without the values from the environment. */
function digestsOf(
  file: GatewayFile,
  source: YamlSource,
  pathOf: (item: object) => DataPath,
): Pick<Configuration, 'digest' | 'sharedDigest'> {
  const upstreams = file.upstreams.map((upstream) => {
    const value = valueAt(source.value, [...pathOf(upstream), 'credentials', 'value']) ?? null;
    return typeof upstream.credentials !== 'object'
      ? upstream
      : { ...upstream, credentials: { ...upstream.credentials, value } };
  });
  const url = valueAt(source.value, ['store', 'url']) ?? null;
  const store = file.store.url === undefined ? file.store : { ...file.store, url };
  const {
    server: _listens,
    secrets: _keeps,
    receipts: _signs,
    telemetry: _logs,
    brain: _reads,
    policies,
    ...shared
  } = file;
  const routes = shared.routes.map(({ listen: _at, tls: _with, ...route }) => route);
  const { journal: _writes, path: _holds, ...sharedStore } = store;
  return {
    digest: digestOf({ ...file, store, upstreams }),
    sharedDigest: digestOf({ ...shared, routes, store: sharedStore, upstreams, mode: policies.mode ?? null }),
  };
}

/** Adds the content of credential, TLS and lock files to the digest of this gateway, so that a new value takes effect. */
function withFiles(
  digest: string,
  file: GatewayFile,
  { server, listeners, upstreams, tools }: Pick<Configuration, 'server' | 'listeners' | 'upstreams' | 'tools'>,
): string {
  const pairs = [server, ...listeners].flatMap(({ tls }) => (tls === null ? [] : [tls.cert, tls.key]));
  const towards = upstreams.flatMap(({ tls }) =>
    tls === null ? [] : [tls.ca ?? '', tls.client?.cert ?? '', tls.client?.key ?? ''],
  );
  const held = file.upstreams.flatMap(({ credentials }, at) =>
    typeof credentials !== 'object' || credentials.file === undefined ? [] : [upstreams[at]?.credentials?.value ?? ''],
  );
  const pinned = tools.flatMap(({ call, digest: ofTool }) => (call.kind === 'mcp' ? [ofTool] : []));
  held.push(...pairs, ...towards, ...pinned);
  return held.length === 0
    ? digest
    : createHash('sha256')
        .update(JSON.stringify([digest, held]))
        .digest('base64url');
}

function digestOf(data: object): string {
  const plain: Json = JSON.parse(JSON.stringify(data));
  return createHash('sha256').update(canonicalJson(plain)).digest('base64url');
}

export function deepFreeze<Value>(value: Value): Value {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value;
  Object.freeze(value);
  for (const item of Object.values(value)) deepFreeze(item);
  return value;
}

/** Secrets that can be recognised by their form. The first group is the part that may be shown. */
const KNOWN: readonly { readonly what: string; readonly form: RegExp }[] = [
  { what: 'a key of this gateway', form: /\b(svc_(?:acct|agent|admin|mcp)_)[A-Za-z0-9]{16,}/g },
  { what: 'a Stripe key', form: /\b([sr]k_(?:live|test)_)[A-Za-z0-9]{8,}/g },
  { what: 'an AWS access key', form: /\b(A(?:KIA|SIA))[A-Z0-9]{12,}/g },
  { what: 'a GitHub token', form: /\b(gh[pousr]_|github_pat_)[A-Za-z0-9_]{20,}/g },
  { what: 'a secret of a webhook', form: /\b(whsec_)[A-Za-z0-9+/=]{16,}/g },
  { what: 'the address of a Slack webhook', form: /(https:\/\/hooks\.slack\.com\/services\/)[A-Za-z0-9/]{16,}/g },
  { what: 'a Slack token', form: /\b(xox[abposr]-)[A-Za-z0-9-]{10,}/g },
  {
    what: 'a private key',
    form: /(-----BEGIN [A-Z ]*PRIVATE KEY-----)[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)/g,
  },
  { what: 'a JSON Web Token', form: /\b(eyJ)[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?/g },
];

/** Every value with a secret of a known form, before `${…}` is replaced. */
function findLiteralSecrets(value: PlainValue): { readonly path: DataPath; readonly what: string }[] {
  const found: { path: DataPath; what: string }[] = [];
  const visit = (node: PlainValue, path: DataPath): void => {
    if (typeof node === 'string') {
      for (const { what, form } of KNOWN) if (node.search(form) >= 0) found.push({ path, what });
      return;
    }
    if (typeof node !== 'object' || node === null) return;
    for (const [name, item] of Object.entries(node)) visit(item, [...path, Array.isArray(node) ? Number(name) : name]);
  };
  visit(value, []);
  return found;
}

/**
 * The text of a file with its secrets hidden: those of a known form, and the given literals. Each is replaced by a text
 * of the same length, so that carets stay in the right place.
 */
function withoutSecrets(text: string, literals: readonly string[]): string {
  let shown = text;
  for (const literal of literals) if (literal.length > 0) shown = shown.replaceAll(literal, blot);
  for (const { form } of KNOWN)
    shown = shown.replace(form, (found, known: string) => known + blot(found.slice(known.length)));
  return shown;
}

function blot(text: string): string {
  return text.replace(/[^\r\n]/g, '•');
}
