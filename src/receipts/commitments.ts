import { hash } from 'node:crypto';
import { type KeptResult, statusShown } from '../effects/model/answer.ts';
import type { ApprovalRecord } from '../effects/model/approval.ts';
import { commit } from '../effects/model/commit.ts';
import type { EffectRecord } from '../effects/model/effect.ts';
import { SALT_BYTES, SALTED_FIELDS, type SaltedField, type SealedParams } from '../effects/ports.ts';
import { canonicalJson, quote } from '../json/text.ts';
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../json/value.ts';
import { jsonInSlices } from '../json/write.ts';
import { decodeBase64url } from './jwk.ts';

/** The path of each committed field in the payload. */
const PLACES: Readonly<Record<SaltedField, readonly [string, ...string[]]>> = {
  target: ['action', 'target'],
  params: ['action', 'params'],
  idem: ['action', 'idem'],
  request: ['upstream', 'request'],
  response: ['upstream', 'response'],
  comment: ['effect', 'settled_by', 'comment'],
  evidence: ['effect', 'settled_by', 'evidence'],
};

/** How receipts commit to params: so that they are opened together, or also one by one. */
export type ParamsCommitted = 'together' | 'each';

/** One param in the name of a field: `params.amount`, `asked_params.amount`. */
const ONE_PARAM = /^(params|asked_params)\.(.+)$/su;

/** The commitment to a field; `null` where the payload has none. That to one param is the one to all. */
export function commitmentIn(payload: JsonObject, field: string): string | null {
  const all = ONE_PARAM.exec(field)?.[1];
  if (all !== undefined) return commitmentIn(payload, all);
  const salted = SALTED_FIELDS.find((one) => one === field);
  const index = /^approval\.(\d{1,4})\.comment$/.exec(field)?.[1];
  const place = field === ASKED ? (['action', 'asked'] as const) : salted && PLACES[salted];
  const found = place !== undefined ? memberAt(payload, place) : commentAt(payload, Number(index));
  return typeof found === 'string' ? found : null;
}

function commentAt({ approval }: JsonObject, index: number): Json | undefined {
  const one = isJsonArray(approval) ? approval[index] : undefined;
  return isJsonObject(one) ? one['comment'] : undefined;
}

export function memberAt(object: JsonObject, path: readonly string[]): Json | undefined {
  return path.reduce<Json | undefined>(
    (place, name) => (isJsonObject(place) && Object.hasOwn(place, name) ? place[name] : undefined),
    object,
  );
}

/** A buffer that is used again. Most values fit, and a new buffer for each would be a large part of the cost. */
const SCRATCH_BYTES = 4096;
const scratch = Buffer.alloc(SCRATCH_BYTES);

/** A UTF-16 code unit takes at most this many bytes in UTF-8. */
const MOST_BYTES = 3;

/**
 * Like {@link commit}, for a field of a receipt with these salts; as JSON.
 * @param salts `null` where the seal that had them no longer opens: then there is nothing to commit to
 * @param text the value in canonical form
 */
export function commitField(salts: Buffer | null, field: SaltedField, text: string): string {
  if (salts === null) return 'null';
  const place = SALTED_FIELDS.indexOf(field);
  const most = salts.length + text.length * MOST_BYTES;
  const bytes = most <= SCRATCH_BYTES ? scratch : Buffer.alloc(most);
  for (let at = 0; at < SALT_BYTES; at += 1) {
    const byte = salts[place * SALT_BYTES + at];
    if (byte === undefined) throw new TypeError('a seal has a salt for each field');
    bytes[at] = byte;
  }
  const length = SALT_BYTES + bytes.write(text, SALT_BYTES, 'utf8');
  return `"sc1:${hash('sha256', bytes.subarray(0, length), 'base64url')}"`;
}

/** The commitment to the params that a receipt is of; as JSON. @param text their canonical form */
export function commitParams({ params, salts }: SealedParams, as: ParamsCommitted, text: string): string {
  const each = as === 'each' ? commitEach(saltOf(salts, 'params'), params) : null;
  return each === null ? commitField(salts, 'params', text) : `"${each}"`;
}

/** The commitment to the params as the agent asked them, where approvers changed them. */
export function commitAsked(salts: Buffer, as: ParamsCommitted, asked: JsonObject): string {
  const salt = derivedSalt(salts, ASKED);
  return (as === 'each' ? commitEach(salt, asked) : null) ?? commit(salt.toString('base64url'), asked);
}

