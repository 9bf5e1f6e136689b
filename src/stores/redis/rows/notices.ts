import { setTimeout as delay } from 'node:timers/promises';
import type { Watched } from '../../port.ts';
import { ANNOUNCEMENTS, type createAnnouncements } from '../announcements.ts';
import type { Calls } from '../calls.ts';
import { fieldsOf, type RedisConnection, textsOf } from '../connection.ts';
import type { Fleet } from '../fleet.ts';
import { CHANGES_PATTERN, keyOf, metaKey, tagOfChannel, workspaceTag } from '../names.ts';
import { noteOf } from '../scripts.ts';
import { kindName, kindOf, unstored } from './names.ts';

/** How often versions are read, ms. The change of a lost message is known after this long. */
const POLL_MS = 400;

/** What is known of a workspace: for each kind, the last step that changed one of its rows. */
interface Versions {
  epoch: string;
  readonly kinds: Map<string, number>;
}

/** Reports other gateways' changes of rows: at once by messages, and by regular looks in case a message was lost. */
export class Notices {
  readonly #parts;
  readonly #fleet;
  readonly #subscriber;
  readonly #versions = new Map<string, Versions>();
  readonly #listeners = new Map<string, ((changed: Watched) => void)[]>();
  #seenAt = performance.now();
  readonly #closed = new AbortController();
  readonly #inspections = new Set<Promise<void>>();
  #running: Promise<void> | null = null;

