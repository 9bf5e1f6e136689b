import { StoreUnavailable } from '../../effects/store.ts';
import type { RedisConnection } from './connection.ts';
import type { Fleet, FleetSettings } from './fleet.ts';
import type { ScriptName } from './scripts.ts';

/** How many times a call is tried again after a script refused it before it did anything. */
const ASKED_AGAIN = 4;

/**
 * What is sent beside scripts only reads. A write has to be in a script, which first checks that the store is still the
 * one that the gateway knows.
 */
export type ReadCommand = readonly [
  (
    | 'EXISTS'
    | 'GET'
    | 'HGETALL'
    | 'HKEYS'
    | 'HMGET'
    | 'INFO'
    | 'SMEMBERS'
    | 'TIME'
    | 'XRANGE'
    | 'XREVRANGE'
    | 'ZRANGE'
    | 'ZSCAN'
  ),
  ...(string | number)[],
];

/** Script calls and commands on the primary of a workspace, wherever it is now. */
export interface Calls {
  /**
   * Runs a script that writes, as a gateway that is registered in the epoch.
   * @returns its reply, which begins with `ok`
   */
  evaluate(name: ScriptName, workspace: string, args: readonly string[]): Promise<readonly unknown[]>;
  /** Runs a script that only reads. @returns its reply; `null` if nothing was ever written in the workspace */
  read(name: ScriptName, workspace: string, args: readonly string[]): Promise<readonly unknown[] | null>;
  /** Commands that only read, in one round trip. */
  commands(workspace: string, commands: readonly ReadCommand[]): Promise<readonly unknown[]>;
}

/** @param report called for each failure and each success, for health */
export function createCalls(
  { topology, gatewayId, time }: Pick<FleetSettings, 'topology' | 'gatewayId' | 'time'>,
  fleet: Fleet,
  report: (error: StoreUnavailable | null) => void,
): Calls {
  /**
   * Asks the primary once. If the workspace has moved in a cluster, the server says so before anything is done.
   * @param read makes the answer of the reply
   */
  function ask<Reply, Answer>(
    workspace: string,
    send: (connection: RedisConnection) => Promise<Reply>,
    read: (reply: Reply) => Answer | Promise<Answer>,
  ): Promise<Answer> {
    let sent: Promise<Reply>;
    try {
      sent = send(topology.primaryOf(workspace).connection());
    } catch (error) {
      sent = Promise.reject(error);
    }
    return sent.then(
      (reply) => {
        report(null);
        return read(reply);
      },
      (error: unknown) =>
        afterMove(workspace, error)
          .then(() => send(topology.primaryOf(workspace).connection()))
          .then(read),
    );
  }

  /** Resolves when it is known where the workspace has moved to. @throws an error that says anything else */
  async function afterMove(workspace: string, error: unknown): Promise<void> {
    if (!(error instanceof StoreUnavailable)) throw error;
    if (!error.message.startsWith('Redis: MOVED')) {
      report(error);
      // The workspace may have moved.
      void topology.relocate().catch(() => undefined);
      throw error;
    }
    await topology.relocate();
    fleet.detach(workspace);
  }

  /** @param asked how often the call was made before */
  function evaluateIn(
    epoch: string,
    name: ScriptName,
    workspace: string,
    args: readonly string[],
    asked: number,
  ): Promise<readonly unknown[]> {
    return ask(
      workspace,
      (connection) => connection.evaluate(name, workspace, [epoch, gatewayId, time.argument(), ...args]),
      (reply) =>
        reply[0] === 'ok'
          ? reply
          : answerOf(name, workspace, reply).then(
              (answer) => answer ?? evaluateAgain(name, workspace, args, asked + 1),
            ),
    );
  }

  async function evaluateAgain(
    name: ScriptName,
    workspace: string,
    args: readonly string[],
    asked: number,
  ): Promise<readonly unknown[]> {
    if (asked === ASKED_AGAIN) throw new StoreUnavailable('Redis: the store changes its epoch over and over');
    return evaluateIn(await fleet.attach(workspace), name, workspace, args, asked);
  }

  /** The answer in a reply that is not simply done; `null`: nothing was done, and the call can be made again. */
  async function answerOf(
    name: ScriptName,
    workspace: string,
    reply: readonly unknown[],
  ): Promise<readonly unknown[] | null> {
    const [tag] = reply;
    switch (tag) {
      case 'absent':
      case 'unregistered':
      case 'new_epoch':
        fleet.detach(workspace);
        return null;
      case 'new_history':
      case 'waiting':
        await fleet.recover(workspace);
        return null;
      case 'ahead':
        // It was done, with the known time.
        time.disbelieve(workspace, Number(reply[3]), Number(reply[1]));
        return reply.slice(2);
      case 'replica':
        topology.primaryOf(workspace).connection().reset();
        void topology.relocate().catch(() => undefined);
        throw new StoreUnavailable('Redis: the server is no longer a primary');
      default:
        throw new TypeError(`script ${name} answered ${String(tag)}`);
    }
  }

  return {
    evaluate(name, workspace, args) {
      const epoch = fleet.attached().get(workspace);
      return epoch === undefined
        ? evaluateAgain(name, workspace, args, 0)
        : evaluateIn(epoch, name, workspace, args, 0);
    },
    read(name, workspace, args) {
      const words = ['', gatewayId, time.argument(), ...args];
      return ask(
        workspace,
        (connection) => connection.evaluate(name, workspace, words),
        (reply) => {
          if (reply[0] === 'ahead') return reply.slice(2);
          return reply[0] === 'ok' ? reply : null;
        },
      );
    },
    commands: async (workspace, commands) =>
      commands.length === 0
        ? []
        : ask(
            workspace,
            (connection) => connection.pipeline(commands),
            (replies) => replies,
          ),
  };
}
