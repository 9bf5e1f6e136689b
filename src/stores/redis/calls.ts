import { StoreUnavailable } from '../../effects/store.ts';
import type { RedisConnection } from './connection.ts';
import type { Fleet, FleetSettings } from './fleet.ts';
import type { ScriptName } from './scripts.ts';

/** How many times a call is tried again after a script refused it before it did anything. */
const ASKED_AGAIN = 4;

/** How many times a call is followed to where its workspace has moved. */
const MOST_MOVES = 4;

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
export class Calls {
  readonly #topology;
  readonly #gatewayId;
  readonly #time;
  readonly #fleet;
  readonly #report;

  /** @param report called for each failure and each success, for health */
  constructor(
    { topology, gatewayId, time }: Pick<FleetSettings, 'topology' | 'gatewayId' | 'time'>,
    fleet: Fleet,
    report: (error: StoreUnavailable | null) => void,
  ) {
    this.#topology = topology;
    this.#gatewayId = gatewayId;
    this.#time = time;
    this.#fleet = fleet;
    this.#report = report;
  }

  /**
   * Runs a script that writes, as a gateway that is registered in the epoch.
   * @returns its reply, which begins with `ok`
   */
  evaluate(name: ScriptName, workspace: string, args: readonly (string | Buffer)[]): Promise<readonly unknown[]> {
    const epoch = this.#fleet.attached().get(workspace);
    return epoch === undefined
      ? this.#evaluateAgain(name, workspace, args, 0)
      : this.#evaluateIn(epoch, name, workspace, args, 0);
  }

  /** Runs a script that only reads. @returns its reply; `null` if nothing was ever written in the workspace */
  read(name: ScriptName, workspace: string, args: readonly (string | Buffer)[]): Promise<readonly unknown[] | null> {
    const words = ['', this.#gatewayId, this.#time.argument(), ...args];
    return this.#ask(
      workspace,
      (connection) => connection.evaluate(name, workspace, words),
      (reply) => {
        if (reply[0] === 'ahead') return reply.slice(2);
        return reply[0] === 'ok' ? reply : null;
      },
    );
  }

  /** Commands that only read, in one round trip. */
  async commands(workspace: string, commands: readonly ReadCommand[]): Promise<readonly unknown[]> {
    return commands.length === 0
      ? []
      : this.#ask(
          workspace,
          (connection) => connection.pipeline(commands),
          (replies) => replies,
        );
  }

  /**
   * Asks the primary once. If the workspace has moved in a cluster, the server says so before anything is done.
   * @param read makes the answer of the reply
   * @param moves how often it was followed before
   */
  #ask<Reply, Answer>(
    workspace: string,
    send: (connection: RedisConnection) => Promise<Reply>,
    read: (reply: Reply) => Answer | Promise<Answer>,
    moves = 0,
  ): Promise<Answer> {
    let sent: Promise<Reply>;
    try {
      sent = send(this.#topology.primaryOf(workspace).connection());
    } catch (error) {
      sent = Promise.reject(error);
    }
    return sent.then(
      (reply) => {
        this.#report(null);
        return read(reply);
      },
      (error: unknown) =>
        this.#afterMove(workspace, error, moves).then(() => this.#ask(workspace, send, read, moves + 1)),
    );
  }

  /** Resolves when it is known where the workspace has moved to. @throws an error that says anything else */
  async #afterMove(workspace: string, error: unknown, moves: number): Promise<void> {
    if (!(error instanceof StoreUnavailable)) throw error;
    if (moves === MOST_MOVES || !error.message.startsWith('Redis: MOVED')) {
      this.#report(error);
      // The workspace may have moved.
      void this.#topology.relocate().catch(() => undefined);
      throw error;
    }
    await this.#topology.follow(workspace, error);
    this.#fleet.detach(workspace);
  }

  /** @param asked how often the call was made before */
  #evaluateIn(
    epoch: string,
    name: ScriptName,
    workspace: string,
    args: readonly (string | Buffer)[],
    asked: number,
  ): Promise<readonly unknown[]> {
    return this.#ask(
      workspace,
      (connection) => connection.evaluate(name, workspace, [epoch, this.#gatewayId, this.#time.argument(), ...args]),
      (reply) =>
        reply[0] === 'ok'
          ? reply
          : this.#answerOf(name, workspace, reply).then(
              (answer) => answer ?? this.#evaluateAgain(name, workspace, args, asked + 1),
            ),
    );
  }

  async #evaluateAgain(
    name: ScriptName,
    workspace: string,
    args: readonly (string | Buffer)[],
    asked: number,
  ): Promise<readonly unknown[]> {
    if (asked === ASKED_AGAIN) throw new StoreUnavailable('Redis: the store changes its epoch over and over');
    return this.#evaluateIn(await this.#fleet.attach(workspace), name, workspace, args, asked);
  }

  /** The answer in a reply that is not simply done; `null`: nothing was done, and the call can be made again. */
  async #answerOf(name: ScriptName, workspace: string, reply: readonly unknown[]): Promise<readonly unknown[] | null> {
    const [tag] = reply;
    switch (tag) {
      case 'absent':
      case 'unregistered':
      case 'new_epoch':
        this.#fleet.detach(workspace);
        return null;
      case 'late':
        this.#time.late(Number(reply[1]));
        return null;
      case 'new_history':
      case 'waiting':
        await this.#fleet.recover(workspace);
        return null;
      case 'ahead':
        // It was done, with the known time.
        this.#time.disbelieve(workspace, Number(reply[3]), Number(reply[1]));
        return reply.slice(2);
      case 'replica':
        this.#topology.primaryOf(workspace).connection().reset();
        void this.#topology.relocate().catch(() => undefined);
        throw new StoreUnavailable('Redis: the server is no longer a primary');
      default:
        throw new TypeError(`script ${name} answered ${String(tag)}`);
    }
  }
}