function saltOf(salts: Buffer, field: SaltedField): Buffer {
  const begin = SALT_BYTES * SALTED_FIELDS.indexOf(field);
  return salts.subarray(begin, begin + SALT_BYTES);
}

/**
 * The salt of the comment of an approval, base64url: one for each, so that equal comments do not look equal. It follows
 * from all salts of the receipt; whoever gets one of these, or of those, learns none of the others.
 * @param index of the approval in the receipt
 */
export function commentSalt(salts: Buffer, index: number): string {
  return derivedSalt(salts, commentField(index)).toString('base64url');
}

/** The name of these params among the fields of a disclosure. */
const ASKED = 'asked_params';

function derivedSalt(salts: Buffer, field: string): Buffer {
  return hash('sha256', Buffer.concat([salts, Buffer.from(field)]), 'buffer').subarray(0, SALT_BYTES);
}

/** The name of such a comment among the fields of a disclosure. */
function commentField(index: number): string {
  return `approval.${index}.comment`;
}

/**
 * What was sent: the params, the headers that are part of the action, the digest of the bytes (method, path and query,
 * body), the pin of the tool, and the key that the upstream got. The digest is absent where no gateway saw the request
 * being sent.
 */
export function requestContent(effect: EffectRecord, sealed: Sent, sent: string | undefined): JsonObject {
  const headers = boundHeaders(sealed);
  return { ...(headers === null ? {} : { headers }), params: sealed.params, ...otherFacts(effect, sent) };
}

type Sent = Pick<SealedParams, 'params' | 'headers'>;

/**
 * The canonical form of {@link requestContent}. It reuses the text of the params, so that large params are serialised
 * once.
 */
export function requestText(effect: EffectRecord, sealed: Sent, params: string, sent: string | undefined): string {
  const headers = boundHeaders(sealed);
  // In the order of RFC 8785, `headers` and `params` come first.
  const first = headers === null ? '' : `"headers":${canonicalJson(headers)},`;
  const digest = sent === undefined ? '' : `"sent_sha256":${quote(sent)},`;
  const pin = quote(effect.action.toolDigest);
  return `{${first}"params":${params},${digest}"tool_pin":${pin},"upstream_key":"${effect.id}.${effect.generation}"}`;
}

function boundHeaders({ headers }: Sent): JsonObject | null {
  return headers === undefined || Object.keys(headers.bound).length === 0 ? null : headers.bound;
}

function otherFacts({ action, id, generation }: EffectRecord, sent: string | undefined): JsonObject {
  return {
    ...(sent === undefined ? {} : { sent_sha256: sent }),
    tool_pin: action.toolDigest,
    upstream_key: `${id}.${generation}`,
  };
}

/** The members `upstream_status` (if answers of its kind have one) and `result` that answers show. */
export function responseContent(response: KeptResult): JsonObject {
  const status = statusShown(response);
  const result = response.body.value;
  return status === null ? { result } : { upstream_status: status, result };
}

/** Salts and values that open commitments, by the name of the field. */
export interface Disclosure extends JsonObject {
  readonly salts: JsonObject;
  readonly values: JsonObject;
  /** Of `params` and `asked_params` of which some are opened by themselves: the leaves of all. */
  readonly leaves?: JsonObject;
}

/** Whether a field is one param of several. */
export function isOneParam(field: string): boolean {
  return ONE_PARAM.test(field);
}

/** The names of the params, where a field names one that is not among them; else `null`. */
export function paramsAmong({ values }: Disclosure, field: string): readonly string[] | null {
  const [, all = '', name = ''] = ONE_PARAM.exec(field) ?? [];
  const params = values[all];
  return name === '' || !isJsonObject(params) || Object.hasOwn(params, name) ? null : Object.keys(params);
}

/** Whether a receipt commits to params so that one of them can be opened. */
export function isOpenedByOne(payload: JsonObject, field: string): boolean {
  return isOfEach(commitmentIn(payload, field) ?? '');
}

