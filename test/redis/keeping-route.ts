import type { Socket } from 'node:net';
import { startRelay } from './relay.ts';

/** A way to a server on loopback that can keep what is sent: it arrives when the way is whole again, in its order. */
export interface KeepingRoute {
  readonly url: string;
  /** From now on, nothing arrives. */
  keep(): void;
  /** What was kept arrives, also where its sender has gone. */
  release(): void;
  stop(): Promise<void>;
}

export async function keepingRoute(port: number): Promise<KeepingRoute> {
  let isWhole = true;
  const kept: (() => void)[] = [];
  function pass(arrive: () => void): void {
    if (isWhole) arrive();
    else kept.push(arrive);
  }
  const carry = (from: Socket, to: Socket): void => {
    from.on('data', (bytes: Buffer) => pass(() => void (to.destroyed || to.write(bytes))));
    from.on('close', () => pass(() => void to.end()));
  };
  const relay = await startRelay(
    () => port,
    (near, far) => {
      carry(near, far);
      carry(far, near);
    },
    false,
  );
  return {
    url: `redis://127.0.0.1:${relay.port}`,
    keep() {
      isWhole = false;
    },
    release() {
      isWhole = true;
      for (const arrive of kept.splice(0)) arrive();
    },
    stop: () => relay.stop(),
  };
}
