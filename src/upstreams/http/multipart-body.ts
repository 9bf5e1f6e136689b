import { createHash } from 'node:crypto';
import { type FileFacts, isFile } from '../../effects/model/files.ts';
import type { FormLists } from '../../effects/model/tool.ts';
import type { ComposedBody } from '../../effects/upstream.ts';
import type { Json, JsonObject } from '../../json/value.ts';
import { fieldsOf, formMisfit } from './form.ts';

/** The type of a file whose sender gave none. */
export const UNKNOWN_TYPE = 'application/octet-stream';

/** Longest name of a file, characters. */
const MAX_FILENAME = 1024;
const MAX_TYPE = 255;

/**
 * Writes params as `multipart/form-data`. Always the same spelling is sent, whichever door the call came through. The
 * boundary is a hash over the whole body: equal calls give equal bytes, and nobody can put the boundary into a field or
 * a file.
 * @returns `null` if there is nothing to write
 */
export function writeMultipart(members: JsonObject, lists: FormLists): ComposedBody | null {
  const fields = fieldsOf(members, lists, isFile);
  if (fields.length === 0) return null;
  const named = createHash('sha256');
  for (const [name, value] of fields) named.update(`${JSON.stringify([name, value])}\n`);
  const boundary = `svc-${named.digest('hex').slice(0, 48)}`;
  const pieces: ComposedBody['pieces'][number][] = [];
  let text = '';
  let length = 0;
  const flush = (): void => {
    if (text === '') return;
    const bytes = Buffer.from(text);
    length += bytes.byteLength;
    pieces.push(bytes);
    text = '';
  };
  for (const [name, value] of fields) {
    text += `--${boundary}\r\nContent-Disposition: form-data; name="${name}"`;
    if (isFile(value)) {
      text += `; filename="${value.filename ?? ''}"\r\nContent-Type: ${value.content_type ?? UNKNOWN_TYPE}\r\n\r\n`;
      flush();
      length += value.bytes;
      pieces.push({ sha256: value.sha256, bytes: value.bytes });
      text += '\r\n';
    } else text += `\r\n\r\n${typeof value === 'string' ? value : ''}\r\n`;
  }
  text += `--${boundary}--\r\n`;
  flush();
  return { contentType: `multipart/form-data; boundary=${boundary}`, length, pieces };
}

/** A body that is one file, of any type. */
export function writeOpaque(file: FileFacts): ComposedBody {
  const { content_type: contentType = null, bytes, sha256 } = file;
  return { contentType, length: bytes, pieces: [{ sha256, bytes }] };
}

/** Why a param cannot be written as parts of multipart; `null` if it can. */
export function multipartMisfit(
  name: string,
  value: Json,
  written: { readonly lists: FormLists; readonly schema: JsonObject | null },
): string | null {
  const misfit = formMisfit(name, value, { ...written, fileMisfit });
  if (misfit !== null) return misfit;
  for (const [field] of fieldsOf({ [name]: value }, written.lists, isFile)) {
    const fault = quotedFault(field);
    if (fault !== null) return `goes into a form: a name ${fault}`;
  }
  return null;
}

function fileMisfit({ filename, content_type: type }: FileFacts): string | null {
  if (filename === undefined || filename === '') return 'is a file without a filename';
  return filenameFault(filename) ?? typeFault(type);
}

/** Why a value cannot be a whole body; `null` if it can. */
export function opaqueMisfit(value: Json): string | null {
  if (!isFile(value)) return 'is the bytes of the body: send { content_type, data }, data in base64';
  if (value.filename !== undefined) return 'is the bytes of the body, which have no filename';
  return typeFault(value.content_type);
}

/** Finds names that servers read in different ways. @returns the fault, as words that follow the name of its owner */
export function quotedFault(text: string): string | null {
  // eslint-disable-next-line no-control-regex -- control characters are what it looks for
  if (/[\u0000-\u001f\u007f]/.test(text)) return 'has a control character';
  if (/["\\]/.test(text)) return 'has a quote or a backslash, which servers read in different ways';
  if (/;.*=/.test(text)) return 'has a ";" and a "=", which some servers take for a parameter';
  return /%(?:22|0a|0d)/i.test(text) ? 'has %22, %0A or %0D, which some servers decode and others do not' : null;
}

export function filenameFault(filename: string): string | null {
  if (filename.length > MAX_FILENAME) return `has a filename of more than ${MAX_FILENAME} characters`;
  const fault = quotedFault(filename);
  if (fault !== null) return `has a filename that ${fault}`;
  if (filename.includes('/')) return 'has a filename with a slash, which some servers take for a path';
  return filename === '.' || filename === '..' ? 'has a filename that is a path' : null;
}

export function typeFault(type: string | undefined): string | null {
  if (type === undefined) return null;
  const isType = type.length <= MAX_TYPE && /^[\w!#$&^.+*|~-]+\/[\w!#$&^.+*|~-]+(?: ?; ?[\x20-\x7e]+)?$/.test(type);
  return isType ? null : 'has a content_type that is no media type';
}
