import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';

/** A port on loopback whose connections lead elsewhere. */
export interface Relay {
  readonly port: number;
  /** Ends the connections there are. */
  cut(): void;
  stop(): Promise<void>;
}

/**
 * @param target asked for each connection; `null` refuses it
 * @param carry has the bytes of a connection go over, both ways
 * @param ends whether one side's end is at once the other's; if not, `carry` ends it
 */
export async function startRelay(
  target: () => number | null,
  carry: (near: Socket, far: Socket) => void,
  ends = true,
): Promise<Relay> {
  const sockets = new Set<Socket>();
  const listener = createServer((near) => {
    const port = target();
    if (port === null) return void near.destroy();
    const far = connect(port, '127.0.0.1');
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(from);
      from.on('error', () => undefined);
      from.on('close', () => {
        sockets.delete(from);
        if (ends) to.destroy();
      });
    }
    carry(near, far);
  });
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const address = listener.address();
  function cut(): void {
    for (const socket of sockets) socket.destroy();
  }
  return {
    port: typeof address === 'object' && address !== null ? address.port : 0,
    cut,
    async stop() {
      cut();
      listener.close();
      await once(listener, 'close');
    },
  };
}

/** Hands bytes on, so much later (ms) as is said when they come. */
export function handOn(from: Socket, to: Socket, delayMs: () => number): void {
  from.on('data', (bytes: Buffer) => {
    const delay = delayMs();
    if (delay === 0) to.write(bytes);
    else setTimeout(() => to.destroyed || to.write(bytes), delay);
  });
}
