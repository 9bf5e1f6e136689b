import { isUtf8 } from 'node:buffer';
import { Gathered } from '../../bytes/gathered.ts';
import { type FileFacts, isFile } from '../../effects/model/files.ts';
import { type Json, pointerTo } from '../../json/value.ts';
import { collectFields, FormFault, type FormOptions, MOST_SHOWN, type ReadForm } from './form.ts';
import { UNKNOWN_TYPE } from './multipart-body.ts';
import { type PartHead, readPartHead } from './part-headers.ts';
import type { IncomingFile } from './spool.ts';

export interface MultipartOptions extends FormOptions {
  readonly boundary: string;
  /** The most bytes of all fields together, and of the headers of all parts. */
  readonly fieldBytes: number;
  readonly openFile: () => IncomingFile;
}

/** The most bytes of the headers of one part. */
const MAX_HEAD = 8_192;
const END_OF_HEAD = Buffer.from('\r\n\r\n');
const CR = 0x0d;
const LF = 0x0a;
const DASH = 0x2d;

interface Part {
  readonly head: Exclude<PartHead, { kind: 'fault' }>;
  readonly file: IncomingFile | null;
  readonly text: Gathered;
  bytes: number;
}

/**
 * Reads `multipart/form-data` as it arrives: fields into params, files through {@link MultipartOptions.openFile}.
 * Accepts only what every server reads in the same way: nothing before the first boundary or after the last, no folded
 * headers, no padding of boundaries, no name twice (except for lists). The body that is sent is written anew from what
 * was read.
 * @throws what the source and the files throw
 */
export async function readMultipart(source: AsyncIterable<Buffer>, options: MultipartOptions): Promise<ReadForm> {
  const reader = createReader(options);
  try {
    for await (const chunk of source) {
      const written = reader.push(chunk);
      if (written !== null) await written;
    }
    return reader.end();
  } catch (error) {
    if (error instanceof FormFault) return { ok: false, path: error.path, message: error.message };
    throw error;
  }
}

function createReader(options: MultipartOptions) {
  const needle = Buffer.from(`--${options.boundary}`);
  const fields = collectFields(options);
  const files = new Set<FileFacts>();
  let state: 'start' | 'boundary' | 'head' | 'body' | 'end' = 'start';
  let rest: Buffer = Buffer.alloc(0);
  let part: Part | null = null;
  let parts = 0;
  let fieldBytes = 0;

  const where = (): string => `part ${parts}`;
  const charge = (bytes: number): void => {
    fieldBytes += bytes;
    if (fieldBytes > options.fieldBytes)
      throw new FormFault(
        '',
        `has fields and headers of more than ${options.fieldBytes} bytes; large values are files`,
      );
  };
  const take = (bytes: number): Buffer => {
    const taken = rest.subarray(0, bytes);
    rest = rest.subarray(bytes);
    return taken;
  };

  const begin = (bytes: Buffer): void => {
    const head = readPartHead(bytes);
    if (head.kind === 'fault') throw new FormFault(pathOf(head.name), `${where()} ${head.message}`);
    charge(bytes.byteLength);
    part = { head, file: head.kind === 'file' ? options.openFile() : null, text: new Gathered(), bytes: 0 };
    state = 'body';
  };

  const content = (bytes: Buffer): Promise<void> | null => {
    if (part === null || bytes.byteLength === 0) return null;
    part.bytes += bytes.byteLength;
    if (part.file !== null) return part.file.write(bytes);
    charge(bytes.byteLength);
    part.text.add(bytes);
    return null;
  };

  const finish = (): void => {
    if (part === null) return;
    const { head, file, bytes } = part;
    const text = part.text.take();
    part = null;
    if (head.length !== null && head.length !== bytes)
      throw new FormFault(pathOf(head.name), `${where()} is not as long as its Content-Length says`);
    let value: string | FileFacts;
    if (head.kind === 'file' && file !== null) {
      const facts: FileFacts = { filename: head.filename, content_type: head.type ?? UNKNOWN_TYPE, ...file.end() };
      files.add(facts);
      value = facts;
    } else {
      if (!isUtf8(text)) throw new FormFault(pathOf(head.name), `${where()} is a field that is not UTF-8`);
      value = text.toString('utf8');
    }
    const fault = fields.put(head.name, value);
    if (fault !== null) throw new FormFault(fault.path, fault.message);
  };

  /** @returns whether the buffered bytes need another step; a promise if a file has to take some of them first */
  const step = (): boolean | Promise<void> => {
    switch (state) {
      case 'start':
        if (rest.byteLength < needle.byteLength) return false;
        if (!take(needle.byteLength).equals(needle))
          throw new FormFault('', 'does not begin with the boundary that Content-Type names');
        state = 'boundary';
        return true;
      case 'boundary': {
        if (rest.byteLength < 2) return false;
        const [first, second] = take(2);
        if (first === DASH && second === DASH) state = 'end';
        else if (first === CR && second === LF) {
          state = 'head';
          parts += 1;
        } else throw new FormFault('', `has more than a line end after the boundary behind ${where()}`);
        return true;
      }
      case 'head': {
        const end = rest.indexOf(END_OF_HEAD);
        if (end > MAX_HEAD || (end === -1 && rest.byteLength > MAX_HEAD))
          throw new FormFault('', `${where()} has headers of more than ${MAX_HEAD} bytes`);
        if (end === -1) return false;
        begin(take(end));
        take(END_OF_HEAD.byteLength);
        return true;
      }
      case 'body': {
        const at = rest.indexOf(needle);
        if (at === -1) {
          // Keep back what could be the start of a boundary, with the line end before it.
          const sure = rest.byteLength - needle.byteLength - 1;
          return sure <= 0 ? false : (content(take(sure)) ?? false);
        }
        if (at < 2 || rest[at - 2] !== CR || rest[at - 1] !== LF)
          throw new FormFault(pathOf(part?.head.name ?? null), `${where()} has the boundary inside`);
        const written = content(take(at - 2));
        if (written !== null) return written;
        take(2 + needle.byteLength);
        finish();
        state = 'boundary';
        return true;
      }
      case 'end':
        if (rest.byteLength > 2 || !rest.equals(LINE_END.subarray(0, rest.byteLength)))
          throw new FormFault('', 'has something behind its last boundary');
        return false;
    }
  };
  const goOn = (): Promise<void> | null => {
    for (;;) {
      const more = step();
      if (more === false) return null;
      if (more !== true) return more.then(() => goOn() ?? undefined);
    }
  };

  return {
    /** @returns a promise if the next chunk has to wait for a file */
    push(chunk: Buffer): Promise<void> | null {
      rest = rest.byteLength === 0 ? chunk : Buffer.concat([rest, chunk]);
      return goOn();
    },
    end(): ReadForm {
      if (state !== 'end') throw new FormFault('', 'ends without its last boundary');
      if (rest.byteLength === 1) throw new FormFault('', 'has something behind its last boundary');
      const read = fields.members();
      if (!read.ok) return read;
      // The names of fields can imitate a file that nobody sent.
      return resemblesFile({ ...read.members }, files)
        ? { ok: false, path: '', message: 'has fields that look like a file: bytes, sha256' }
        : read;
    },
  };
}

const LINE_END = Buffer.from('\r\n');

function resemblesFile(value: Json | undefined, files: ReadonlySet<FileFacts>): boolean {
  if (typeof value !== 'object' || value === null) return false;
  if (isFile(value)) return !files.has(value);
  return Object.values(value).some((member: Json) => resemblesFile(member, files));
}

function pathOf(name: string | null): string {
  return name === null ? '' : pointerTo([name], MOST_SHOWN);
}
