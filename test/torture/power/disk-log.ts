import { mkdirSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';

/** What recorder.c writes; see there. */
const OPEN = 1;
const WRITE = 2;
const CUT = 3;
const SYNC_BEGIN = 4;
const SYNC_END = 5;
const RENAME = 6;
const UNLINK = 7;
const MKDIR = 8;
const LINK = 9;
const HEAD_BYTES = 32;

/** What a disk loses is lost in units of this, bytes. */
const SECTOR = 512;

interface LogRecord {
  readonly kind: number;
  readonly flags: number;
  readonly node: bigint;
  readonly at: number;
  readonly first: Buffer;
  readonly second: Buffer;
}

/** A change of a file's bytes: `durable` since a sync, `open` until one, or `lost`: a sync that should have covered it failed. */
interface Change {
  readonly order: number;
  readonly at: number;
  /** `null`: the file was cut to the length `at`. */
  readonly bytes: Buffer | null;
  state: 'open' | 'durable' | 'lost';
}

interface RecordedFile {
  readonly kind: 'file';
  readonly base: Content;
  changes: Change[];
}

/** A change of the names in a folder: all of it, or nothing. */
interface Naming {
  readonly order: number;
  readonly gone: string | null;
  readonly come: { readonly name: string; readonly entry: Entry } | null;
}

interface Folder {
  readonly kind: 'folder';
  readonly namings: Naming[];
  durable: number;
}

type Entry = RecordedFile | Folder;

/** How much of what was not synced a cut takes. */
export type Loss = 'all' | 'none' | 'some';

/** A disk at one moment of a recording. */
export interface Moment {
  /** Lines that the recorded processes had written to the file `marks`: what they were told. */
  readonly marks: readonly string[];
  /** Builds in `target` what the disk may have after a power cut now. */
  rebuild(target: string, loss: Loss, random: () => number): void;
}

function* recordsOf(log: Buffer): Generator<LogRecord> {
  for (let at = 0; at + HEAD_BYTES <= log.length; ) {
    const first = log.readUInt32LE(at + 24);
    const second = log.readUInt32LE(at + 28);
    const body = at + HEAD_BYTES;
    if (body + first + second > log.length) return;
    yield {
      kind: log.readUInt32LE(at),
      flags: log.readUInt32LE(at + 4),
      node: log.readBigUInt64LE(at + 8),
      at: Number(log.readBigInt64LE(at + 16)),
      first: log.subarray(body, body + first),
      second: log.subarray(body + first, body + first + second),
    };
    at = body + first + second;
  }
}

/** How many records a log has, and after which of them a process had just been told something. */
export function measure(log: Buffer, root: string): { readonly records: number; readonly told: readonly number[] } {
  const told: number[] = [];
  let marks: bigint | null = null;
  let records = 0;
  for (const { kind, node, first } of recordsOf(log)) {
    records += 1;
    if (kind === OPEN && first.toString() === join(root, 'marks')) marks = node;
    if (kind === WRITE && node === marks) told.push(records);
  }
  return { records, told };
}

/**
 * Goes through a recording and shows the disk after the given numbers of records, which grow.
 * @param root the folder that was recorded; it was there, and empty, before
 */
export async function replay(
  log: Buffer,
  root: string,
  moments: readonly number[],
  look: (moment: Moment, place: number) => Promise<void>,
): Promise<void> {
  const top: Folder = { kind: 'folder', namings: [], durable: 0 };
  const live = new Map<string, Entry>([[root, top]]);
  const byNode = new Map<bigint, Entry>();
  const begun = new Map<number, number>();
  let marks = '';
  let order = 0;

  function folderOf(path: string): Folder {
    const folder = live.get(dirname(path));
    if (folder?.kind !== 'folder') throw new Error(`the recording names ${path}, and not its folder`);
    return folder;
  }
  function name(path: string, entry: Entry, gone: string | null): void {
    live.set(path, entry);
    folderOf(path).namings.push({ order, gone, come: { name: basename(path), entry } });
  }
  function opened({ flags, node, first }: LogRecord): void {
    const path = first.toString();
    let entry = live.get(path);
    if (entry === undefined) {
      entry = { kind: 'file', base: { bytes: Buffer.alloc(0), length: 0 }, changes: [] };
      name(path, entry, null);
    } else if (entry.kind === 'file' && (flags & 1) !== 0) {
      entry.changes.push({ order, at: 0, bytes: null, state: 'open' });
    }
    byNode.set(node, entry);
  }
  function fileOf(node: bigint): RecordedFile {
    const entry = byNode.get(node);
    if (entry?.kind !== 'file') throw new Error('the recording writes to a file that it did not open');
    return entry;
  }
  function synced({ node, at, flags }: LogRecord): void {
    const before = begun.get(at);
    begun.delete(at);
    const entry = byNode.get(node);
    if (before === undefined || entry === undefined) throw new Error('the recording ends a sync that did not begin');
    if (entry.kind === 'folder') {
      // One that began earlier may end later.
      const covered = entry.namings.filter((naming) => naming.order < before).length;
      if (flags === 0) entry.durable = Math.max(entry.durable, covered);
      return;
    }
    for (const change of entry.changes)
      if (change.state === 'open' && change.order < before) change.state = flags === 0 ? 'durable' : 'lost';
    const kept = entry.changes.findIndex(({ state }) => state !== 'durable');
    const settled = kept === -1 ? entry.changes : entry.changes.slice(0, kept);
    for (const change of settled) apply(entry.base, change);
    entry.changes = entry.changes.slice(settled.length);
  }
  function take(record: LogRecord): void {
    const { kind, flags, node, at, first, second } = record;
    switch (kind) {
      case OPEN:
        return opened(record);
      case WRITE:
        if (live.get(join(root, 'marks')) === byNode.get(node)) marks += first.toString();
        else fileOf(node).changes.push({ order, at, bytes: first, state: flags === 0 ? 'open' : 'durable' });
        return;
      case CUT:
        fileOf(node).changes.push({ order, at, bytes: null, state: 'open' });
        return;
      case SYNC_BEGIN:
        begun.set(at, order);
        return;
      case SYNC_END:
        return synced(record);
      case RENAME: {
        const entry = live.get(first.toString());
        if (entry === undefined) throw new Error(`the recording renames ${first.toString()}, which is not there`);
        live.delete(first.toString());
        name(second.toString(), entry, basename(first.toString()));
        return;
      }
      case LINK: {
        const entry = live.get(first.toString());
        if (entry !== undefined) name(second.toString(), entry, null);
        return;
      }
      case UNLINK:
        live.delete(first.toString());
        folderOf(first.toString()).namings.push({ order, gone: basename(first.toString()), come: null });
        return;
      case MKDIR:
        name(first.toString(), { kind: 'folder', namings: [], durable: 0 }, null);
        return;
      default:
        throw new Error(`a record of kind ${kind}`);
    }
  }

  let place = 0;
  for (const record of recordsOf(log)) {
    order += 1;
    take(record);
    for (; moments[place] === order; place += 1) {
      const moment: Moment = {
        marks: marks.split('\n').slice(0, -1),
        rebuild: (target, loss, random) => rebuildFolder(top, target, loss, random),
      };
      await look(moment, place);
    }
  }
}

/** Bytes that grow; what is beyond their end is zero. */
interface Content {
  bytes: Buffer;
  length: number;
}

function apply(content: Content, { at, bytes }: Pick<Change, 'at' | 'bytes'>): void {
  const end = bytes === null ? at : at + bytes.length;
  if (end > content.bytes.length) {
    const larger = Buffer.alloc(end * 2);
    content.bytes.copy(larger, 0, 0, content.length);
    content.bytes = larger;
  }
  if (bytes === null) {
    content.bytes.fill(0, Math.min(at, content.length), Math.max(at, content.length));
    content.length = at;
    return;
  }
  bytes.copy(content.bytes, at);
  content.length = Math.max(content.length, end);
}

/** The names of a folder come to the disk in their order; so much is lost of the end. */
function rebuildFolder({ namings, durable }: Folder, target: string, loss: Loss, random: () => number): void {
  const open = namings.length - durable;
  const kept = loss === 'all' ? 0 : loss === 'none' ? open : Math.floor(random() * (open + 1));
  const entries = new Map<string, Entry>();
  for (const { gone, come } of namings.slice(0, durable + kept)) {
    if (gone !== null) entries.delete(gone);
    if (come !== null) entries.set(come.name, come.entry);
  }
  mkdirSync(target, { recursive: true, mode: 0o700 });
  for (const [entry, what] of entries) {
    if (entry === 'marks') continue;
    const path = join(target, entry);
    if (what.kind === 'folder') rebuildFolder(what, path, loss, random);
    else writeFileSync(path, contentOf(what, loss, random), { mode: 0o600 });
  }
}

/** What was not synced is there, or not, or in part, each change for itself. */
function contentOf({ base, changes }: RecordedFile, loss: Loss, random: () => number): Buffer {
  const content: Content = { bytes: Buffer.from(base.bytes), length: base.length };
  for (const change of changes) {
    const whole = change.state === 'durable' || loss === 'none' || (loss === 'some' && random() < 0.4);
    if (whole) apply(content, change);
    else if (loss === 'some' && random() < 0.4) tearInto(content, change, random);
  }
  return content.bytes.subarray(0, content.length);
}

function tearInto(content: Content, { at, bytes }: Change, random: () => number): void {
  if (bytes === null) return;
  for (let from = 0; from < bytes.length; ) {
    const to = Math.min(bytes.length, from + SECTOR - ((at + from) % SECTOR));
    if (random() < 0.5) apply(content, { at: at + from, bytes: bytes.subarray(from, to) });
    from = to;
  }
}
