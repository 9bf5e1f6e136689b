import type { KeyObject } from 'node:crypto';
import type { KeyRecord, KeyProfile } from '../effects/model/key.ts';
import { optionalTimeToWire, timeToWire } from '../effects/wire/time.ts';
import type { KeyKind, Scope } from '../effects/model/principal.ts';
import type { RequestFault } from '../effects/model/run-request.ts';
import { hashKey, makeKey } from './key-format.ts';
import type { LedgerActor } from '../effects/model/ledger.ts';
import type { EffectStore } from '../effects/store.ts';

/** A request for a key, as it came; `null` where it leaves something out. */
export interface KeyRequest
  extends Pick<KeyRecord, 'user' | 'madeBy' | 'name' | 'profile' | 'workspace' | 'agentId' | 'allowedTools'> {
  readonly kind: KeyKind | null;
  readonly scopes: readonly Scope[] | null;
  /** ms from now; `null` takes the default of the kind. */
  readonly expiresInMs: number | null;
}

/** What is needed to check a request for a key. */
export interface KeyContext {
  readonly pepper: KeyObject;
  /** ms since the epoch, by the store's clock. */
  readonly now: number;
  readonly profiles: readonly KeyProfile[];
  readonly workspaces: readonly string[];
  /** How long keys of a kind last, ms; `null` for no end. */
  readonly defaultExpiryMs: Readonly<Record<KeyKind, number | null>>;
}

export type MadeKey =
  | { readonly kind: 'made'; readonly record: KeyRecord; readonly key: string }
  | { readonly kind: 'refused'; readonly faults: readonly RequestFault[] };

const ID = /^[A-Za-z0-9][A-Za-z0-9_.@:-]{0,127}$/;
const NAME = /^[^\p{Cc}\p{Cf}]{1,200}$/u;
const TOOL = /^[\x21-\x7e]{1,200}$/;
const TEN_YEARS_MS = 10 * 365 * 86_400_000;

/** What every kind of key has in common. */
type Rights = Pick<KeyRecord, 'kind' | 'profile' | 'workspace' | 'agentId' | 'scopes' | 'allowedTools' | 'readOnly'>;

/**
 * Makes a key. Nothing is stored; the key itself is only in the answer.
 * @returns when it cannot be made: all faults of the request, with JSON Pointers into the request body
 */
export function createKeyRecord(request: KeyRequest, context: KeyContext): MadeKey {
  const faults: RequestFault[] = [];
  const fault = (path: string, message: string): void => {
    faults.push({ path, message });
  };

  if (!NAME.test(request.name) || request.name.trim() === '')
    fault('/name', 'A name is 1 to 200 characters, without control characters.');
  if (request.user !== null && !ID.test(request.user)) fault('/user_id', `A user id has the form ${ID.source}.`);
  if (request.expiresInMs !== null && !(request.expiresInMs > 0 && request.expiresInMs <= TEN_YEARS_MS))
    fault('/expires_in', 'A key lasts longer than 0 and at most 10 years.');
  const rights = rightsOf(request, context, fault);
  if (rights === null || faults.length > 0) return { kind: 'refused', faults };

  const lifeMs = request.expiresInMs ?? context.defaultExpiryMs[rights.kind];
  const { name, user, madeBy } = request;
  return { kind: 'made', ...mint({ ...rights, name, user, madeBy }, lifeMs, context) };
}

/**
 * A successor of a key, with the same rights and the same lifetime.
 * @param madeBy user of the key that rotates it: who gets to see the successor has made it
 */
export function successorOf(
  record: KeyRecord,
  madeBy: string | null,
  context: Pick<KeyContext, 'pepper' | 'now'>,
): { readonly record: KeyRecord; readonly key: string } {
  return mint({ ...record, madeBy }, record.expiresAt === null ? null : record.expiresAt - record.createdAt, context);
}

