import { isUtf8 } from 'node:buffer';
import { percentDecoded } from '../../bytes/percent-decoded.ts';
import { filenameFault, quotedFault, typeFault } from './multipart-body.ts';

export type PartHead =
  | { readonly kind: 'field'; readonly name: string; readonly length: number | null }
  | {
      readonly kind: 'file';
      readonly name: string;
      readonly filename: string;
      readonly type: string | null;
      readonly length: number | null;
    }
  | { readonly kind: 'fault'; readonly name: string | null; readonly message: string };

const TOKEN = "[!#$%&'*+.^_`|~0-9A-Za-z-]+";
const HEADER = new RegExp(`^(${TOKEN}):[ \\t]*(.*?)[ \\t]*$`);
const PARAMETER = new RegExp(`^[ \\t]*;[ \\t]*(${TOKEN})=(?:"([^"]*)"|(${TOKEN}))`);

/** Headers that a part may have. The part is written anew, so other headers would be lost. */
const KNOWN: readonly string[] = ['content-disposition', 'content-type', 'content-length', 'content-transfer-encoding'];
const PLAIN_ENCODINGS: readonly string[] = ['binary', '8bit', '7bit'];

/** Reads the headers of a part strictly: whatever servers read in different ways is a fault. */
export function readPartHead(bytes: Buffer): PartHead {
  const fault = (message: string, name: string | null = null): PartHead => ({ kind: 'fault', name, message });
  if (!isUtf8(bytes)) return fault('has headers that are not UTF-8');
  const headers = new Map<string, string>();
  for (const line of bytes.toString('utf8').split('\r\n')) {
    if (/^[ \t]/.test(line)) return fault('has a header that is folded over two lines');
    // eslint-disable-next-line no-control-regex -- control characters are what it looks for
    if (/[\u0000-\u0008\u000a-\u001f\u007f]/.test(line)) return fault('has a control character in its headers');
    const [, header = '', value = ''] = HEADER.exec(line) ?? [];
    const name = header.toLowerCase();
    if (name === '') return fault('has a line among its headers that is none');
    if (headers.has(name)) return fault(`has the header ${name} twice`);
    if (!KNOWN.includes(name)) return fault(`has the header ${name.slice(0, 60)}, which would not go on`);
    headers.set(name, value);
  }
  const disposition = headers.get('content-disposition');
  if (disposition === undefined) return fault('has no Content-Disposition');
  const named = readDisposition(disposition);
  if ('message' in named) return fault(named.message, named.name);
  const { name, filename } = named;
  const encoding = headers.get('content-transfer-encoding')?.toLowerCase() ?? 'binary';
  if (!PLAIN_ENCODINGS.includes(encoding))
    return fault('has a Content-Transfer-Encoding, which some servers decode and others do not', name);
  const length = headers.get('content-length') ?? null;
  if (length !== null && !/^(?:0|[1-9][0-9]{0,14})$/.test(length)) return fault('has a wrong Content-Length', name);
  const type = headers.get('content-type') ?? null;
  const size = length === null ? null : Number(length);
  if (filename !== null) {
    const misfit = type === null ? null : typeFault(type);
    return misfit === null ? { kind: 'file', name, filename, type, length: size } : fault(misfit, name);
  }
  if (type !== null && !/^text\/plain(?:;[ \t]*charset="?(?:utf-8|us-ascii)"?)?$/i.test(type))
    return fault(
      `is a field of the type ${type.slice(0, 60)}: fields are UTF-8 texts; send a file, with a filename`,
      name,
    );
  return { kind: 'field', name, length: size };
}

function readDisposition(
  text: string,
):
  | { readonly name: string; readonly filename: string | null }
  | { readonly name: string | null; readonly message: string } {
  const kind = /^form-data(?=[ \t]*(?:;|$))/i.exec(text);
  if (kind === null) return { name: null, message: 'has a Content-Disposition that is not form-data' };
  const values = new Map<string, string>();
  let rest = text.slice(kind[0].length);
  while (rest.trim() !== '') {
    const found = PARAMETER.exec(rest);
    if (found === null) return { name: null, message: 'has a Content-Disposition that cannot be read in one way only' };
    const parameter = (found[1] ?? '').toLowerCase();
    if (values.has(parameter)) return { name: null, message: `has ${parameter} twice in its Content-Disposition` };
    if (!['name', 'filename', 'filename*'].includes(parameter))
      return { name: null, message: `has ${parameter.slice(0, 60)} in its Content-Disposition, which would not go on` };
    values.set(parameter, found[2] ?? found[3] ?? '');
    rest = rest.slice(found[0].length);
  }
  const name = values.get('name');
  if (name === undefined || name === '') return { name: null, message: 'has no name' };
  const nameFault = quotedFault(name);
  if (nameFault !== null) return { name: null, message: `has a name that ${nameFault}` };
  const plain = values.get('filename') ?? null;
  const extended = values.get('filename*');
  const filename = extended === undefined ? plain : readExtended(extended);
  if (extended !== undefined && (filename === null || (plain !== null && plain !== filename)))
    return { name, message: 'has a filename* that is not filename in UTF-8: servers take the one or the other' };
  if (filename === '') return { name, message: 'is a file without a filename' };
  const misfit = filename === null ? null : filenameFault(filename);
  return misfit === null ? { name, filename } : { name, message: misfit };
}

function readExtended(text: string): string | null {
  const encoded = /^utf-8''((?:[A-Za-z0-9!#$&+.^_`|~-]|%[0-9A-Fa-f]{2})+)$/i.exec(text)?.[1];
  return encoded === undefined ? null : percentDecoded(encoded);
}

/** The boundary that a `Content-Type` of multipart names, or what is wrong with it. */
export function readBoundary(contentType: string): { readonly boundary: string } | { readonly message: string } {
  let rest = contentType.replace(/^[^;]*/, '');
  let boundary: string | null = null;
  while (rest.trim() !== '') {
    const found = PARAMETER.exec(rest);
    const parameter = found?.[1]?.toLowerCase();
    const value = found?.[2] ?? found?.[3] ?? '';
    if (found === null) return { message: 'Content-Type cannot be read in one way only' };
    if (parameter === 'boundary' && boundary === null) boundary = value;
    else if (parameter === 'boundary') return { message: 'Content-Type names two boundaries' };
    else if (parameter !== 'charset' || !/^utf-8$/i.test(value))
      return { message: 'Content-Type has more than a boundary; fields are read as UTF-8' };
    rest = rest.slice(found[0].length);
  }
  if (boundary === null) return { message: 'Content-Type names no boundary' };
  return /^[0-9A-Za-z'()+_,./:=?-](?:[0-9A-Za-z'()+_,./:=? -]{0,68}[0-9A-Za-z'()+_,./:=?-])?$/.test(boundary)
    ? { boundary }
    : { message: 'the boundary is not 1 to 70 characters that a boundary may have' };
}
