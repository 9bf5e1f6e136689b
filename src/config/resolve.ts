import { join } from 'node:path';
import { type FileReading, kindOfFile } from '../diagnostics/file-reading.ts';
import type { Configuration, UpstreamSettings, ListenerSettings } from './configuration.ts';
import { decode } from './decode.ts';
import { resolveCredentials } from './resolve-credentials.ts';
import { resolveHeaders } from './resolve-headers.ts';
import type { Tree } from './expand.ts';
import { at, namesIn, type Judge } from './judge.ts';
import { resolveAuth, resolvePeople, resolveWorkspaces } from './resolve-people.ts';
import { resolveMcpChild, resolveMcpSse, resolveMcpTools, resolveMcpUrl } from './resolve-mcp.ts';
import { resolveRoutes } from './resolve-routes.ts';
import { milliseconds, resolveStore, storeFolder } from './resolve-store.ts';
import { resolveTlsPair, resolveUpstreamTls } from './resolve-tls.ts';
import { resolveTools } from './resolve-tools.ts';
import { isLoopback, resolveWebhooks } from './resolve-webhooks.ts';
import { GATEWAY_FILE, type GatewayFile } from './schema.ts';
import { parseDuration, parseSize } from './units.ts';

/**
 * Resolves the meaning of a file: looks up names, converts units to numbers, and reports every fault to the judge.
 * @param tree the data of the file with its faulty items: their names count as known
 * @returns a configuration; it must not be used if the judge got an error
 */
export async function resolveConfiguration(
  file: GatewayFile,
  tree: Tree,
  judge: Judge,
  reading: FileReading,
  lookup: (name: string) => string | undefined,
): Promise<Omit<Configuration, 'digest' | 'sharedDigest'>> {
  const sections = typeof tree === 'object' && tree !== null && !Array.isArray(tree) ? tree : {};
  const names = {
    users: namesIn(sections['users'], 'id'),
    upstreams: namesIn(sections['upstreams'], 'id'),
    tools: namesIn(sections['tools'], 'name'),
  };
  const people = resolvePeople(file, judge);
  const declared = await resolveUpstreams(file, judge, reading, lookup);
  const mcp = await resolveMcpTools(file, declared, judge, reading);
  const { upstreams } = mcp;
  const tools = [...resolveTools(file, upstreams, names.upstreams, judge), ...mcp.tools];
  judge.unique('pool', file.pools, 'id');
  const store = resolveStore(file, judge);
  const keys = join(storeFolder(store), 'keys');
  return {
    server: await resolveServer(file, judge, reading),
    listeners: await resolveListeners(file, judge, reading),
    store,
    retention: resolveRetention(file, judge),
    resolve: decode(GATEWAY_FILE.properties.resolve, file.resolve),
    secrets: await resolveSecrets(file, keys, judge),
    receipts: {
      keysDir: file.receipts.keys ?? keys,
      issuer: file.receipts.issuer ?? null,
      params: file.receipts.params,
    },
    ...people,
    auth: resolveAuth(file, judge),
    workspaces: resolveWorkspaces(file, names.users, judge),
    policies: await resolvePolicies(file, sections['policies'] !== undefined, judge),
    upstreams,
    tools,
    routes: resolveRoutes(file, tools, names, judge),
    pools: file.pools,
    brain: await resolveBrain(file, judge),
    limits: resolveLimits(file, judge),
    telemetry: decode(GATEWAY_FILE.properties.telemetry, file.telemetry),
    webhooks: resolveWebhooks(file, judge),
  };
}

async function resolveServer(file: GatewayFile, judge: Judge, reading: FileReading): Promise<Configuration['server']> {
  const { server } = file;
  let publicUrl: string | null = null;
  if (server.public_url !== undefined) {
    const url = httpUrl(server.public_url);
    if (url === null || url.search !== '' || url.hash !== '' || url.username !== '' || url.password !== '')
      judge.error('bad_url', at(server, 'public_url'), [
        'server.public_url has to be an http or https URL without query or user',
        'https://gateway.example.com',
      ]);
    else publicUrl = url.href.replace(/\/+$/, '');
  }
  if (server.admin_port !== null && server.admin_port !== 0 && server.admin_port === server.port)
    judge.error('same_port', at(server, 'admin_port'), [
      'server.admin_port is the same as server.port',
      'give it another port, or null',
    ]);
  return {
    host: server.host,
    port: server.port,
    publicUrl,
    allowedHosts: server.allowed_hosts.map((host) => host.toLowerCase()),
    adminPort: server.admin_port,
    tls: server.tls === undefined ? null : await resolveTlsPair(server.tls, judge, reading),
  };
}

function httpUrl(text: string): URL | null {
  const url = URL.canParse(text) ? new URL(text) : null;
  return url !== null && /^https?:\/\//.test(text) && url.hostname !== '' ? url : null;
}

