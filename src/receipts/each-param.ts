import { hash } from 'node:crypto';
import { SALT_BYTES } from '../effects/ports.ts';
import { canonicalJson } from '../json/canonical.ts';
import { isJsonArray, type Json, type JsonObject } from '../json/value.ts';
import { decodeBase64url } from './base64url.ts';

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
export function isOfEach(commitment: string): boolean {
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
export function leafTexts(salt: Buffer, params: JsonObject): readonly string[] {
  return (leavesOf(salt, params) ?? []).map((leaf) => leaf.toString('base64url'));
}

/** Whether one param is among those that a commitment is to. @param salt its own, base64url */
export function opensOne(
  commitment: string,
  leaves: Json | undefined,
  salt: string,
  name: string,
  value: Json,
): boolean {
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
export function paramSalt(salt: Buffer, name: string): Buffer {
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
