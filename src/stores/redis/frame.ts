import { StoreUnavailable } from '../../effects/store.ts';
import type { StepJournal } from '../journal/step-journal.ts';
import type { Fleet } from './fleet.ts';
import type { ScriptName } from './scripts.ts';
import { ClockAhead } from './store-time.ts';
import type { Topology } from './topology.ts';

/** Refusals of a script, before it has done anything, that are followed by asking again. */
const ASKED_AGAIN = 4;

/** What a step answered. */
export interface StepReply {
  /** Time of the step, ms. */
  readonly now: number;
  readonly epoch: number;
  /** Whether the step has written something. */
  readonly written: boolean;
  /** The reply's tag and what comes after it. */
  readonly tag: string;
  readonly values: readonly string[];
}

export interface Frame {
  /**
   * Runs a step, and waits until what it wrote is in the journal here and as durable there as asked for.
   * @param options.confirm waits as well where the step wrote nothing: its answer shows what others wrote
   * @throws StoreUnavailable: where `undurable` is given, it was called with the reply of a step that was done and
   * could not be made durable
   */
  step(
    name: ScriptName,
    workspace: string,
    args: readonly string[],
    options?: {
      readonly confirm?: (reply: StepReply) => boolean;
      readonly undurable?: (reply: StepReply) => Promise<void>;
    },
  ): Promise<StepReply>;
  /** Runs a script that only reads. `null` where the workspace is not in the store. */
  read(name: ScriptName, workspace: string, args: readonly string[]): Promise<StepReply | null>;
  /** Waits for what is under way; nothing is begun afterwards. */
  close(): Promise<void>;
  /** Commands that only read, on the workspace's primary, in one round trip. */
  commands(
    workspace: string,
    commands: readonly (readonly [string, ...(string | number)[]])[],
  ): Promise<readonly unknown[]>;
}

