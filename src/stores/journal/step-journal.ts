import { constants, fdatasync, write as writeOnce } from 'node:fs';
import { open, readdir, readFile, stat, unlink, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { crc32 } from 'node:zlib';
import { parseObject } from '../../json/text.ts';
import { makePrivateFolder, replaceFile, syncFolderAside } from '../private-folder.ts';

/** A step that the store acknowledged to this gateway, with all that is needed to make it again. */
export interface JournaledStep extends JournalHead {
  readonly workspace: string;
  readonly redo: string;
  /** The batch of changes, in the bytes that were sent. */
  readonly batch: Buffer;
}

/** The newest step of a workspace that this gateway knows to be in the store. */
export interface JournalHead {
  readonly step: number;
  /** Time of the step by the store's clock, ms. */
  readonly at: number;
  readonly epoch: number;
}

/** What the gateway remembers about the installation to which it belongs. */
export interface InstallMemory {
  readonly installId: string;
  readonly gatewayId: string;
  /** The number of the newest accepted loss for which this gateway has handed in its steps; 0 for none. */
  readonly accepted: number;
}

/** The gateways that were registered in a workspace at a certain step. */
export interface Neighbours {
  readonly step: number;
  /** Grows whenever a gateway comes or goes. */
  readonly version: number;
  readonly gateways: readonly string[];
  /** The gateways that have left in order recently. */
  readonly gone: readonly string[];
}

/**
 * The gateway's own record of what the store acknowledged: appended, synced in groups, kept for a while. If a fail-over
 * loses acknowledged steps, the store is completed from the journals of all gateways.
 */
export type StepJournal = Awaited<ReturnType<typeof openStepJournal>>;

const SEGMENT_BYTES = 8 * 1024 * 1024;
/** How many bytes are kept of the segments before the current one. */
const KEPT_BYTES = 3 * SEGMENT_BYTES;
/** How many bytes a check writes: more than a step takes. */
const CHECKED_BYTES = 64 * 1024;
const MEMORY_FILE = 'install.json';
/** The form of the steps: batches in the bytes that were sent. Before they were lists of words. */
const FORMAT = 3;

/**
 * On systems that have it, a write returns when its bytes are on the medium: one trip to the disk for each group. macOS
 * has the flag, but only its sync gets through the disk's own cache.
 */
const SYNCED = process.platform === 'linux' ? constants.O_DSYNC : 0;

const CLOSED = 'the journal is closed';

/** Opens the journal in `folder`, which it creates with mode 0700. Leaves out an incomplete end from a crash. */
export async function openStepJournal(folder: string) {
  makePrivateFolder(folder);
  const heads = new Map<string, JournalHead>();
  let { memory, remembered, around, before } = await readMemory(folder);
  const neighbours = new Map(around);
  const dropped = new Map(before);
  /** By segment: the newest step of each workspace in it. */
  const newestIn = new Map<string, Map<string, JournalHead>>();
  for (const [workspace, head] of remembered) heads.set(workspace, head);
  const names = await segments(folder);
  for (const name of names) for (const step of await readSegment(join(folder, name))) raise(step, name);
  let saving = Promise.resolve();
  let number = numberOf(names.at(-1)) + 1;
  let file: FileHandle | null = null;
  let current = '';
  let size = 0;
  let waiting: {
    readonly pieces: readonly Buffer[];
    readonly step: JournaledStep | null;
    done(error: Error | null): void;
  }[] = [];
  let isWriting = false;
  let whenWritten: (() => void)[] = [];
  let closed = false;

  function raise(made: JournaledStep, segment: string): void {
    const { workspace, step, at, epoch } = made;
    if (isForgetting(made)) {
      for (const steps of [heads, dropped, ...newestIn.values()]) steps.delete(workspace);
      return;
    }
    const inSegment = newestIn.get(segment) ?? new Map<string, JournalHead>();
    newestIn.set(segment, inSegment);
    for (const steps of [heads, inSegment])
      if ((steps.get(workspace)?.step ?? 0) < step) steps.set(workspace, { step, at, epoch });
  }

  /** One after the other, because they write the same file. */
  function saveMemory(): Promise<void> {
    const next = saving.then(writeMemory, writeMemory);
    saving = next.catch(() => undefined);
    return next;
  }

  async function writeMemory(): Promise<void> {
    if (memory === null) return;
    const around = {
      heads: Object.fromEntries(heads),
      neighbours: Object.fromEntries(neighbours),
      dropped: Object.fromEntries(dropped),
    };
    await replaceFile(join(folder, MEMORY_FILE), `${JSON.stringify({ format: FORMAT, ...memory, ...around })}\n`);
  }

  async function nextSegment(): Promise<FileHandle> {
    await file?.close();
    file = null;
    current = `steps-${String(number).padStart(10, '0')}.log`;
    const path = join(folder, current);
    const made = await open(path, constants.O_APPEND | constants.O_CREAT | constants.O_WRONLY | SYNCED, 0o600);
    number += 1;
    size = 0;
    file = made;
    await syncFolderAside(folder);
    await dropOldest();
    return made;
  }

  /** Counts bytes, not segments: if groups fail, segments end with little in them. */
  async function dropOldest(): Promise<void> {
    let bytes = 0;
    const old: string[] = [];
    for (const name of (await segments(folder)).toReversed()) {
      if (bytes >= KEPT_BYTES) old.push(name);
      else bytes += (await stat(join(folder, name))).size;
    }
    for (const name of old.toReversed()) {
      for (const [workspace, newest] of newestIn.get(name) ?? []) dropped.set(workspace, newest);
      newestIn.delete(name);
    }
    // What the oldest segments knew must still be known when they are deleted.
    await saveMemory();
    for (const name of old) await unlink(join(folder, name));
  }

  /** Groups are written one after the other; all that the store answers in one turn of the event loop is one group. */
  function writeGroup(): void {
    const group = waiting;
    waiting = [];
    if (group.length === 0) {
      isWriting = false;
      const written = whenWritten;
      whenWritten = [];
      for (const done of written) done();
      return;
    }
    const bytes = Buffer.concat(group.flatMap(({ pieces }) => pieces));
    const written = (error: unknown): void => {
      let failed: Error | null = null;
      if (error === null) {
        size += bytes.length;
        for (const { step } of group) if (step !== null) raise(step, current);
      } else {
        failed = error instanceof Error ? error : new Error('the journal cannot be written');
        // Nobody knows how much of the group is in the file, so the next group begins another file.
        void file?.close().catch(() => undefined);
        file = null;
      }
      for (const { done } of group) done(failed);
      setImmediate(writeGroup);
    };
    if (file !== null && size <= SEGMENT_BYTES) writeAll(file, bytes, written);
    else void nextSegment().then((target) => writeAll(target, bytes, written), written);
  }

  function write(pieces: readonly Buffer[], step: JournaledStep | null, done: (error: Error | null) => void): void {
    if (closed) {
      done(new Error(CLOSED));
      return;
    }
    waiting.push({ pieces, step, done });
    if (isWriting) return;
    isWriting = true;
    setImmediate(writeGroup);
  }

  function written(pieces: readonly Buffer[], step: JournaledStep | null): Promise<void> {
    return new Promise((resolve, reject) => {
      write(pieces, step, (error) => {
        if (error === null) resolve();
        else reject(error);
      });
    });
  }

  return {
    get memory(): InstallMemory | null {
      return memory;
    },
    async remember(next: InstallMemory): Promise<void> {
      if (closed) throw new Error(CLOSED);
      memory = next;
      await saveMemory();
    },
    /** Calls `done` when the step is on disk, or cannot be written. */
    append: (step: JournaledStep, done: (error: Error | null) => void): void => write(recordOf(step), step, done),
    /** The same for a step that is awaited. @throws when it cannot be written */
    appended: (step: JournaledStep): Promise<void> => written(recordOf(step), step),
    /** Tries whether steps can be written again. @throws when they cannot */
    // It has no checksum, so readers do not take it for a step.
    check: (): Promise<void> => written([Buffer.alloc(CHECKED_BYTES, ' '), LINE_BREAK], null),
    /** Steps of a workspace after `base` that are still kept, in order. */
    async after(workspace: string, base: number): Promise<readonly JournaledStep[]> {
      const found = new Map<number, JournaledStep>();
      for (const name of await segments(folder)) {
        for (const step of await readSegment(join(folder, name))) {
          if (step.workspace !== workspace) continue;
          if (isForgetting(step)) found.clear();
          else if (step.step > base) found.set(step.step, step);
        }
      }
      return [...found.values()].sort((a, b) => a.step - b.step);
    },
    heads: (): ReadonlyMap<string, JournalHead> => heads,
    /** The newest step of a workspace that is no longer kept; `null`: all are. */
    dropped: (workspace: string): JournalHead | null => dropped.get(workspace) ?? null,
    /** Drops what was known of a workspace, including its steps, because an operator gave them up. */
    async forget(workspace: string): Promise<void> {
      const mark = { workspace, step: FORGETTING, at: 0, redo: '', batch: NOTHING, epoch: 0 };
      await written(recordOf(mark), mark);
      await saveMemory();
    },
    /** Who else was registered at the last look. */
    neighbours: (workspace: string): Neighbours | null => neighbours.get(workspace) ?? null,
    /** Stores who else is registered, if that has changed. */
    async noteNeighbours(workspace: string, now: Neighbours): Promise<void> {
      if (closed) throw new Error(CLOSED);
      const { version, gateways } = neighbours.get(workspace) ?? { version: -1, gateways: [] };
      if (version === now.version && isDeepStrictEqual(gateways, now.gateways)) return;
      neighbours.set(workspace, now);
      await saveMemory();
    },
    /** Writes what is still to be written. Later writes are refused: the folder may be another's by then. */
    async close(): Promise<void> {
      closed = true;
      if (isWriting) await new Promise<void>((resolve) => whenWritten.push(resolve));
      await file?.close();
      file = null;
      await saveMemory();
    },
  };
}

/** The installation to which the gateway of a journal belongs; `null` if none is remembered. Changes nothing. */
export async function rememberedInstall(folder: string): Promise<string | null> {
  return (await readMemory(folder)).memory?.installId ?? null;
}

/** Uses the callback interface: the one with promises would double the cost of each group. */
function writeAll({ fd }: FileHandle, bytes: Buffer, done: (error: Error | null) => void): void {
  writeOnce(fd, bytes, (error, written) => {
    if (error !== null) done(error);
    else if (written < bytes.length) done(new Error(`${written} of ${bytes.length} bytes of the journal were written`));
    else if (SYNCED === 0) fdatasync(fd, done);
    else done(null);
  });
}

/** Stands for a step: what came before it in the workspace no longer counts. */
const FORGETTING = 0;

function isForgetting({ step }: JournaledStep): boolean {
  return step === FORGETTING;
}

const NOTHING = Buffer.alloc(0);
const LINE_BREAK = Buffer.from('\n');

/** What stands in the line before a batch. */
type RecordHead = readonly [workspace: string, step: number, at: number, epoch: number, redo: string, bytes: number];

/** A checksum of all that follows, the head, and the batch with a line break after each. */
function recordOf({ workspace, step, at, redo, batch, epoch }: JournaledStep): readonly Buffer[] {
  const head = JSON.stringify([workspace, step, at, epoch, redo, batch.length] satisfies RecordHead);
  return [Buffer.from(`${sumOf(head, batch)} ${head}\n`), batch, LINE_BREAK];
}

function sumOf(head: string, batch: Buffer): string {
  return crc32(batch, crc32(head)).toString(16).padStart(8, '0');
}

/** A checksum and the blank after it. */
const SUM_LENGTH = 9;
const HEAD = /^[0-9a-f]{8} \[.+,(\d+)\]$/;

/** Leaves out what has a wrong checksum, such as an incomplete end: it was never acknowledged. */
async function readSegment(path: string): Promise<readonly JournaledStep[]> {
  const steps: JournaledStep[] = [];
  const bytes = await readFile(path);
  for (let at = 0; at < bytes.length; ) {
    const end = bytes.indexOf(LINE_BREAK, at);
    if (end === -1) break;
    const line = bytes.toString('utf8', at, end);
    const length = HEAD.exec(line)?.[1];
    at = end + 1;
    // What is no head is passed over alone; what comes after a head is never searched for another.
    if (length === undefined) continue;
    const batch = bytes.subarray(at, at + Number(length));
    at += Number(length) + 1;
    const head = line.slice(SUM_LENGTH);
    if (batch.length === Number(length) && line.startsWith(sumOf(head, batch))) steps.push(stepOf(head, batch));
  }
  return steps;
}

/** @param text of a head, which `recordOf` has made: its checksum is right */
function stepOf(text: string, batch: Buffer): JournaledStep {
  const [workspace, step, at, epoch, redo] = JSON.parse(text) as RecordHead;
  return { workspace, step, at, redo, batch, epoch };
}

async function segments(folder: string): Promise<readonly string[]> {
  return (await readdir(folder)).filter((name) => /^steps-\d+\.log$/.test(name)).sort();
}

function numberOf(name: string | undefined): number {
  return name === undefined ? 0 : Number(/\d+/.exec(name)?.[0] ?? 0);
}

async function readMemory(folder: string): Promise<{
  readonly memory: InstallMemory | null;
  readonly remembered: readonly (readonly [string, JournalHead])[];
  readonly around: readonly (readonly [string, Neighbours])[];
  readonly before: readonly (readonly [string, JournalHead])[];
}> {
  let text: string;
  try {
    text = await readFile(join(folder, MEMORY_FILE), 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT')
      return { memory: null, remembered: [], around: [], before: [] };
    throw error;
  }
  const found: unknown = parseObject(text) ?? {};
  const { format, installId, gatewayId, accepted, heads, neighbours, dropped } = found as InstallMemory & {
    readonly format?: number;
    readonly heads: Readonly<Record<string, JournalHead>>;
    readonly neighbours: Readonly<Record<string, Neighbours>>;
    /** Absent where nothing was dropped yet. */
    readonly dropped?: Readonly<Record<string, JournalHead>>;
  };
  if (typeof installId !== 'string' || typeof gatewayId !== 'string')
    throw new Error(
      `${join(folder, MEMORY_FILE)} is damaged, so it cannot be told whether the store is complete. Restore it from a backup.`,
    );
  if (format !== FORMAT)
    throw new Error(
      `The journal in ${folder} belongs to a store on Redis that another version of svc-gateway has written: it has the format ${format ?? 'of before there were numbers'}, this one works with ${FORMAT}. Go on with that version; or begin anew, with a Redis of its own and another store.journal: svc migrate --check says how.`,
    );
  return {
    memory: { installId, gatewayId, accepted },
    remembered: Object.entries(heads),
    around: Object.entries(neighbours),
    before: Object.entries(dropped ?? {}),
  };
}