function resolveRetention(file: GatewayFile, judge: Judge): Configuration['retention'] {
  const { retention } = file;
  const decoded = decode(GATEWAY_FILE.properties.retention, retention);
  const { keysMs, effectsMs } = decoded;
  if (keysMs !== null && keysMs < effectsMs)
    judge.error('retention_order', at(retention, 'keys'), [
      'retention.keys is shorter than retention.effects',
      'keys and receipts outlive the records',
    ]);
  return decoded;
}

async function resolveSecrets(file: GatewayFile, keys: string, judge: Judge): Promise<Configuration['secrets']> {
  const { secrets } = file;
  const masterFile = secrets.master?.file ?? join(keys, 'master');
  for (const [index, previous] of secrets.previous.entries()) {
    if ((await kindOfFile(previous)) !== 'file')
      judge.error('file_missing', at(secrets, 'previous', index), [
        `There is no file ${previous}`,
        'paths are relative to the working directory',
      ]);
    if (previous === masterFile)
      judge.error('same_file', at(secrets, 'previous', index), 'The present master secret cannot be a previous one');
  }
  return { masterFile, previous: secrets.previous };
}

async function resolvePolicies(
  file: GatewayFile,
  isWritten: boolean,
  judge: Judge,
): Promise<Configuration['policies']> {
  const { policies } = file;
  if (!isWritten && file.tools.length > 0)
    judge.warn('no_policies', at(policies), [
      'There are no policies: every call will be refused',
      'add policies: { paths: [./policies] }',
    ]);
  const paths = policies.paths.map((entry) => (typeof entry === 'string' ? entry : entry.path));
  for (const [index, path] of paths.entries()) {
    if ((await kindOfFile(path)) === 'missing')
      judge.error('file_missing', at(policies, 'paths', index), [
        `There is no file or folder ${path}`,
        'paths are relative to the working directory',
      ]);
    if (paths.indexOf(path) < index)
      judge.error('duplicate_path', at(policies, 'paths', index), `${path} stands twice`);
  }
  if (policies.second_person && file.users.length < 2)
    judge.warn('second_person_missing', at(policies, 'second_person'), [
      'Nobody can confirm policies: only people whom the configuration names can, and there are not two',
      'name them under users',
    ]);
  const { mode, second_person: isOfTwo } = policies;
  return { paths, mode, isOfTwo, secondOpinionMs: parseDuration(policies.second_opinion) };
}

/** The upstreams of a file, without what is pinned of them. */
export function resolveUpstreams(
  file: GatewayFile,
  judge: Judge,
  reading: FileReading,
  lookup: (name: string) => string | undefined,
): Promise<readonly UpstreamSettings[]> {
  judge.unique('upstream', file.upstreams, 'id');
  return Promise.all(
    file.upstreams.map(async (upstream) => {
      const child = resolveMcpChild(upstream, judge, lookup);
      const url = child === null ? resolveAddress(upstream, judge) : null;
      const { credentials, tls } = upstream;
      if (typeof credentials === 'object' && url?.protocol === 'http:' && !isLoopback(url.hostname))
        judge.warn('plain_http', at(upstream, 'url'), ['Credentials go to this upstream in clear', 'use https']);
      return {
        id: upstream.id,
        url: child === null ? (url?.origin ?? '') : 'stdio:',
        timeoutMs: milliseconds(upstream.timeout),
        connections: upstream.connections,
        network: upstream.network,
        env: upstream.env ?? null,
        headers: resolveHeaders(upstream.headers, judge),
        credentials: typeof credentials === 'object' ? await resolveCredentials(credentials, judge, reading) : null,
        tls: tls === undefined ? null : await resolveUpstreamTls(tls, url?.protocol !== 'http:', judge, reading),
        mcp:
          upstream.mcp === undefined || (url === null && child === null)
            ? null
            : {
                path: url === null ? '/' : `${url.pathname}${url.search}`,
                allow: upstream.mcp.allow,
                child,
                sse: resolveMcpSse(upstream),
              },
      };
    }),
  );
}

function resolveAddress(upstream: GatewayFile['upstreams'][number], judge: Judge): URL | null {
  return upstream.mcp === undefined ? resolveOrigin(upstream, judge) : resolveMcpUrl(upstream, judge);
}

function resolveOrigin(upstream: GatewayFile['upstreams'][number], judge: Judge): URL | null {
  if (upstream.url === undefined) {
    judge.error('missing_field', at(upstream), [`'url' is missing in an upstream`, 'url: its http or https origin']);
    return null;
  }
  const fault = (message: string, hint: string | null = null): null => {
    judge.error('bad_url', at(upstream, 'url'), [message, hint]);
    return null;
  };
  const url = httpUrl(upstream.url);
  if (url === null) return fault('The url of an upstream has to be an http or https URL', 'https://api.example.com');
  if (url.username !== '' || url.password !== '')
    return fault('The url of an upstream carries no user or password', 'write credentials: { header, value }');
  if (url.search !== '' || url.hash !== '') return fault('The url of an upstream has no query and no fragment');
  if (url.pathname !== '/')
    return fault('The url of an upstream has no path', 'write the path in request.path of its tools and in its routes');
  return url;
}

