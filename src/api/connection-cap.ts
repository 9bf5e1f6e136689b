import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** A caller who was sent the last answer of a connection has this long to close its side, ms. */
const LINGER_MS = 1_000;

export interface ConnectionCap {
  /** Counts a connection, unless there are too many: then that one or another is closed. Says whether it may stay. */
  admit(socket: Socket): boolean;
  /** From here on the one connection is spoken on through the other socket, which encrypts it. */
  replace(plain: Socket, encrypted: Socket): void;
  /**
   * The server closes. It waits for every connection, and Node no longer ends those that send no request: a silent one
   * would keep it open for ever. So silent ones are closed at once, and those in the middle of a request's head a second
   * later.
   */
  close(): void;
}

/**
 * Holds the connections of callers to a number that the process can have open, and lets none stay that is over.
 *
 * One connection too many takes the place of the one that has been idle for longest; where every other one has a request
 * under way, it is closed itself. A connection on which the gateway has said its last word (a refusal of what is no
 * request, of an upgrade) is closed soon, whether its caller closes it or not.
 */
export function capConnections(server: Server, most: number): ConnectionCap {
  const open = new Set<Socket>();
  /** Those without a request under way, the longest idle first. */
  const idle = new Set<Socket>();
  /** Requests under way, of connections that have any. */
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
    // A request that is read a second time (see ignored-upgrade.ts) comes with a connection that is known.
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
  // A tunnel is under way until its connection closes.
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
