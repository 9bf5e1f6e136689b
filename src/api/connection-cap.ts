import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** After the last answer of a connection, the caller has this long to close its side, ms. */
const LINGER_MS = 1_000;

export interface ConnectionCap {
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
 * one is closed. A connection that has got its last answer (to something that is no request, or to a refused upgrade)
 * is closed soon, even if its caller does not close it.
 */
export function capConnections(server: Server, most: number): ConnectionCap {
  const open = new Set<Socket>();
  /** Connections without a running request, the longest idle first. */
  const idle = new Set<Socket>();
  /** The number of running requests, for connections that have any. */
  const underWay = new Map<Socket, number>();
  let isOver = false;

  const count = (socket: Socket): void => {
    open.add(socket);
    idle.add(socket);
    socket.once('finish', () => {
      socket.resume();
      setTimeout(() => socket.destroy(), LINGER_MS).unref();
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
