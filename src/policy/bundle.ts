import { promisify } from 'node:util';
import { gunzip, gunzipSync, gzipSync } from 'node:zlib';
import { policyTextToWire, type PolicyText, versionOfShown } from './policy-texts.ts';
import { readOwnJson } from '../json/text.ts';
import type { Json } from '../json/value.ts';

/** Characters of one part: rows of a store, none of which holds it up for long. */
const PART_CHARACTERS = 256 * 1024;
/** A bundle that packs to more is not kept in the store: about 4 MB, which is 30 MB of policies as they are written. */
const MOST_PARTS = 16;
/** Bytes that a bundle may unpack to. */
const MOST_BYTES = 256 * 1024 * 1024;

type Packed = readonly (readonly [file: string, text: string, lists: readonly (readonly [string, string | null])[]])[];

/**
 * Policy files and the lists that they name, as small texts that a store can keep. Takes its time: it is done beside the
 * thread that answers calls.
 * @returns nothing where they are too large
 */
export function packBundle(texts: readonly PolicyText[]): readonly string[] {
  const packed: Packed = texts.map(({ file, text, lists }) => [file, text, [...lists]]);
  const whole = gzipSync(JSON.stringify(packed)).toString('base64');
  const parts: string[] = [];
  for (let at = 0; at < whole.length; at += PART_CHARACTERS) parts.push(whole.slice(at, at + PART_CHARACTERS));
  return parts.length > MOST_PARTS ? [] : parts;
}

/** @throws Error for what {@link packBundle} has not made */
export function unpackBundle(parts: readonly string[]): readonly PolicyText[] {
  const bytes = gunzipSync(Buffer.from(parts.join(''), 'base64'), { maxOutputLength: MOST_BYTES });
  // What comes of a bundle is held against the version that it was sealed with.
  return textsOf(bytes);
}

/** The version of files, or of packed ones, that somebody else may have made; `null` where they are none. */
export function policyVersion(files: Json | undefined, packed: readonly string[]): string | null {
  try {
    return versionOfShown(packed.length === 0 ? files : unpackBundle(packed).map(policyTextToWire));
  } catch {
    return null;
  }
}

/**
 * The same for people, beside the thread that answers calls.
 * @param most bytes that it may unpack to
 * @returns `null` where it is more
 */
export async function unpackShort(parts: readonly string[], most: number): Promise<readonly PolicyText[] | null> {
  try {
    const bytes = await promisify(gunzip)(Buffer.from(parts.join(''), 'base64'), { maxOutputLength: most });
    return textsOf(bytes);
  } catch (error) {
    if (error instanceof RangeError) return null;
    throw error;
  }
}

function textsOf(bytes: Buffer): readonly PolicyText[] {
  const packed = readOwnJson<Packed>(bytes.toString('utf8'));
  return packed.map(([file, text, lists]) => ({ file, text, lists: new Map(lists) }));
}