/** A record for a key that already exists (the one that an operator provides for an empty store). */
export function recordOf(
  key: { readonly key: string; readonly handle: string },
  rights: Rights & Pick<KeyRecord, 'name' | 'user' | 'madeBy'>,
  lifeMs: number | null,
  context: Pick<KeyContext, 'pepper' | 'now'>,
): KeyRecord {
  const { kind, profile, workspace, agentId, scopes, allowedTools, readOnly, name, user, madeBy } = rights;
  return {
    id: `key_${key.handle}`,
    handle: key.handle,
    hash: hashKey(context.pepper, key.key).toString('base64url'),
    kind,
    name,
    user,
    madeBy,
    workspace,
    agentId,
    profile,
    scopes,
    allowedTools,
    readOnly,
    createdAt: context.now,
    expiresAt: lifeMs === null ? null : context.now + lifeMs,
    revokedAt: null,
    lastUsedAt: null,
    replacedBy: null,
  };
}

/** The record on the wire: everything but the hash. */
export function keyToWire(record: KeyRecord) {
  return {
    id: record.id,
    name: record.name,
    kind: record.kind,
    profile: record.profile,
    workspace: record.workspace,
    agent_id: record.agentId,
    user_id: record.user,
    scopes: record.scopes,
    allowed_tools: record.allowedTools,
    read_only: record.readOnly,
    made_by: record.madeBy,
    created_at: timeToWire(record.createdAt),
    expires_at: optionalTimeToWire(record.expiresAt),
    last_used_at: optionalTimeToWire(record.lastUsedAt),
    revoked_at: optionalTimeToWire(record.revokedAt),
    replaced_by: record.replacedBy,
  };
}

/** Whether a key is valid at a time (ms, by the store's clock). */
export function keyState(record: KeyRecord, now: number): 'active' | 'expired' | 'revoked' {
  if (record.revokedAt !== null) return 'revoked';
  return record.expiresAt !== null && record.expiresAt <= now ? 'expired' : 'active';
}

function mint(
  rights: Rights & Pick<KeyRecord, 'name' | 'user' | 'madeBy'>,
  lifeMs: number | null,
  context: Pick<KeyContext, 'pepper' | 'now'>,
): { readonly record: KeyRecord; readonly key: string } {
  const made = makeKey(rights.kind);
  return { key: made.key, record: recordOf(made, rights, lifeMs, context) };
}

/** Checks that kind, profile, workspace, agent and scopes make sense together. */
function rightsOf(
  request: KeyRequest,
  context: KeyContext,
  fault: (path: string, message: string) => void,
): Rights | null {
  const kind = request.kind ?? (request.profile === null ? null : 'profile');
  if (kind === null) {
    fault('/profile', 'Name a profile, or a kind: account, agent, administrative.');
    return null;
  }
  const absent = (path: string, value: unknown, why: string): void => {
    if (value !== null) fault(path, why);
  };
  const profile = profileOf(kind, request, context, fault);
  const workspace = workspaceOf(kind, request, context, fault);
  const allowedTools = allowedToolsOf(request, profile, fault);
  switch (kind) {
    case 'account':
      absent(
        '/agent_id',
        request.agentId,
        'An account key names the agent in each request. For one agent take kind agent.',
      );
      break;
    case 'agent':
      if (request.agentId === null) fault('/agent_id', 'An agent key names its agent.');
      break;
    case 'administrative':
      absent('/agent_id', request.agentId, 'An administrative key belongs to no agent.');
      absent('/workspace', request.workspace, 'An administrative key belongs to no workspace.');
      absent('/allowed_tools', request.allowedTools, 'An administrative key calls no tools.');
      break;
    case 'profile':
      if (request.agentId !== null && workspace === null)
        fault('/workspace', 'A key for one agent also names the workspace.');
      break;
  }
  if (kind !== 'profile') absent('/scopes', request.scopes, 'Only a key with a profile has scopes.');
  if (request.agentId !== null && !ID.test(request.agentId))
    fault('/agent_id', `An agent id has the form ${ID.source}.`);
  return {
    kind,
    profile: profile?.name ?? null,
    workspace,
    agentId: request.agentId,
    scopes: profile === null ? [] : scopesOf(request, profile, fault),
    allowedTools,
    readOnly: profile?.readOnly ?? false,
  };
}

