import type { Board } from './board.ts';
import { type RedisConnection, textsOf } from './connection.ts';
import type { Fleet } from './fleet.ts';
import type { Frame } from './frame.ts';
import { CHANGES_PATTERN, fromPlainText, keyOf, metaKey, tagOfChannel, workspaceTag } from './names.ts';

/** How often versions are looked at, ms: what a lost message would have told is known after this long. */
const POLL_MS = 400;

export interface ChangeListeners {
  readonly keys: (handles: readonly string[] | null) => void;
  readonly pauses: (workspace: string) => void;
}

/** What other gateways change becomes known here: told at once by messages, and looked at in case one was lost. */
export interface Changes {
  /** When the last look went well, by the process's monotonic clock, ms. */
  readonly seenAt: () => number;
  /** This gateway's own change: told here at once, and not again when it is seen in the store. */
  keysChanged(version: string, handle: string): void;
  pausesChanged(workspace: string, version: string): void;
  close(): Promise<void>;
}

interface Versions {
  epoch: string;
  pauses: number;
  keys: number;
}

/** Begins to watch; returns when what there is has been seen once, or cannot be. */
export async function watchChanges(parts: {
  readonly frame: Frame;
  readonly fleet: Fleet;
  readonly board: Board;
  readonly subscriber: RedisConnection;
  readonly listeners: ChangeListeners;
  /** Told of the time on record in a workspace, and what its server's clock said, ms. */
  readonly clockSeen: (workspace: string, record: number, time: number) => void;
}): Promise<Changes> {
  const { frame, fleet, board, subscriber, listeners } = parts;
  const versions = new Map<string, Versions>();
  let seenAt = performance.now();
  let closed = false;
  let wake: () => void = () => undefined;

  function workspaceOf(tag: string): string | undefined {
    return [...fleet.attached().keys()].find((workspace) => workspaceTag(workspace) === tag);
  }

  function versionsOf(workspace: string): Versions {
    const known = versions.get(workspace) ?? { epoch: '', pauses: 0, keys: 0 };
    versions.set(workspace, known);
    return known;
  }

  function keysChanged(version: string, handle: string): void {
    const known = versionsOf('');
    if (Number(version) <= known.keys) return;
    // A gap: what was changed in between was not told.
    const handles = Number(version) === known.keys + 1 ? [fromPlainText(handle)] : null;
    known.keys = Number(version);
    listeners.keys(handles);
  }

  function pausesChanged(workspace: string, version: string): void {
    const known = versionsOf(workspace);
    if (Number(version) <= known.pauses) return;
    known.pauses = Number(version);
    listeners.pauses(workspace);
  }

  subscriber.client.on('ready', () => {
    subscriber.client.psubscribe(CHANGES_PATTERN).catch(() => undefined);
  });
  if (subscriber.client.status === 'ready') subscriber.client.psubscribe(CHANGES_PATTERN).catch(() => undefined);
  subscriber.client.on('pmessage', (_pattern: string, channel: string, message: string) => {
    const workspace = workspaceOf(tagOfChannel(channel));
    const [install = '', what = '', version = '', ...handle] = message.split(' ');
    if (install !== fleet.installId()) return;
    if (what === 'key') keysChanged(version, handle.join(' '));
    else if (workspace === undefined) return;
    else if (what === 'pauses') pausesChanged(workspace, version);
    else if (what === 'gateway') void look(workspace).catch(() => undefined);
  });

  async function look(workspace: string): Promise<void> {
    if (workspace === '') await fleet.followAcceptance().catch(() => undefined);
    const known = fleet.attached().get(workspace);
    const [meta, gateways, gone, replication, time] = await frame.commands(workspace, [
      ['HMGET', metaKey(workspace), 'epoch', 'open', 'pauses', 'keys', 'rid', 'sn', 'members', 'clock'],
      ['HKEYS', keyOf(workspace, 'gw')],
      ['HKEYS', keyOf(workspace, 'away')],
      ['INFO', 'replication'],
      ['TIME'],
    ]);
    if (!Array.isArray(meta)) return;
    const [epoch = '', open = '', pauses = '', keys = '', rid = '', step = '', members = '', record = ''] = meta.map(
      (value: unknown) => (typeof value === 'string' ? value : ''),
    );
    const [seconds = '', micros = ''] = textsOf(time);
    parts.clockSeen(workspace, Number(record), Number(seconds) * 1000 + Math.floor(Number(micros) / 1000));
    if (known !== undefined && epoch !== known.epoch) fleet.detach(workspace);
    // What was there and is gone was emptied: attaching says so.
    if (known !== undefined && epoch === '') await fleet.attach(workspace).catch(() => undefined);
    const sameHistory = String(replication).includes(`master_replid:${rid}`);
    // Another gateway may have opened what this one waited for.
    const waits = fleet.waiting().has(workspace);
    if (epoch !== '' && (open !== '1' || !sameHistory || waits)) await fleet.recover(workspace).catch(() => undefined);
    if (known !== undefined && epoch === known.epoch && open === '1' && sameHistory)
      await fleet.noteNeighbours(workspace, {
        step: Number(step),
        version: Number(members),
        gateways: textsOf(gateways),
        gone: textsOf(gone),
      });
    if (workspace === '') await board.look();
    const before = versionsOf(workspace);
    // A look may be older than what was told since; only a new epoch may begin with lower versions.
    const anew = before.epoch !== '' && before.epoch !== epoch;
    before.epoch = epoch;
    if (anew || Number(pauses) > before.pauses) {
      before.pauses = Number(pauses);
      listeners.pauses(workspace);
    }
    if (workspace === '' && (anew || Number(keys) > before.keys)) {
      before.keys = Number(keys);
      listeners.keys(null);
    }
  }

  await look('').catch(() => undefined);

  const running = (async () => {
    while (!closed) {
      try {
        const workspaces = new Set(['', ...fleet.attached().keys(), ...fleet.waiting().keys()]);
        await Promise.all([...workspaces].map(look));
        seenAt = performance.now();
      } catch {
        // Health says how old the last look is.
      }
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, POLL_MS);
        timer.unref();
        wake = () => {
          clearTimeout(timer);
          resolve();
        };
        if (closed) wake();
      });
    }
  })();

  return {
    seenAt: () => seenAt,
    keysChanged,
    pausesChanged,
    async close() {
      closed = true;
      wake();
      await running;
    },
  };
}
