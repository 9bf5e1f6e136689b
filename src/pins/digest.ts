import { createHash } from 'node:crypto';
import { canonicalJson } from '../json/text.ts';
import { type Json, isJsonArray, isJsonObject } from '../json/value.ts';
import { sizeUpTo } from '../json/size.ts';
import { parseStrictJson } from '../json/strict.ts';

/** Levels of nesting that a definition may have. What is deeper cannot be pinned: hashing it could exhaust the stack. */
export const MAX_TOOL_DEPTH = 100;

/**
 * Characters of a definition as JSON, at most. The gateway computes the digest of each tool that a server lists, one in
 * one go.
 */
export const MAX_TOOL = 1_048_576;

/** Of one definition. A lock file reads what is within these limits. */
const LIMITS = { depth: MAX_TOOL_DEPTH + 1, values: 100_000, name: 10_000 };

/**
 * The pin of a tool: SHA-256, in hexadecimal, of the canonical form (RFC 8785) of the whole object as it came over the
 * wire. Nothing is left out, so that a later change of any member is a change of the pin.
 */
export function toolDigest(
  tool: Json,
): { readonly ok: true; readonly sha256: string } | { readonly ok: false; readonly why: string } {
  if (isDeeper(tool, MAX_TOOL_DEPTH)) return { ok: false, why: `it is nested deeper than ${MAX_TOOL_DEPTH} levels` };
  if (isTooLong(tool)) return { ok: false, why: `it is longer than ${MAX_TOOL} characters` };
  let text: string;
  try {
    text = canonicalJson(tool);
  } catch (error) {
    if (error instanceof TypeError) return { ok: false, why: `it is not JSON: ${error.message}` };
    throw error;
  }
  // What a strict reader refuses could be pinned, and not be read again: names that differ only in case, for example.
  const read = parseStrictJson(text, LIMITS);
  if (!read.ok) return { ok: false, why: `it is not strict JSON: ${read.message}` };
  return { ok: true, sha256: createHash('sha256').update(text, 'utf8').digest('hex') };
}

/** Whether a definition is longer than one that can be pinned. */
export function isTooLong(tool: Json): boolean {
  return sizeUpTo(tool, MAX_TOOL) > MAX_TOOL;
}

function isDeeper(value: Json, levels: number): boolean {
  if (isJsonArray(value)) return levels === 0 || value.some((item) => isDeeper(item, levels - 1));
  return isJsonObject(value) && (levels === 0 || Object.values(value).some((item) => isDeeper(item, levels - 1)));
}
