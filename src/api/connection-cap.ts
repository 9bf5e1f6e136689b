import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

/** After the last answer of a connection, the caller has this long to send the next piece or to close its side, ms. */
const LINGER_MS = 1_000;
/** What a caller still sends after the last answer is read and dropped for at most this long, ms. */
const MOST_LINGER_MS = 10_000;

export interface ConnectionCap {
  /** The number of running requests, for connections that have any. */
  readonly underWay: ReadonlyMap<Socket, number>;
  /** Counts a connection. If there are too many, closes this one or another. Returns whether this one may stay. */
  admit(socket: Socket): boolean;
  /** From now on the connection uses the other socket, which encrypts it. */
  replace(plain: Socket, encrypted: Socket): void;
  /**
   * Called when the server closes. It waits for every connection, and Node no longer ends those without a request: a
   * silent one would keep it open for ever. So silent ones are closed at once, and those in the middle of a request's
   * head a second later.
   */
  close(): void;
}

/**
 * Limits the connections of callers to what the process can have open, and removes those that are finished.
 *
 * If there is one too many, the one that was idle for longest is closed. If all others have a running request, the new
 * one is closed. A connection that has got its last answer (to something that is no request, to a refused upgrade, or
 * to a request of which a part was not read) is closed soon, even if its caller does not close it. Not at once: the
 * system would tell a caller that is still sending that the connection broke, and take the answer from it.
 */
export function capConnections(server: Server, most: number, mostLingerMs = MOST_LINGER_MS): ConnectionCap {
  const open = new Set<Socket>();
  /** Connections without a running request, the longest idle first. */
  const idle = new Set<Socket>();
  const underWay = new Map<Socket, number>();
  let isOver = false;

  const count = (socket: Socket): void => {
    open.add(socket);
    idle.add(socket);
    // Node calls this after the last answer.
    socket.destroySoon = () => {
      dropTheRest(socket);
      socket.end();
    };
    socket.once('finish', () => {
      socket.resume();
      socket.setTimeout(LINGER_MS, () => socket.destroy());
      setTimeout(() => socket.destroy(), mostLingerMs).unref();
    });
    socket.once('close', () => {
      open.delete(socket);
      idle.delete(socket);
      underWay.delete(socket);
    });
  };
  const admit = (socket: Socket): boolean => {
    // A request that is read a second time (see ignored-upgrade.ts) comes on a known connection.
    if (open.has(socket)) return true;
    if (open.size >= most) {
      const [longest] = idle;
      (longest ?? socket).destroy();
      if (longest === undefined) return false;
      idle.delete(longest);
    }
    count(socket);
    return true;
  };
  server.on('connection', admit);
  server.on('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
    idle.delete(socket);
    underWay.set(socket, (underWay.get(socket) ?? 0) + 1);
    response.once('close', () => {
      const left = (underWay.get(socket) ?? 1) - 1;
      if (left > 0) underWay.set(socket, left);
      else {
        underWay.delete(socket);
        if (isOver) socket.destroySoon();
        else if (open.has(socket)) idle.add(socket);
      }
    });
  });
  // A tunnel counts as a running request until its connection closes.
  server.on('upgrade', ({ socket }: IncomingMessage) => void idle.delete(socket));

  return {
    underWay,
    admit,
    replace(plain, encrypted) {
      open.delete(plain);
      idle.delete(plain);
      count(encrypted);
    },
    close() {
      for (const socket of idle) if (socket.bytesRead === 0) socket.destroy();
      setTimeout(() => {
        isOver = true;
        for (const socket of idle) socket.destroy();
      }, LINGER_MS).unref();
    },
  };
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