/** Whether a disclosure opens the commitment to one of its fields; `null` where it lacks what that takes. */
export function opens({ salts, values, leaves = {} }: Disclosure, field: string, commitment: string): boolean | null {
  const [salt, value] = [Object.hasOwn(salts, field) ? salts[field] : undefined, values[field]];
  if (typeof salt !== 'string' || value === undefined) return null;
  const [, all, name] = ONE_PARAM.exec(field) ?? [];
  if (all !== undefined && name !== undefined) {
    if (!isOfEach(commitment) || !Object.hasOwn(leaves, all)) return null;
    return opensOne(commitment, leaves[all], salt, name, value);
  }
  if (!isOfEach(commitment)) return commit(salt, value) === commitment;
  return isJsonObject(value) && commitEach(Buffer.from(salt, 'base64url'), value) === commitment;
}

/**
 * Opens the commitments of a receipt: gives the salts and values in the form that `svc verify --disclosure` takes. A
 * field stays closed when its value is no longer on record.
 * @param payload the payload of the receipt
 * @param approval that the receipt names; `null` where there is none, or it is not on record any more
 */
export function disclosureOf(
  effect: EffectRecord,
  sealed: SealedParams,
  payload: JsonObject,
  approval: ApprovalRecord | null,
): Disclosure {
  const { life } = effect;
  if (life.state !== 'committed') throw new TypeError('only committed effects have a receipt');
  const { settledBy, result, evidence } = life;
  const known: Readonly<Record<SaltedField, Json | null>> = {
    target: effect.action.target,
    params: sealed.params,
    idem: effect.idempotencyKey,
    request: requestContent(effect, sealed, evidence.sent),
    response: result === null || result.body.kind === 'sealed' ? null : responseContent(result),
    comment: settledBy.by === 'resolve' ? settledBy.comment : null,
    evidence: settledBy.by === 'resolve' || settledBy.by === 'probe' ? settledBy.evidence : null,
  };
  const salts: Record<string, string> = {};
  const values: Record<string, Json> = {};
  for (const [index, field] of SALTED_FIELDS.entries()) {
    const value = known[field];
    if (value === null || commitmentIn(payload, field) === null) continue;
    salts[field] = sealed.salts.toString('base64url', index * SALT_BYTES, (index + 1) * SALT_BYTES);
    values[field] = value;
  }
  if (sealed.asked !== undefined && commitmentIn(payload, ASKED) !== null) {
    salts[ASKED] = derivedSalt(sealed.salts, ASKED).toString('base64url');
    values[ASKED] = sealed.asked;
  }
  const approvals = approval?.votes.filter(({ verdict }) => verdict === 'approve') ?? [];
  for (const [index, { comment }] of approvals.entries()) {
    const field = commentField(index);
    if (comment === null || commitmentIn(payload, field) === null) continue;
    salts[field] = commentSalt(sealed.salts, index);
    values[field] = comment;
  }
  return { salts, values };
}

/**
 * A disclosure of some fields: whoever gets it learns nothing of the others. A request repeats the params, so it stands for
 * them.
 * @param fields `null`: all
 * @param payload of the receipt
 * @returns `null` where none of them can be opened
 */
export function onlyFields(
  { salts, values }: Disclosure,
  fields: readonly string[] | null,
  payload: JsonObject,
): Disclosure | null {
  if (fields === null) return { salts, values };
  const some: { salts: Record<string, Json>; values: Record<string, Json>; leaves: Record<string, Json> } = {
    salts: {},
    values: {},
    leaves: {},
  };
  for (const field of fields) {
    const [, all = field, name] = ONE_PARAM.exec(field) ?? [];
    const [salt, value] = [salts[all], values[all]];
    if (typeof salt !== 'string' || value === undefined) continue;
    if (name === undefined) {
      some.salts[field] = salt;
      some.values[field] = value;
    } else if (isJsonObject(value) && Object.hasOwn(value, name) && isOpenedByOne(payload, all)) {
      const whole = Buffer.from(salt, 'base64url');
      some.salts[field] = paramSalt(whole, name).toString('base64url');
      some.values[field] = value[name] ?? null;
      some.leaves[all] ??= leafTexts(whole, value);
    }
  }
  if (Object.keys(some.values).length === 0) return null;
  return Object.keys(some.leaves).length === 0 ? { salts: some.salts, values: some.values } : some;
}

