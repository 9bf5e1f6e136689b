import { isUtf8 } from 'node:buffer';
import { setImmediate as others } from 'node:timers/promises';
import type { Made, Open, Scan } from './scan.ts';
import { advance, beginScan, type JsonLimits, NOT_UTF8, parsed, type StrictJson, valueOf } from './strict.ts';
import { isJsonArray, type Json } from './value.ts';

/** Characters scanned in one go. */
const SLICE = 32_768;
/** Bytes decoded in one go. */
const DECODED = 262_144;

/**
 * Like {@link parseStrictJson}, for a large text: reads it in parts, so that other requests get their turn in between.
 * The value is made in parts, too: `JSON.parse` takes a tenth of a second for 8 MiB of names.
 * @param slice characters that are read in one go
 */
export async function parseStrictJsonInSlices(bytes: Buffer, limits: JsonLimits, slice = SLICE): Promise<StrictJson> {
  if (!isUtf8(bytes)) return NOT_UTF8;
  const scan = beginScan(await decoded(bytes), limits, slice, make);
  if ('ok' in scan) return scan;
  for (;;) {
    await others();
    const judged = advance(scan, scan.at + slice);
    if (judged === 'more') continue;
    if (typeof judged === 'object') return judged;
    await others();
    const value: StrictJson = scan.root === null ? parsed(scan) : { ok: true, value: scan.root.value };
    await others();
    return value;
  }
}

/**
 * Makes values of the text up to `until`, where a member or an element of the innermost list or object ends. What is
 * open around it is made, too.
 */
function make(scan: Scan, until: number): void {
  const { text, open } = scan;
  let outer: Open | null = null;
  for (const inner of open) {
    const made = inner.made ?? (inner.names === null ? { kind: 'list', value: [] } : { kind: 'object', value: {} });
    if (inner.made === null) {
      inner.made = made;
      if (outer === null) scan.root = made;
      else put(outer, made.value);
    }
    const end = inner === open.at(-1) ? until : inner.comma;
    const start = Math.max(inner.start, scan.madeTo);
    if (end > start) add(scan, made, text.slice(start, end));
    outer = inner;
  }
  scan.madeTo = until;
}

function put({ made, name }: Open, value: Json): void {
  if (made?.kind === 'list') made.value.push(value);
  else if (made?.kind === 'object') made.value[name] = value;
}

/** Adds elements or members. A comma before the first follows one that was made before. */
function add(scan: Scan, made: Made, text: string): void {
  const whole = text.replace(/^[ \n\r\t]*,/, '');
  if (made.kind === 'list') {
    const more = valueOf(scan, `[${whole}]`);
    if (isJsonArray(more)) for (const one of more) made.value.push(one);
  } else Object.assign(made.value, valueOf(scan, `{${whole}}`));
}

/** UTF-8 as a text. */
async function decoded(bytes: Buffer): Promise<string> {
  let text = '';
  for (let at = 0; at < bytes.length; ) {
    let end = Math.min(at + DECODED, bytes.length);
    // Not within a character.
    while (end < bytes.length && ((bytes[end] ?? 0) & 0xc0) === 0x80) end -= 1;
    text += bytes.toString('utf8', at, end);
    at = end;
    await others();
  }
  return text;
}