export function createFrame(parts: {
  readonly topology: Topology;
  readonly fleet: Fleet;
  readonly journal: StepJournal;
  readonly gatewayId: string;
  readonly clock: () => string;
  readonly observe: (now: number) => void;
  /** A script did not believe the clock of the server of a workspace. @returns what is wrong, to throw */
  readonly disbelieve: (workspace: string, known: number, time: number) => ClockAhead;
  /** Told of each failure and each success, for health. */
  readonly report: (error: StoreUnavailable | null) => void;
  /** Told of each step that failed or could not be made durable, and of each that was. */
  readonly reportStep: (error: StoreUnavailable | null) => void;
}): Frame {
  const { topology, fleet, journal, gatewayId, clock } = parts;

  /** Runs a script once; a cluster's word that the workspace is elsewhere comes before anything is done. */
  async function call(name: ScriptName, workspace: string, args: readonly string[]): Promise<readonly string[]> {
    try {
      const reply = await topology.primaryOf(workspace).connection().run(name, workspace, args);
      parts.report(null);
      return reply;
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error;
      if (!error.message.startsWith('Redis: MOVED')) {
        parts.report(error);
        // The workspace may be elsewhere by now.
        void topology.relocate().catch(() => undefined);
        throw error;
      }
    }
    await topology.relocate();
    fleet.detach(workspace);
    return topology.primaryOf(workspace).connection().run(name, workspace, args);
  }

  async function evaluate(name: ScriptName, workspace: string, args: readonly string[]): Promise<readonly string[]> {
    for (let asked = 0; asked < ASKED_AGAIN; asked += 1) {
      const epoch = await fleet.attach(workspace);
      const reply = await call(name, workspace, [epoch, gatewayId, clock(), ...args]);
      const [tag = '', known = '', time = ''] = reply;
      switch (tag) {
        case 'ok':
          return reply;
        case 'absent':
        case 'unregistered':
        case 'new_epoch':
          fleet.detach(workspace);
          break;
        case 'new_history':
        case 'waiting':
          await fleet.recover(workspace);
          break;
        case 'clock_ahead':
          throw parts.disbelieve(workspace, Number(known), Number(time));
        case 'replica':
          topology.primaryOf(workspace).connection().reset();
          void topology.relocate().catch(() => undefined);
          throw new StoreUnavailable('Redis: the server is no longer a primary');
        default:
          throw new TypeError(`script ${name} answered ${tag}`);
      }
    }
    throw new StoreUnavailable('Redis: the store changes its epoch over and over');
  }

  function replyOf(reply: readonly string[]): StepReply {
    const [, now = '', epoch = '', step = '', , tag = '', ...values] = reply;
    return { now: Number(now), epoch: Number(epoch), written: step !== '', tag, values };
  }

  let underWay = 0;
  let closed = false;
  async function counted<T>(run: () => Promise<T>): Promise<T> {
    if (closed) throw new StoreUnavailable('the store is closed');
    underWay += 1;
    try {
      return await run();
    } finally {
      underWay -= 1;
    }
  }

  const frame: Omit<Frame, 'close'> = {
    async step(name, workspace, args, options = {}) {
      // While nothing is confirmed, what would be undone is not begun: each try would be an attempt of its key.
      const unconfirmed = options.undurable === undefined ? null : topology.primaryOf(workspace).barrier.fault();
      if (unconfirmed !== null) throw unconfirmed;
      const raw = await evaluate(name, workspace, args).catch((error: unknown) => {
        if (error instanceof StoreUnavailable && !(error instanceof ClockAhead)) parts.reportStep(error);
        throw error;
      });
      const reply = replyOf(raw);
      parts.observe(reply.now);
      const [, , epoch = '', step = '', redo = ''] = raw;
      if (!reply.written && !(options.confirm?.(reply) ?? false)) return reply;
      const kept = reply.written
        ? journal.append({
            workspace,
            step: Number(step),
            at: reply.now,
            redo,
            documents: documentsOf(redo, args),
            epoch: reply.epoch,
          })
        : Promise.resolve();
      const settled = await Promise.allSettled([kept, topology.primaryOf(workspace).barrier.wait(workspace, epoch)]);
      const failed = settled.find((it) => it.status === 'rejected');
      if (failed === undefined) {
        parts.reportStep(null);
        return reply;
      }
      // The caller is told at once; what is undone is not waited for.
      options.undurable?.(reply).catch(() => undefined);
      const error =
        failed.reason instanceof StoreUnavailable
          ? failed.reason
          : new StoreUnavailable('the journal beside the gateway cannot be written', { cause: failed.reason });
      parts.reportStep(error);
      throw error;
    },
    async read(name, workspace, args) {
      const reply = await call(name, workspace, ['', gatewayId, clock(), ...args]);
      return reply[0] === 'ok' ? replyOf(reply) : null;
    },
    async commands(workspace, commands) {
      if (commands.length === 0) return [];
      try {
        const replies = await topology.primaryOf(workspace).connection().pipeline(commands);
        parts.report(null);
        return replies;
      } catch (error) {
        if (!(error instanceof StoreUnavailable)) throw error;
        if (!error.message.startsWith('Redis: MOVED')) {
          parts.report(error);
          throw error;
        }
      }
      await topology.relocate();
      return topology.primaryOf(workspace).connection().pipeline(commands);
    },
  };
  return {
    step: (...asked) => counted(() => frame.step(...asked)),
    read: (...asked) => counted(() => frame.read(...asked)),
    commands: (...asked) => counted(() => frame.commands(...asked)),
    async close() {
      do await new Promise((resolve) => setImmediate(resolve));
      while (underWay > 0);
      closed = true;
    },
  };
}

/** The documents that a redo record refers to: `\0<number>`, the number counting from the script's first argument. */
function documentsOf(redo: string, args: readonly string[]): Readonly<Record<string, string>> {
  const documents: Record<string, string> = {};
  for (const [, number = ''] of redo.matchAll(/"\\u0000(\d+)"/g)) {
    // Epoch, gateway and clock come before the named arguments, and scripts count from 1.
    const value = args[Number(number) - 4];
    if (value !== undefined) documents[number] = value;
  }
  return documents;
}
