import type { Watched } from '../../port.ts';
import { type Announcements, ANNOUNCEMENTS } from '../announcements.ts';
import type { Calls } from '../calls.ts';
import { fieldsOf, type RedisConnection, textsOf } from '../connection.ts';
import type { Fleet } from '../fleet.ts';
import { CHANGES_PATTERN, keyOf, metaKey, tagOfChannel, workspaceTag } from '../names.ts';
import { noteOf } from '../scripts.ts';
import { kindName, kindOf, unstored } from './names.ts';

/** How often versions are read, ms. The change of a lost message is known after this long. */
const POLL_MS = 400;

/** Reports other gateways' changes of rows: at once by messages, and by regular looks in case a message was lost. */
export interface Notices {
  watch(kinds: readonly string[], listener: (changed: Watched) => void): void;
  /**
   * A change that this gateway made: it is reported here at once, and once more with its message. The message is what
   * tells of a change whose answer was lost.
   */
  changed(workspace: string, kind: string, id: string): void;
  /** When the last look succeeded, by the process's monotonic clock, ms. */
  seenAt(): number;
  /** Resolves when no look is under way, and none begins. */
  close(): Promise<void>;
}

/** What is known of a workspace: for each kind, the last step that changed one of its rows. */
interface Versions {
  epoch: string;
  readonly kinds: Map<string, number>;
}

