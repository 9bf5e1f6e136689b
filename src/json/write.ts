import { setImmediate as others } from 'node:timers/promises';
import { type Json, isJsonArray, type JsonObject } from './value.ts';
import { quote } from './text.ts';

/** Characters written in one go. */
const PART = 32_768;

/**
 * A value as `JSON.stringify` writes it, made in parts, so that other requests get their turn in between. For 8 MiB of
 * names, `JSON.stringify` takes a tenth of a second.
 */
export async function jsonInSlices(value: Json): Promise<Buffer> {
  const parts: Buffer[] = [];
  for (const part of jsonParts(value)) {
    if (parts.length > 0) await others();
    parts.push(part);
  }
  const [only] = parts;
  return parts.length === 1 && only !== undefined ? only : Buffer.concat(parts);
}

/** The same, part by part. No part ends within a character. */
export function* jsonParts(value: Json): Generator<Buffer, void> {
  const output: Output = { text: '' };
  yield* member(value, output);
  if (output.text !== '') yield Buffer.from(output.text);
}

/** What was written, and is no whole part yet. */
interface Output {
  text: string;
}

function* container(value: readonly Json[] | JsonObject, output: Output): Generator<Buffer, void> {
  if (isJsonArray(value)) {
    let before = '[';
    for (const one of value) {
      output.text += before;
      yield* member(one, output);
      before = ',';
    }
    output.text += value.length === 0 ? '[]' : ']';
  } else {
    let before = '{';
    for (const name of Object.keys(value)) {
      const one = value[name];
      if (one === undefined) continue;
      output.text += `${before}${quote(name)}:`;
      yield* member(one, output);
      before = ',';
    }
    output.text += before === '{' ? '{}' : '}';
  }
}

function* member(value: Json, output: Output): Generator<Buffer, void> {
  if (typeof value === 'string') {
    if (value.length <= PART) output.text += quote(value);
    else yield* longText(value, output);
  } else if (typeof value === 'object' && value !== null) yield* container(value, output);
  else output.text += typeof value === 'number' ? JSON.stringify(value) : String(value);
  if (output.text.length >= PART) yield taken(output);
}

/** A text of any length. Its characters beyond the first plane are not parted. */
function* longText(text: string, output: Output): Generator<Buffer, void> {
  output.text += '"';
  for (let at = 0; at < text.length; ) {
    const next = at + PART;
    const end = isHighSurrogate(text, next - 1) ? next + 1 : next;
    output.text += quote(text.slice(at, end)).slice(1, -1);
    at = end;
    if (output.text.length >= PART) yield taken(output);
  }
  output.text += '"';
}

function isHighSurrogate(text: string, at: number): boolean {
  const code = text.charCodeAt(at);
  return code >= 0xd800 && code <= 0xdbff;
}

function taken(output: Output): Buffer {
  const part = Buffer.from(output.text);
  output.text = '';
  return part;
}