/** A disclosure as `JSON.stringify` writes it. The params are in it twice, and are written once, in parts. */
export async function disclosureText({ salts, values, leaves }: Disclosure): Promise<string> {
  const { params } = values;
  const written = params === undefined ? '' : await textInSlices(params);
  const members: string[] = [];
  for (const [field, value] of Object.entries(values)) {
    const isRequest = field === 'request' && isJsonObject(value) && value['params'] === params;
    const text = value === params ? written : isRequest ? aroundParams(value, written) : await textInSlices(value);
    members.push(`${quote(field)}:${text}`);
  }
  const more = leaves === undefined ? '' : `,"leaves":${JSON.stringify(leaves)}`;
  return `{"salts":${JSON.stringify(salts)},"values":{${members.join(',')}}${more}}`;
}

function aroundParams(request: JsonObject, params: string): string {
  const members = Object.entries(request).map(
    ([name, value]) => `${quote(name)}:${name === 'params' ? params : JSON.stringify(value)}`,
  );
  return `{${members.join(',')}}`;
}

async function textInSlices(value: Json): Promise<string> {
  return (await jsonInSlices(value)).toString('utf8');
}

/*
 * A commitment to params of which each can be opened by itself, as in SD-JWT (RFC 9901) but for one digest in the place of
 * a list: the receipt holds the root of the leaves, one for each param, and whoever opens a param hands over all leaves.
 * They show how many params there are, and nothing of the others: each has a salt of its own, and they are sorted by
 * their bytes.
 */

const PREFIX = 'sm1:';

/** Params with more members are committed to together: each costs two hashes. */
const MOST_EACH = 256;
const LEAF_BYTES = 32;

/** Whether params of a commitment can be opened one by one. */
function isOfEach(commitment: string): boolean {
  return commitment.startsWith(PREFIX);
}

/**
 * `sm1:` and the root, base64url: SHA-256 of `sm1:` and the leaves, sorted. A leaf is SHA-256(salt || JCS of [name,
 * value]), and its salt is {@link paramSalt}.
 * @param salt of the params
 * @returns `null` for params that are committed to together: none, or more than 256
 */
export function commitEach(salt: Buffer, params: JsonObject): string | null {
  const leaves = leavesOf(salt, params);
  return leaves === null ? null : rootOf(leaves);
}

/** The leaves of params, base64url, as a disclosure of one of them holds them. */
function leafTexts(salt: Buffer, params: JsonObject): readonly string[] {
  return (leavesOf(salt, params) ?? []).map((leaf) => leaf.toString('base64url'));
}

/** Whether one param is among those that a commitment is to. @param salt its own, base64url */
function opensOne(commitment: string, leaves: Json | undefined, salt: string, name: string, value: Json): boolean {
  const own = decodeBase64url(salt);
  if (leaves === undefined || !isJsonArray(leaves) || leaves.length > MOST_EACH || own?.length !== SALT_BYTES)
    return false;
  const decoded = leaves.map((leaf) => (typeof leaf === 'string' ? decodeBase64url(leaf) : null));
  const all = decoded.flatMap((leaf) => (leaf?.length === LEAF_BYTES ? [leaf] : []));
  const opened = leafOf(own, name, value);
  return all.length === leaves.length && all.some((leaf) => leaf.equals(opened)) && rootOf(all) === commitment;
}

/**
 * The salt of one param. It follows from that of all; whoever gets it learns neither that one nor those of the others.
 * @param salt of the params
 */
function paramSalt(salt: Buffer, name: string): Buffer {
  // The commitment to all of them together begins its hash with this salt too, and goes on with a brace.
  return hash('sha256', Buffer.concat([salt, Buffer.from(`param.${name}`)]), 'buffer').subarray(0, SALT_BYTES);
}

function leavesOf(salt: Buffer, params: JsonObject): Buffer[] | null {
  const members = Object.entries(params);
  if (members.length === 0 || members.length > MOST_EACH) return null;
  return members.map(([name, value]) => leafOf(paramSalt(salt, name), name, value));
}

function leafOf(salt: Buffer, name: string, value: Json): Buffer {
  return hash('sha256', Buffer.concat([salt, Buffer.from(canonicalJson([name, value]))]), 'buffer');
}

function rootOf(leaves: readonly Buffer[]): string {
  const sorted = leaves.toSorted((one, other) => one.compare(other));
  return `${PREFIX}${hash('sha256', Buffer.concat([Buffer.from(PREFIX), ...sorted]), 'base64url')}`;
}