function profileOf(
  kind: KeyKind,
  request: KeyRequest,
  context: KeyContext,
  fault: (path: string, message: string) => void,
): KeyProfile | null {
  if (kind !== 'profile') {
    if (request.profile !== null) fault('/profile', 'A profile goes with kind profile only.');
    return null;
  }
  const found = context.profiles.find((one) => one.name === request.profile);
  if (found !== undefined) return found;
  const names = context.profiles.map((one) => one.name).join(', ');
  fault('/profile', `${request.profile === null ? 'Name a profile' : 'There is no such profile'}; known are ${names}.`);
  return null;
}

/** The workspace of a key: the one that the request names, or else the only one that exists. */
function workspaceOf(
  kind: KeyKind,
  request: KeyRequest,
  context: KeyContext,
  fault: (path: string, message: string) => void,
): string | null {
  if (kind === 'administrative') return null;
  if (request.workspace !== null) {
    if (context.workspaces.includes(request.workspace)) return request.workspace;
    fault('/workspace', 'There is no such workspace.');
    return null;
  }
  const [only] = context.workspaces;
  if (only !== undefined && context.workspaces.length === 1) return only;
  if (kind !== 'profile') fault('/workspace', `Name the workspace: there are ${context.workspaces.length}.`);
  return null;
}

function scopesOf(
  request: KeyRequest,
  profile: KeyProfile,
  fault: (path: string, message: string) => void,
): readonly Scope[] {
  if (request.scopes === null) return profile.scopes;
  request.scopes.forEach((scope, index) => {
    if (!profile.scopes.includes(scope))
      fault(`/scopes/${index}`, `The profile ${profile.name} does not have ${scope}.`);
  });
  return [...new Set(request.scopes)];
}

function allowedToolsOf(
  request: KeyRequest,
  profile: KeyProfile | null,
  fault: (path: string, message: string) => void,
): readonly string[] | null {
  const limit = profile?.allowedTools ?? null;
  if (request.allowedTools === null) return limit;
  request.allowedTools.forEach((tool, index) => {
    if (!TOOL.test(tool)) fault(`/allowed_tools/${index}`, 'A tool name is 1 to 200 visible ASCII characters.');
    else if (limit !== null && !limit.includes(tool))
      fault(`/allowed_tools/${index}`, `The profile ${profile?.name ?? ''} does not allow ${tool}.`);
  });
  return [...new Set(request.allowedTools)];
}

type Answer<T> = T | Promise<T>;

/** The part of a store that rotation needs. It can be the gateway's store, or a store file that a command opened. */
interface KeyShelf {
  putKey(key: KeyRecord, actor: LedgerActor): Answer<void>;
  endKey(id: string, end: Parameters<EffectStore['endKey']>[1], actor: LedgerActor): Answer<KeyRecord | null>;
}

/**
 * Replaces a key by a successor. The old key stays valid for the overlap.
 * @returns whether it did: a key has one successor, and a revoked one has none
 */
export async function rotateKey(
  store: KeyShelf,
  key: KeyRecord,
  successor: KeyRecord,
  overlapMs: number,
  actor: LedgerActor,
): Promise<boolean> {
  if (key.revokedAt !== null || key.replacedBy !== null) return false;
  // The successor first: a failure in between leaves two valid keys, never none.
  await store.putKey(successor, actor);
  const old = await store.endKey(key.id, { kind: 'replaced', by: successor.id, overlapMs }, actor);
  if (old?.replacedBy === successor.id) return true;
  // Another request was first.
  await store.endKey(successor.id, { kind: 'revoked' }, actor);
  return false;
}
