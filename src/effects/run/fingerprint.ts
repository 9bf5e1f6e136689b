import { hash, type KeyObject } from 'node:crypto';
import { canonicalJson } from '../../json/text.ts';
import type { JsonObject } from '../../json/value.ts';
import type { GivenKey } from '../model/run-request.ts';
import { DERIVED } from '../steps/generations.ts';

/** What makes two calls the same action. Door, key and time do not count. */
export interface FingerprintedAction {
  readonly workspace: string;
  readonly agentId: string;
  readonly actionType: string;
  readonly tool: string;
  readonly target: string;
  readonly params: JsonObject;
  /** Headers that are part of the action, by name in lower case. */
  readonly headers: Readonly<Record<string, string>>;
}

/**
 * The fingerprint of an action: HMAC-SHA-256 of its canonical form, under a key of the workspace. (A plain hash of
 * params could be guessed with a dictionary.) `fp1:` is the version of the form.
 * @param paramsText the params in canonical form
 */
export function fingerprint(
  key: KeyObject,
  { workspace, agentId, actionType, tool, target, params, headers }: FingerprintedAction,
  paramsText = canonicalJson(params),
): string {
  // Left out where there are none. Most calls have none, and older fingerprints stay valid.
  const bound = hasAny(headers) ? `"headers":${canonicalJson(headers)},` : '';
  // In the order of RFC 8785, so the text is canonical. A test compares it with the sorted form.
  const canonical = `{"action_type":${canonicalJson(actionType)},"agent_id":${canonicalJson(agentId)},${bound}"params":${paramsText},"target":${canonicalJson(target)},"tool":${canonicalJson(tool)},"v":1,"workspace":${canonicalJson(workspace)}}`;
  return `fp1:${hmacSha256(key, canonical)}`;
}

/** Whether there are any, without a list of their names. */
export function hasAny(headers: Readonly<Record<string, string>>): boolean {
  for (const _ in headers) return true;
  return false;
}

/**
 * The idempotency key of a call: the one that it brought, or one that is derived from the action.
 *
 * On a route with `idempotency: derive` the same action within the same window is the same call. Windows begin at
 * multiples of `deriveWindowMs`; a repeat in the next window is a new call. A derived key with generations has no time in
 * it: admission finds the generation.
 * @param printed the fingerprint of the action
 * @param now ms since the epoch, by the store's clock
 */
export function keyFor(given: GivenKey, printed: string, now: number): string {
  if (typeof given === 'string') return given;
  if ('generationMs' in given) return `${DERIVED}${printed}`;
  const { deriveWindowMs } = given;
  return `derived:${deriveWindowMs}:${Math.floor(now / deriveWindowMs)}:${printed}`;
}

/** Sizes of a block and a digest of SHA-256, in bytes. */
const BLOCK_BYTES = 64;
const DIGEST_BYTES = 32;

/** The first blocks of the inner and the outer hash. The outer one has room for the digest behind it. */
interface Pads {
  readonly inner: Buffer;
  readonly outer: Buffer;
}

const padsOf = new WeakMap<KeyObject, Pads>();

/** Most actions fit. A new buffer for each would be a large part of the cost of a fingerprint. */
const SCRATCH_BYTES = 4096;
const scratch = Buffer.alloc(SCRATCH_BYTES);

/** A UTF-16 code unit takes at most this many bytes in UTF-8. */
const MOST_BYTES = 3;

/**
 * HMAC-SHA-256 (RFC 2104), base64url, from two one-shot hashes: making an `Hmac` object costs several times as much as
 * the hashing. A test compares both.
 */
export function hmacSha256(key: KeyObject, text: string): string {
  const { inner, outer } = padsFor(key);
  const most = BLOCK_BYTES + text.length * MOST_BYTES;
  const bytes = most <= SCRATCH_BYTES ? scratch : Buffer.alloc(most);
  inner.copy(bytes);
  const length = BLOCK_BYTES + bytes.write(text, BLOCK_BYTES, 'utf8');
  outer.write(hash('sha256', bytes.subarray(0, length), 'base64'), BLOCK_BYTES, 'base64');
  return hash('sha256', outer, 'base64url');
}

function padsFor(key: KeyObject): Pads {
  const known = padsOf.get(key);
  if (known !== undefined) return known;
  const bytes = key.export();
  const short = bytes.length > BLOCK_BYTES ? hash('sha256', bytes, 'buffer') : bytes;
  const inner = Buffer.alloc(BLOCK_BYTES, 0x36);
  const outer = Buffer.alloc(BLOCK_BYTES + DIGEST_BYTES, 0x5c);
  for (const [index, byte] of short.entries()) {
    inner[index] = byte ^ 0x36;
    outer[index] = byte ^ 0x5c;
  }
  padsOf.set(key, { inner, outer });
  return { inner, outer };
}

/**
 * Reads `Idempotency-Key`. A key in quotes (as in the IETF draft) and the same key without quotes (as in common use)
 * are equal.
 * @param header as Node gives it. Node joins repeated headers with a comma and a space, and the space is refused
 */
export function readIdempotencyKey(
  header: string | readonly string[] | undefined,
):
  | { readonly kind: 'key'; readonly key: string }
  | { readonly kind: 'absent' }
  | { readonly kind: 'invalid'; readonly message: string } {
  if (header === undefined) return { kind: 'absent' };
  if (typeof header !== 'string') return { kind: 'invalid', message: 'stands more than once' };
  const quoted = /^"((?:[^"\\]|\\["\\])*)"$/.exec(header)?.[1];
  const key = quoted === undefined ? header : quoted.replaceAll(/\\(["\\])/g, '$1');
  if (/^[\x21-\x7e]{1,255}$/.test(key) && (quoted !== undefined || !key.startsWith('"'))) return { kind: 'key', key };
  return { kind: 'invalid', message: 'must be 1 to 255 visible ASCII characters, bare or in double quotes' };
}
