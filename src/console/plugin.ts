import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Static, Type } from 'typebox';
import { GUARDED } from '../api/approver/layout.ts';
import { closed } from '../api/schema.ts';
import type { ApiApp } from '../api/app.ts';
import { checkAttempts, ownerByPasskey, ownerOf } from '../api/caller.ts';
import { acceptStrictJson } from '../api/json-body.ts';
import type { ApiPorts, Visitor } from '../api/ports.ts';
import { refuse } from '../api/problem.ts';
import type { Principal } from '../effects/model/principal.ts';
import { timeToWire } from '../effects/wire/time.ts';
import { type EndpointId, ENDPOINTS, permit } from '../identity/permissions.ts';
import { addPasskeys, partyOf, Signed } from './passkeys.ts';
import { type ConsoleSessions, isOwnPage } from './sessions.ts';
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Only the console's own files run and are loaded, no text becomes HTML, and nothing goes to another host. */
const CSP = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ');

const HEADERS = {
  'content-security-policy': CSP,
  ...GUARDED,
  vary: 'accept-encoding',
} as const;

/** The build names these after their content. */
const FOR_EVER = 'public, max-age=31536000, immutable';
/** A key, a link, or what a passkey signs. */
const BODY_LIMIT = 16 * 1024;

const SignIn = closed({
  key: Type.Optional(Type.String({ minLength: 1, maxLength: 200 })),
  link: Type.Optional(Type.String({ minLength: 1, maxLength: 200 })),
  passkey: Type.Optional(Signed),
  step_up: Type.Optional(Type.Boolean()),
});

type ConsolePorts = Pick<ApiPorts, 'authenticate' | 'invalidKeys' | 'settings' | 'directory' | 'store' | 'passkeys'> & {
  readonly sessions: ConsoleSessions;
};

/** `/console`: the built pages, and signing in and out. What the pages show and do comes from the API alone. */
export async function addConsole(server: ApiApp, ports: ConsolePorts): Promise<void> {
  await server.register(async (scope) => {
    const app: ApiApp = scope;
    acceptStrictJson(app, () => ports.settings().jsonLimits);
    addPages(app);
    addSession(app, ports);
    addPasskeys(app, ports, fromOwnPage);
  });
}

function addPages(app: ApiApp): void {
  let reading: ReturnType<typeof readPages> | null = null;

  const send = async (request: FastifyRequest, reply: FastifyReply, name: string): Promise<FastifyReply> => {
    reading ??= readPages();
    const page = (await reading).get(name);
    if (page === undefined) {
      reading = null;
      throw refuse('not_found', 'The console is not here. It is made by `npm run build`.');
    }
    const isNamedByContent = name.startsWith('assets/');
    reply.headers({
      ...HEADERS,
      etag: page.etag,
      'cache-control': isNamedByContent ? FOR_EVER : 'no-cache',
    });
    if (request.headers['if-none-match'] === page.etag) return reply.code(304).send();
    return reply.type(page.type).send(bodyOf(page, request, reply));
  };

  const page = { config: { page: true } } as const;
  app.get('/console', page, (request, reply) => send(request, reply, 'index.html'));
  app.get('/console/*', page, (request, reply) => send(request, reply, 'index.html'));
  app.get<{ Params: { readonly file: string } }>('/console/assets/:file', (request, reply) =>
    send(request, reply, `assets/${request.params.file}`),
  );
}

function bodyOf({ bytes, gzip }: Page, { headers }: FastifyRequest, reply: FastifyReply): Buffer {
  if (gzip === null || !/\bgzip\b/.test(String(headers['accept-encoding'] ?? ''))) return bytes;
  reply.header('content-encoding', 'gzip');
  return gzip;
}