  constructor(parts: {
    readonly calls: Calls;
    readonly fleet: Fleet;
    readonly announcements: ReturnType<typeof createAnnouncements>;
    readonly subscriber: RedisConnection;
    /** Called with the recorded time of a workspace, and the time of its server's clock, ms. */
    readonly clockSeen: (workspace: string, record: number, time: number) => void;
    /** Called with the number of boots of gateways that have ended in a workspace. */
    readonly endedSeen: (workspace: string, count: string) => Promise<void>;
  }) {
    this.#parts = parts;
    this.#fleet = parts.fleet;
    this.#subscriber = parts.subscriber;
    this.#subscriber.client.on('ready', () => {
      this.#subscriber.client.psubscribe(CHANGES_PATTERN).catch(() => undefined);
    });
    if (this.#subscriber.client.status === 'ready')
      this.#subscriber.client.psubscribe(CHANGES_PATTERN).catch(() => undefined);
    this.#subscriber.client.on('pmessage', (_pattern: string, channel: string, message: string) => {
      const workspace = this.#workspaceOf(tagOfChannel(channel));
      const [install = '', what = '', before = '', step = '', kind = '', ...id] = message.split(' ');
      if (install !== this.#fleet.installId() || workspace === undefined) return;
      if (what === 'row') this.#heard(workspace, kindOf(kind), Number(before), Number(step), unstored(id.join(' ')));
      else if (what === 'gateway') void this.#inspect(workspace).catch(() => undefined);
    });
  }

  /** Starts to watch. Returns when everything has been seen once, or cannot be seen. */
  async begin(): Promise<void> {
    await this.#inspect('').catch(() => undefined);
    this.#running = this.#poll();
  }

  watch(kinds: readonly string[], listener: (changed: Watched) => void): void {
    for (const kind of kinds) this.#listeners.set(kind, [...(this.#listeners.get(kind) ?? []), listener]);
    for (const workspace of new Set(['', ...this.#fleet.attached().keys()]))
      void this.#inspect(workspace).catch(() => undefined);
  }

  /**
   * A change that this gateway made: it is reported here at once, and once more with its message. The message is what
   * tells of a change whose answer was lost.
   */
  changed(workspace: string, kind: string, id: string | null): void {
    for (const listen of this.#listeners.get(kind) ?? []) listen({ workspace, kind, id });
  }

  /** When the last look succeeded, by the process's monotonic clock, ms. */
  seenAt(): number {
    return this.#seenAt;
  }

  /** Resolves when no look is under way, and none begins. */
  async close(): Promise<void> {
    this.#closed.abort();
    await this.#running;
    // Also those that a message or a new listener began: a look may write to the journal, and register the gateway.
    await Promise.allSettled(this.#inspections);
  }

  /** Looks at all workspaces again and again. */
  async #poll(): Promise<void> {
    while (!this.#closed.signal.aborted) {
      try {
        const workspaces = new Set(['', ...this.#fleet.attached().keys(), ...this.#fleet.waiting().keys()]);
        await Promise.all([...workspaces].map((workspace) => this.#inspect(workspace)));
        this.#seenAt = performance.now();
      } catch {
        // Health shows how old the last look is.
      }
      await delay(POLL_MS, undefined, { ref: false, signal: this.#closed.signal }).catch(() => undefined);
    }
  }

  #workspaceOf(tag: string): string | undefined {
    return [...this.#fleet.attached().keys()].find((workspace) => workspaceTag(workspace) === tag);
  }

  #versionsOf(workspace: string): Versions {
    const known = this.#versions.get(workspace) ?? { epoch: '', kinds: new Map<string, number>() };
    this.#versions.set(workspace, known);
    return known;
  }

  /** @param before the step of the kind's previous change */
  #heard(workspace: string, kind: string, before: number, step: number, id: string): void {
    const { kinds } = this.#versionsOf(workspace);
    const known = kinds.get(kind) ?? 0;
    if (step < known || !this.#listeners.has(kind)) return;
    kinds.set(kind, step);
    // A gap: the changes in between were not reported.
    this.changed(workspace, kind, before > known ? null : id);
  }

  /** Looks at a workspace, unless nothing is watched any more. */
  #inspect(workspace: string): Promise<void> {
    if (this.#closed.signal.aborted) return Promise.resolve();
    const inspection = this.#inspectWorkspace(workspace).finally(() => this.#inspections.delete(inspection));
    this.#inspections.add(inspection);
    return inspection;
  }

  async #inspectWorkspace(workspace: string): Promise<void> {
    if (workspace === '') await this.#fleet.followAcceptance().catch(() => undefined);
    const known = this.#fleet.attached().get(workspace);
    const [meta, counted, gateways, gone, replication, time, announced] = await this.#parts.calls.commands(workspace, [
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
    this.#parts.clockSeen(workspace, Number(record), Number(seconds) * 1000 + Math.floor(Number(micros) / 1000));
    if (known !== undefined && epoch !== known) this.#fleet.detach(workspace);
    // A workspace that was there and is gone was emptied; attaching reports it.
    if (known !== undefined && epoch === '') await this.#fleet.attach(workspace).catch(() => undefined);
    const sameHistory = String(replication).includes(`master_replid:${rid}`);
    // Another gateway may have opened the epoch for which this one waited.
    const waits = this.#fleet.waiting().has(workspace);
    if (epoch !== '' && (open !== '1' || !sameHistory || waits))
      await this.#fleet.recover(workspace).catch(() => undefined);
    if (known !== undefined && epoch === known && open === '1' && sameHistory) {
      await this.#fleet.noteNeighbours(workspace, {
        step: Number(step),
        version: Number(members),
        gateways: textsOf(gateways),
        gone: textsOf(gone),
      });
      await this.#listenIn(workspace, loud);
    }
    if (known !== undefined && epoch !== '') await this.#parts.endedSeen(workspace, boots);
    if (workspace === '') await this.#parts.announcements.read(fieldsOf(textsOf(announced)), textsOf(gateways));
    this.#compare(workspace, epoch, fieldsOf(textsOf(counted)));
  }

  /**
   * Records in the workspace which kinds need messages. Two gateways may overwrite each other's entry: the next look
   * corrects it.
   */
  async #listenIn(workspace: string, loud: string): Promise<void> {
    const names = new Set(loud.split(' ').filter((name) => name !== ''));
    const before = names.size;
    for (const kind of this.#listeners.keys()) names.add(kindName(kind));
    if (names.size === before) return;
    await this.#parts.calls.evaluate('note', workspace, noteOf({ loud: ` ${[...names].join(' ')} ` }));
  }

  #compare(workspace: string, epoch: string, counted: ReadonlyMap<string, string>): void {
    const before = this.#versionsOf(workspace);
    // A look may be older than what was reported since. Only a new epoch may begin with lower versions.
    const anew = before.epoch !== '' && before.epoch !== epoch;
    before.epoch = epoch;
    for (const kind of this.#listeners.keys()) {
      const version = Number(counted.get(kindName(kind)) ?? 0);
      if (!anew && version <= (before.kinds.get(kind) ?? 0)) continue;
      before.kinds.set(kind, version);
      this.changed(workspace, kind, null);
    }
  }
}
