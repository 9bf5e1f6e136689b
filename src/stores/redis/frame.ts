import { StoreUnavailable } from '../../effects/store.ts';
import type { StepJournal } from '../journal/step-journal.ts';
import { type CallSettings, createCalls } from './calls.ts';
import { textsOf } from './connection.ts';
import type { ScriptName } from './scripts.ts';
import { ClockAhead } from './store-time.ts';

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

export function createFrame(
  parts: CallSettings & {
    readonly journal: StepJournal;
    readonly observe: (now: number) => void;
    /** Told of each step that failed or could not be made durable, and of each that was. */
    readonly reportStep: (error: StoreUnavailable | null) => void;
  },
): Frame {
  const { topology, journal } = parts;

  const calls = createCalls(parts);
  const evaluate = async (name: ScriptName, workspace: string, args: readonly string[]): Promise<readonly string[]> =>
    textsOf(await calls.evaluate(name, workspace, args));

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
      const reply = textsOf(await calls.read(name, workspace, args));
      return reply[0] === 'ok' ? replyOf(reply) : null;
    },
    commands: calls.commands,
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