function addSession(app: ApiApp, ports: ConsolePorts): void {
  const { sessions } = ports;
  const own = { preHandler: fromOwnPage, bodyLimit: BODY_LIMIT } as const;

  app.get('/console/session', own, async (request, reply) => {
    const visitor = await sessions.visitorOf(request.headers);
    if (visitor === null) throw refuse('missing_key', 'Nobody is signed in.');
    return reply.header('cache-control', 'no-store').send(visitorToWire(visitor, ports));
  });

  app.post('/console/session', { ...own, schema: { body: SignIn } }, async (request, reply) => {
    const { key, link, passkey, step_up: isStepUp = false } = request.body;
    if ([key, link, passkey].filter((one) => one !== undefined).length !== 1)
      throw refuse('invalid_request', 'Send a key, what a link has, or what a passkey signed: one of them.');
    const cookie =
      key !== undefined
        ? await sessions.begin(await byKey(request, key.trim(), isStepUp), request.headers)
        : passkey !== undefined
          ? await enterByPasskey(request, passkey, isStepUp)
          : await enterByLink(request, link ?? '');
    return reply.code(204).header('set-cookie', cookie).header('cache-control', 'no-store').send();
  });

  app.delete('/console/session', own, async (request, reply) =>
    reply
      .code(204)
      .header('set-cookie', await sessions.leave(request.headers))
      .send(),
  );

  async function enterByPasskey(
    request: FastifyRequest,
    signed: Static<typeof Signed>,
    isStepUp: boolean,
  ): Promise<string> {
    const { headers, ip } = request;
    const party = partyOf(ports, request);
    const { principal, passkey } = await ownerByPasskey(ports, { party, purpose: 'enter', of: '', ...signed }, ip);
    await checkEntry(sessions, headers, principal, isStepUp);
    return sessions.begin(principal, headers, passkey);
  }

  async function enterByLink({ headers, ip }: FastifyRequest, link: string): Promise<string> {
    checkAttempts(ports.invalidKeys, ip);
    const cookie = await sessions.enter(link, headers);
    if (cookie !== null) return cookie;
    ports.invalidKeys.failed(ip);
    throw refuse('invalid_key', 'The link was used, or its five minutes are over. `svc console` prints another.');
  }

  /** Whose key it is, if that may sign in. @throws Refused */
  async function byKey({ headers, ip }: FastifyRequest, key: string, isStepUp: boolean): Promise<Principal> {
    const principal = await ownerOf(ports, ports.invalidKeys, { kind: 'key', key }, ip);
    await checkEntry(sessions, headers, principal, isStepUp);
    return principal;
  }
}

/** Whether somebody may sign in, or show in a session who is there. @throws Refused */
async function checkEntry(
  sessions: ConsoleSessions,
  headers: IncomingHttpHeaders,
  principal: Principal,
  isStepUp: boolean,
): Promise<void> {
  const may = permit(principal, 'console.enter');
  if (!may.ok) throw refuse(may.code, may.detail);
  const visitor = isStepUp ? await sessions.visitorOf(headers) : null;
  if (visitor !== null && !isSamePerson(visitor.principal, principal))
    throw refuse(
      'wrong_key_kind',
      'This is not a key of the person who is signed in, or it reaches something else. Leave, to sign in with it.',
    );
}

/** Whether two keys have the same owner and the same reach. */
function isSamePerson(one: Principal, other: Principal): boolean {
  if (one.keyId === other.keyId) return true;
  const reach = ({ kind, ...rest }: Principal): string => `${kind} ${'workspace' in rest ? rest.workspace : ''}`;
  return one.user !== null && one.user === other.user && reach(one) === reach(other);
}

/** Pages of other origins, and forms, get nowhere. */
async function fromOwnPage({ headers }: FastifyRequest): Promise<void> {
  if (!isOwnPage(headers)) throw refuse('origin_not_allowed', 'Only pages of the console send this.');
}

/** Who is signed in, and what they may do by the one table of permissions. */
function visitorToWire({ principal, hasShownKey, until }: Visitor, { directory }: ConsolePorts) {
  const workspaces = principal.kind === 'administrative' ? directory.workspaces() : [principal.workspace];
  const [first = null] = workspaces;
  const ids = Object.keys(ENDPOINTS) as EndpointId[];
  return {
    user: principal.user,
    roles: principal.user === null ? [] : [...directory.rolesOf(principal.user)],
    kind: principal.kind,
    key_id: principal.keyId,
    read_only: principal.readOnly,
    workspaces: workspaces.filter((one) => one !== null),
    may: ids.filter((id) => permit(principal, id, first).ok),
    has_shown_key: hasShownKey,
    expires_at: timeToWire(until),
  };
}

export interface Page {
  readonly type: string;
  readonly bytes: Buffer;
  /** The same, compressed when the console was built. */
  readonly gzip: Buffer | null;
  readonly etag: string;
}

const FOLDER = fileURLToPath(new URL('pages/', import.meta.url));
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** The built files of the console by their names; empty where it was not built. They are read once. */
async function readPages(folder = FOLDER): Promise<ReadonlyMap<string, Page>> {
  const names = await readdir(folder, { recursive: true }).catch(() => []);
  const pages = new Map<string, Page>();
  for (const name of names) {
    const type = TYPES[extname(name)];
    if (type === undefined) continue;
    const bytes = await readFile(join(folder, name));
    const gzip = await readFile(join(folder, `${name}.gz`)).catch(() => null);
    const etag = `"${createHash('sha256').update(bytes).digest('base64url').slice(0, 22)}"`;
    pages.set(name, { type, bytes, gzip, etag });
  }
  return pages;
}