function resolveLimits(file: GatewayFile, judge: Judge): Configuration['limits'] {
  const { limits } = file;
  const decoded = decode(GATEWAY_FILE.properties.limits, limits);
  for (const [part, whole] of [
    ['upload_file', 'upload'],
    ['upload', 'spool'],
  ] as const)
    if ((parseSize(limits[part]) ?? 0) > (parseSize(limits[whole]) ?? 0))
      judge.error('limit_order', at(limits, part), [
        `limits.${part} is larger than limits.${whole}`,
        'the one is a part of the other',
      ]);
  if (decoded.responseKeptBytes > decoded.responseBytes)
    judge.error('limit_order', at(limits, 'response_kept'), [
      'limits.response_kept is larger than limits.response',
      'what is kept is a part of what is read',
    ]);
  return decoded;
}

/** What the files themselves say is read with the policies (`src/brain/entity-files.ts`). */
async function resolveBrain({ brain, workspaces, limits }: GatewayFile, judge: Judge): Promise<Configuration['brain']> {
  const ids = new Set(workspaces.map(({ id }) => id));
  const only = workspaces.length === 1 ? workspaces[0]?.id : undefined;
  const files = brain.files.map((entry) => (typeof entry === 'string' ? { path: entry, workspace: undefined } : entry));
  const seen = new Set<string>();
  for (const [index, { path, workspace }] of files.entries()) {
    if ((await kindOfFile(path)) === 'missing')
      judge.error('file_missing', at(brain, 'files', index), [
        `There is no file or folder ${path}`,
        'paths are relative to the working directory',
      ]);
    if (workspace !== undefined) judge.known('workspace', at(brain, 'files', index, 'workspace'), workspace, ids);
    else if (only === undefined)
      judge.error('no_workspace', at(brain, 'files', index), [
        `It is not said which workspace the entities of ${path} belong to`,
        workspaces.length === 0
          ? 'declare it under workspaces'
          : `write { path: ${path}, workspace: … }: there are ${workspaces.length}`,
      ]);
    const name = `${path}\n${workspace ?? only ?? ''}`;
    if (seen.has(name)) judge.error('duplicate_path', at(brain, 'files', index), `${path} stands twice`);
    seen.add(name);
  }
  return {
    files: files.map(({ path, workspace = only ?? '' }) => ({ path, workspace })),
    limits: { entities: limits.brain_entities, characters: parseSize(limits.brain_size) ?? 0 },
  };
}

/** The listeners that routes open, without repeats. */
async function resolveListeners(
  file: GatewayFile,
  judge: Judge,
  reading: FileReading,
): Promise<readonly ListenerSettings[]> {
  const found = new Map<string, { readonly tls: string | null; readonly settings: ListenerSettings }>();
  for (const route of file.routes) {
    const { listen, tls } = route;
    if (listen === undefined) {
      if (tls !== undefined)
        judge.error('tls_without_listen', at(route, 'tls'), [
          'tls of a route needs its listen',
          'or write server: { tls }',
        ]);
      continue;
    }
    const colon = listen.lastIndexOf(':');
    const host = listen.slice(0, colon).replace(/^\[(.*)\]$/, '$1');
    const port = Number(listen.slice(colon + 1));
    if (port > 65_535) judge.error('bad_listen', at(route, 'listen'), [`${port} is no port`, '0 to 65535']);
    if (port !== 0 && (port === file.server.port || port === file.server.admin_port) && meets(host, file.server.host))
      judge.error('same_port', at(route, 'listen'), [
        `'${listen}' is where the gateway itself listens`,
        'another port',
      ]);
    const written = tls === undefined ? null : `${tls.cert}\n${tls.key}`;
    const before = found.get(listen);
    if (before !== undefined && written !== null && before.tls !== null && before.tls !== written)
      judge.error('listener_differs', at(route, 'tls'), [`Another route has other tls for ${listen}`, 'say it once']);
    if (before === undefined || (before.tls === null && tls !== undefined)) {
      const pair = tls === undefined ? null : await resolveTlsPair(tls, judge, reading);
      found.set(listen, { tls: written, settings: { at: listen, host, port, tls: pair } });
    }
  }
  return [...found.values()].map(({ settings }) => settings);
}

/** Whether two addresses are equal, or one includes the other. */
function meets(one: string, other: string): boolean {
  const all = ['0.0.0.0', '::', '[::]'];
  return one.toLowerCase() === other.toLowerCase() || all.includes(one) || all.includes(other);
}
