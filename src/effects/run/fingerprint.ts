import { hash, type KeyObject } from 'node:crypto';
import { canonicalJson } from '../../json/canonical.ts';
import type { JsonObject } from '../../json/value.ts';

/** What makes two calls the same action. Nothing else does: not the door, not the key that asks, not the time. */
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
 * The fingerprint of an action: HMAC-SHA-256 over its canonical form, under a key of the workspace (a bare hash of
 * params falls to a dictionary). `fp1:` names the version of the form.
 */
export function fingerprint(key: KeyObject, action: FingerprintedAction): string {
  const canonical = canonicalJson({
    v: 1,
    workspace: action.workspace,
    agent_id: action.agentId,
    action_type: action.actionType,
    tool: action.tool,
    target: action.target,
    params: action.params,
    // Absent where there are none: most calls have none, and fingerprints of before stay what they are.
    ...(Object.keys(action.headers).length === 0 ? null : { headers: action.headers }),
  });
  return `fp1:${hmacSha256(key, canonical)}`;
}

/**
 * The idempotency key of a call that brought none, on a route with `idempotency: derive`: the same action within the
 * same window is the same call. Windows begin at whole multiples of `windowMs`; a repeat in the next one is a new call.
 * @param now ms since the epoch, store time
 */
export function deriveKey(key: KeyObject, action: FingerprintedAction, windowMs: number, now: number): string {
  return `derived:${windowMs}:${Math.floor(now / windowMs)}:${fingerprint(key, action)}`;
}

/** Block and digest of SHA-256, bytes. */
const BLOCK_BYTES = 64;
const DIGEST_BYTES = 32;

/** The first block of the inner and of the outer hash, with room for the digest behind the latter. */
interface Pads {
  readonly inner: Buffer;
  readonly outer: Buffer;
}

const padsOf = new WeakMap<KeyObject, Pads>();

/** Most actions fit; taking memory for each would be much of what a fingerprint costs. */
const SCRATCH_BYTES = 4096;
const scratch = Buffer.alloc(SCRATCH_BYTES);

/** A character of UTF-16 takes at most this many bytes of UTF-8. */
const MOST_BYTES = 3;

/**
 * HMAC-SHA-256 (RFC 2104), base64url, out of two one-shot hashes: making an `Hmac` costs several times what it
 * computes. A test compares the two.
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
