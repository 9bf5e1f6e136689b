import type { RedisConnection } from './connection.ts';
import type { Fleet } from './fleet.ts';
import type { Frame } from './frame.ts';
import { CHANGES_PATTERN, metaKey, tagOfChannel, workspaceTag } from './names.ts';

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
  close(): Promise<void>;
}

interface Versions {
  readonly pauses: string;
  readonly keys: string;
}

export function watchChanges(parts: {
  readonly frame: Frame;
  readonly fleet: Fleet;
  readonly subscriber: RedisConnection;
  readonly listeners: ChangeListeners;
  /** Called with the server's time (ms) at each look. */
  readonly onTime: (time: number) => void;
}): Changes {
  const { frame, fleet, subscriber, listeners } = parts;
  const versions = new Map<string, Versions>();
  let seenAt = performance.now();
  let closed = false;
  let wake: () => void = () => undefined;

  function workspaceOf(tag: string): string | undefined {
    return [...fleet.attached().keys()].find((workspace) => workspaceTag(workspace) === tag);
  }

  subscriber.client.on('ready', () => {
    // Messages sent while the connection was down are lost.
    subscriber.client.psubscribe(CHANGES_PATTERN).catch(() => undefined);
    versions.clear();
  });
  if (subscriber.client.status === 'ready') subscriber.client.psubscribe(CHANGES_PATTERN).catch(() => undefined);
  subscriber.client.on('pmessage', (_pattern: string, channel: string, message: string) => {
    const workspace = workspaceOf(tagOfChannel(channel));
    if (message.startsWith('key ')) listeners.keys([message.slice('key '.length)]);
    else if (message === 'pauses' && workspace !== undefined) listeners.pauses(workspace);
  });

  async function look(workspace: string): Promise<void> {
    const known = fleet.attached().get(workspace);
    const [meta, time] = await frame.commands(workspace, [
      ['HMGET', metaKey(workspace), 'epoch', 'open', 'pauses', 'keys', 'skew'],
      ['TIME'],
    ]);
    if (!Array.isArray(meta) || !Array.isArray(time)) return;
    const [epoch, open, pauses, keys, skew] = meta.map((value: unknown) => (typeof value === 'string' ? value : ''));
    if (workspace === '') {
      parts.onTime(Number(time[0]) * 1000 + Math.floor(Number(time[1]) / 1000) + Number(skew === '' ? 0 : skew));
    }
    if (known !== undefined && epoch !== known.epoch) fleet.detach(workspace);
    if (epoch !== '' && open !== '1') await fleet.recover(workspace).catch(() => undefined);
    const before = versions.get(workspace);
    versions.set(workspace, { pauses: pauses ?? '', keys: keys ?? '' });
    if (before === undefined || before.pauses !== pauses) listeners.pauses(workspace);
    if (workspace === '' && (before === undefined || before.keys !== keys)) listeners.keys(null);
  }

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
    async close() {
      closed = true;
      wake();
      await running;
    },
  };
}
