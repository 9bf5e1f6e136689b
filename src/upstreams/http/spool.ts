import { createHash, type Hash, randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { type FileHandle, mkdir, open, readdir, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { Gathered } from '../../bytes/gathered.ts';
import type { CallFiles } from '../../effects/model/files.ts';

/** How many bytes of callers' bodies may be kept. */
export interface SpoolLimits {
  readonly file: number;
  /** For all requests together. */
  readonly all: number;
}

/** A file of a request, as it arrives. */
export type IncomingFile = ReturnType<typeof incomingFile>;

export type Upload = ReturnType<typeof createUpload>;

/** Where the files of requests are kept while their calls run. */
export type Spool = Awaited<ReturnType<typeof openSpool>>;

export class FileTooLarge extends Error {
  override readonly name = 'FileTooLarge';
}

/** There is no room for what a caller sends, or the disk refuses it. */
export class SpoolFull extends Error {
  override readonly name = 'SpoolFull';
}

/** How many bytes of one request's files stay in memory. */
export const IN_MEMORY = 65_536;
/** Bytes that one read from a file takes. */
const PIECE = 65_536;

/**
 * A spool in a folder. Small files stay in memory. Larger ones of a request go into one file on disk. Its name is
 * removed as soon as it is open, so nothing stays when the process ends, however it ends. If a crash happened between
 * the two, the next start removes the file.
 */
export async function openSpool(folder: string) {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  for (const name of await readdir(folder)) await unlink(join(folder, name)).catch(ignoreAbsent);
  let used = 0;
  const usedBy = new Map<string, number>();
  return {
    /** @param owner whose files they are: no owner takes all the room */
    begin: (limits: SpoolLimits, owner: string): Upload =>
      createUpload(folder, limits, (bytes) => {
        const own = usedBy.get(owner) ?? 0;
        if (bytes > 0) {
          if (used + bytes > limits.all)
            throw new SpoolFull('the files of all requests take up the room that there is');
          if (own + bytes > (limits.all - (used - own)) * SHARE)
            throw new SpoolFull('the files of other requests of this agent take up its share of the room');
        }
        used += bytes;
        if (own + bytes === 0) usedBy.delete(owner);
        else usedBy.set(owner, own + bytes);
      }),
    /** Bytes that are kept now. */
    used: (): number => used,
  };
}

/**
 * How much of the room that others leave one owner gets, as with connections: one alone gets three quarters of all, and
 * the next three quarters of the rest.
 */
const SHARE = 3 / 4;

/** @param take counts bytes, negative ones as given back; throws SpoolFull where there is no room */
function createUpload(folder: string, limits: SpoolLimits, take: (bytes: number) => void) {
  const ranges = new Map<string, { readonly at: number; readonly bytes: number }>();
  const memory = new Gathered();
  let handle: FileHandle | null = null;
  let length = 0;
  /** Running reads keep the file open. */
  let discarded = false;
  let lastWrite: Promise<void> = Promise.resolve();

  const spill = async (): Promise<FileHandle> => {
    if (handle === null) {
      handle = await openNameless(folder);
      await writeWhole(handle, memory.take(), 0);
    }
    return handle;
  };
  const keep = (chunk: Buffer): Promise<void> | null => {
    if (discarded) throw new SpoolFull('the request is over');
    take(chunk.byteLength);
    const at = length;
    length += chunk.byteLength;
    if (handle === null && length <= IN_MEMORY) {
      memory.add(chunk);
      return null;
    }
    lastWrite = spill()
      .then((opened) => writeWhole(opened, chunk, at))
      .catch((cause: unknown) => {
        throw new SpoolFull('the disk does not take the files of the request', { cause });
      });
    return lastWrite;
  };

  async function* read(sha256: string): AsyncGenerator<Buffer> {
    const range = ranges.get(sha256);
    if (range === undefined || discarded) throw new Error('the bytes of a file of the call are not there');
    if (handle === null) {
      yield memory.whole().subarray(range.at, range.at + range.bytes);
      return;
    }
    yield* piecesOf(handle, range);
  }

  return {
    /** Starts the next file. The previous one must have ended. */
    open: (): IncomingFile =>
      incomingFile(limits.file, keep, (sha256, bytes) => {
        if (!ranges.has(sha256)) ranges.set(sha256, { at: length - bytes, bytes });
      }),
    files: {
      get bytes() {
        return length;
      },
      read,
    } satisfies CallFiles,
    /** Resolves once everything is stored. @throws SpoolFull if it could not be */
    kept: (): Promise<void> => lastWrite,
    /** Removes everything. A second call does nothing. */
    async discard(): Promise<void> {
      if (discarded) return;
      discarded = true;
      take(-length);
      memory.take();
      await lastWrite.catch(() => undefined);
      await handle?.close();
    },
  };
}

async function* piecesOf(
  handle: FileHandle,
  range: { readonly at: number; readonly bytes: number },
): AsyncGenerator<Buffer> {
  for (let done = 0; done < range.bytes; ) {
    const piece = Buffer.allocUnsafe(Math.min(PIECE, range.bytes - done));
    const { bytesRead } = await handle.read(piece, 0, piece.byteLength, range.at + done);
    if (bytesRead === 0) throw new Error('a file of the call is shorter than it was');
    done += bytesRead;
    yield piece.subarray(0, bytesRead);
  }
}

function incomingFile(
  most: number,
  keep: (chunk: Buffer) => Promise<void> | null,
  ended: (sha256: string, bytes: number) => void,
) {
  const hash: Hash = createHash('sha256');
  let bytes = 0;
  return {
    /**
     * @returns a promise if the sender has to wait
     * @throws FileTooLarge, SpoolFull
     */
    write(chunk: Buffer): Promise<void> | null {
      bytes += chunk.byteLength;
      if (bytes > most) throw new FileTooLarge(`is a file of more than ${most} bytes`);
      hash.update(chunk);
      return keep(chunk);
    },
    /** The facts about the file that go into the params. */
    end(): { readonly bytes: number; readonly sha256: string } {
      const sha256 = hash.digest('hex');
      ended(sha256, bytes);
      return { bytes, sha256 };
    },
  };
}

async function openNameless(folder: string): Promise<FileHandle> {
  const path = join(folder, randomUUID());
  const handle = await open(path, constants.O_RDWR | constants.O_CREAT | constants.O_EXCL, 0o600);
  await unlink(path).catch(ignoreAbsent);
  return handle;
}

async function writeWhole(handle: FileHandle, chunk: Buffer, at: number): Promise<void> {
  for (let done = 0; done < chunk.byteLength; ) {
    const { bytesWritten } = await handle.write(chunk, done, chunk.byteLength - done, at + done);
    done += bytesWritten;
  }
}

function ignoreAbsent(error: unknown): void {
  if (!(error instanceof Error && 'code' in error && error.code === 'ENOENT')) throw error;
}
