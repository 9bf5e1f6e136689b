import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

/** After the last answer of a connection, the caller has this long to send the next piece or to close its side, ms. */
const LINGER_MS = 1_000;
/** What a caller still sends after the last answer is read and dropped for at most this long, ms. */
const MOST_LINGER_MS = 10_000;

/**
 * Limits the connections of callers to what the process can have open, and removes those that are finished.
 *
 * If there is one too many, the one that was idle for longest is closed. If all others have a running request, the new
 * one is closed. A connection that has got its last answer (to something that is no request, to a refused upgrade, or
 * to a request of which a part was not read) is closed soon, even if its caller does not close it. Not at once: the
 * system would tell a caller that is still sending that the connection broke, and take the answer from it.
 */
export class ConnectionCap {
  /** The number of running requests, for connections that have any. */
  readonly underWay = new Map<Socket, number>();
  readonly #open = new Set<Socket>();
  /** Connections without a running request, the longest idle first. */
  readonly #idle = new Set<Socket>();
  /** Answers that wait behind others of their connection. Node 20 tells only the one that has it when it closes. */
  readonly #behind = new WeakMap<Socket, Set<ServerResponse>>();
  readonly #most: number;
  readonly #mostLingerMs: number;
  #isOver = false;

  constructor(server: Server, most: number, mostLingerMs = MOST_LINGER_MS) {
    this.#most = most;
    this.#mostLingerMs = mostLingerMs;
    server.on('connection', (socket) => this.admit(socket));
    server.on('request', (request: IncomingMessage, response: ServerResponse) => this.begun(request, response));
    // A tunnel counts as a running request until its connection closes.
    server.on('upgrade', ({ socket }: IncomingMessage) => void this.#idle.delete(socket));
  }

  /** Counts a connection. If there are too many, closes this one or another. Returns whether this one may stay. */
  admit(socket: Socket): boolean {
    // A request that is read a second time (see proxy/upgrades.ts) comes on a known connection.
    if (this.#open.has(socket)) return true;
    if (this.#open.size >= this.#most) {
      const [longest] = this.#idle;
      (longest ?? socket).destroy();
      if (longest === undefined) return false;
      this.#idle.delete(longest);
    }
    this.#count(socket);
    return true;
  }

  /** Counts a request until its answer is over. Called for each that the server emits as one. */
  begun({ socket }: IncomingMessage, response: ServerResponse): void {
    this.#idle.delete(socket);
    this.underWay.set(socket, (this.underWay.get(socket) ?? 0) + 1);
    if (response.socket === null) this.#behind.set(socket, (this.#behind.get(socket) ?? new Set()).add(response));
    response.once('close', () => {
      this.#behind.get(socket)?.delete(response);
      const left = (this.underWay.get(socket) ?? 1) - 1;
      if (left > 0) this.underWay.set(socket, left);
      else {
        this.underWay.delete(socket);
        if (this.#isOver) socket.destroySoon();
        else if (this.#open.has(socket)) this.#idle.add(socket);
      }
    });
  }

  /** From now on the connection uses the other socket, which encrypts it. */
  replace(plain: Socket, encrypted: Socket): void {
    this.#open.delete(plain);
    this.#idle.delete(plain);
    this.#count(encrypted);
  }

  /**
   * Called when the server closes. It waits for every connection, and Node no longer ends those without a request: a
   * silent one would keep it open for ever. So silent ones are closed at once, and those in the middle of a request's
   * head a second later.
   */
  close(): void {
    for (const socket of this.#idle) if (socket.bytesRead === 0) socket.destroy();
    setTimeout(() => {
      this.#isOver = true;
      for (const socket of this.#idle) socket.destroy();
    }, LINGER_MS).unref();
  }

  #count(socket: Socket): void {
    this.#open.add(socket);
    this.#idle.add(socket);
    // Node calls this after the last answer.
    socket.destroySoon = () => {
      dropTheRest(socket);
      socket.end();
    };
    socket.once('finish', () => {
      socket.resume();
      socket.setTimeout(LINGER_MS, () => socket.destroy());
      setTimeout(() => socket.destroy(), this.#mostLingerMs).unref();
    });
    socket.once('close', () => {
      // Later, as Node 24 closes them by itself in the ticks that follow: what is still here then, it did not close.
      setImmediate(() => {
        for (const response of this.#behind.get(socket) ?? []) {
          response.destroy();
          response.emit('close');
        }
      });
      this.#open.delete(socket);
      this.#idle.delete(socket);
      this.underWay.delete(socket);
    });
  }
}

/**
 * From now on what arrives on the connection is dropped, and no longer read as requests: a call that arrives after the
 * last answer would run although nobody can be told.
 */
export function dropTheRest(socket: Duplex): void {
  // Our first listener makes Node's parser let go of the socket; from then on the parser's own is an ordinary listener.
  socket.on('data', () => {});
  socket.removeAllListeners('data');
  socket.on('data', () => {});
}