/** Starts to watch. Returns when everything has been seen once, or cannot be seen. */
export async function openNotices(parts: {
  readonly calls: Calls;
  readonly fleet: Fleet;
  readonly announcements: Announcements;
  readonly subscriber: RedisConnection;
  /** Called with the recorded time of a workspace, and the time of its server's clock, ms. */
  readonly clockSeen: (workspace: string, record: number, time: number) => void;
  /** Called with the number of boots of gateways that have ended in a workspace. */
  readonly endedSeen: (workspace: string, count: string) => Promise<void>;
}): Promise<Notices> {
  const { calls, fleet, announcements, subscriber } = parts;
  const versions = new Map<string, Versions>();
  const listeners = new Map<string, ((changed: Watched) => void)[]>();
  let seenAt = performance.now();
  let closed = false;
  let wake: () => void = () => undefined;
  const inspections = new Set<Promise<void>>();

  function workspaceOf(tag: string): string | undefined {
    return [...fleet.attached().keys()].find((workspace) => workspaceTag(workspace) === tag);
  }

  function versionsOf(workspace: string): Versions {
    const known = versions.get(workspace) ?? { epoch: '', kinds: new Map<string, number>() };
    versions.set(workspace, known);
    return known;
  }

  function notify(workspace: string, kind: string, id: string | null): void {
    for (const listen of listeners.get(kind) ?? []) listen({ workspace, kind, id });
  }

  /** @param before the step of the kind's previous change */
  function heard(workspace: string, kind: string, before: number, step: number, id: string): void {
    const { kinds } = versionsOf(workspace);
    const known = kinds.get(kind) ?? 0;
    if (step < known || !listeners.has(kind)) return;
    kinds.set(kind, step);
    // A gap: the changes in between were not reported.
    notify(workspace, kind, before > known ? null : id);
  }

  subscriber.client.on('ready', () => {
    subscriber.client.psubscribe(CHANGES_PATTERN).catch(() => undefined);
  });
  if (subscriber.client.status === 'ready') subscriber.client.psubscribe(CHANGES_PATTERN).catch(() => undefined);
  subscriber.client.on('pmessage', (_pattern: string, channel: string, message: string) => {
    const workspace = workspaceOf(tagOfChannel(channel));
    const [install = '', what = '', before = '', step = '', kind = '', ...id] = message.split(' ');
    if (install !== fleet.installId() || workspace === undefined) return;
    if (what === 'row') heard(workspace, kindOf(kind), Number(before), Number(step), unstored(id.join(' ')));
    else if (what === 'gateway') void inspect(workspace).catch(() => undefined);
  });

  /** Looks at a workspace, unless nothing is watched any more. */
  function inspect(workspace: string): Promise<void> {
    if (closed) return Promise.resolve();
    const inspection = inspectWorkspace(workspace).finally(() => inspections.delete(inspection));
    inspections.add(inspection);
    return inspection;
  }

  async function inspectWorkspace(workspace: string): Promise<void> {
    if (workspace === '') await fleet.followAcceptance().catch(() => undefined);
    const known = fleet.attached().get(workspace);
    const [meta, counted, gateways, gone, replication, time, announced] = await calls.commands(workspace, [
      ['HMGET', metaKey(workspace), 'epoch', 'open', 'rid', 'sn', 'members', 'clock', 'loud', 'boots'],
      ['HGETALL', keyOf(workspace, 'v')],
      ['HKEYS', keyOf(workspace, 'gw')],
      ['HKEYS', keyOf(workspace, 'away')],
      ['INFO', 'replication'],
      ['TIME'],
      ...(workspace === '' ? [['HGETALL', keyOf(workspace, ANNOUNCEMENTS)] as const] : []),
    ]);
    if (!Array.isArray(meta)) return;
    const [epoch = '', open = '', rid = '', step = '', members = '', record = '', loud = '', boots = '0'] = meta.map(
      (value: unknown) => (typeof value === 'string' ? value : ''),
    );
    const [seconds = '', micros = ''] = textsOf(time);
    parts.clockSeen(workspace, Number(record), Number(seconds) * 1000 + Math.floor(Number(micros) / 1000));
    if (known !== undefined && epoch !== known) fleet.detach(workspace);
    // A workspace that was there and is gone was emptied; attaching reports it.
    if (known !== undefined && epoch === '') await fleet.attach(workspace).catch(() => undefined);
    const sameHistory = String(replication).includes(`master_replid:${rid}`);
    // Another gateway may have opened the epoch for which this one waited.
    const waits = fleet.waiting().has(workspace);
    if (epoch !== '' && (open !== '1' || !sameHistory || waits)) await fleet.recover(workspace).catch(() => undefined);
    if (known !== undefined && epoch === known && open === '1' && sameHistory) {
      await fleet.noteNeighbours(workspace, {
        step: Number(step),
        version: Number(members),
        gateways: textsOf(gateways),
        gone: textsOf(gone),
      });
      await listenIn(workspace, loud);
    }
    if (known !== undefined && epoch !== '') await parts.endedSeen(workspace, boots);
    if (workspace === '') await announcements.read(fieldsOf(textsOf(announced)), textsOf(gateways));
    compare(workspace, epoch, fieldsOf(textsOf(counted)));
  }

  /**
   * Records in the workspace which kinds need messages. Two gateways may overwrite each other's entry: the next look
   * corrects it.
   */
  async function listenIn(workspace: string, loud: string): Promise<void> {
    const names = new Set(loud.split(' ').filter((name) => name !== ''));
    const before = names.size;
    for (const kind of listeners.keys()) names.add(kindName(kind));
    if (names.size === before) return;
    await calls.evaluate('note', workspace, noteOf({ loud: ` ${[...names].join(' ')} ` }));
  }

  function compare(workspace: string, epoch: string, counted: ReadonlyMap<string, string>): void {
    const before = versionsOf(workspace);
    // A look may be older than what was reported since. Only a new epoch may begin with lower versions.
    const anew = before.epoch !== '' && before.epoch !== epoch;
    before.epoch = epoch;
    for (const kind of listeners.keys()) {
      const version = Number(counted.get(kindName(kind)) ?? 0);
      if (!anew && version <= (before.kinds.get(kind) ?? 0)) continue;
      before.kinds.set(kind, version);
      notify(workspace, kind, null);
    }
  }

  await inspect('').catch(() => undefined);

  const running = (async () => {
    while (!closed) {
      try {
        const workspaces = new Set(['', ...fleet.attached().keys(), ...fleet.waiting().keys()]);
        await Promise.all([...workspaces].map(inspect));
        seenAt = performance.now();
      } catch {
        // Health shows how old the last look is.
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
    watch(kinds, listener) {
      for (const kind of kinds) listeners.set(kind, [...(listeners.get(kind) ?? []), listener]);
      for (const workspace of new Set(['', ...fleet.attached().keys()])) void inspect(workspace).catch(() => undefined);
    },
    changed: notify,
    seenAt: () => seenAt,
    async close() {
      closed = true;
      wake();
      await running;
      // Also those that a message or a new listener began: a look may write to the journal, and register the gateway.
      await Promise.allSettled(inspections);
    },
  };
}
