import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

/** A call is done at the latest so long after it arrived, and a read sees it at the latest so long after that, ms. */
const DONE_LATE_MS = 800;
const SEEN_LATE_MS = 1_500;
/** For so long after it may be seen an order may still be shown as pending, ms. */
const PENDING_MS = 1_000;

/** What is declared of it: later than this after a call has left every read shows what became of it, ms. */
export const ORDERS_PROCESSING_MS = 5_000;

/** Chances of what becomes of a call. In the first three it is done. */
const FATES = [
  ['answered', 0.3],
  ['lost_after', 0.25],
  ['error_after', 0.15],
  ['lost_before', 0.2],
  ['error_before', 0.1],
] as const;

/** An order as its ledger has it. */
export interface PlacedOrder {
  /** How often it was done under its key. */
  times: number;
  /** When it was done (ms since the epoch), and whether it shows as pending at first. */
  readonly doneAt: number;
  readonly isPendingFirst: boolean;
}

/** An upstream that takes orders, loses answers, and whose reads lag, show `pending` first and fail. */
export interface LaggingOrders {
  readonly url: string;
  /** What was done, by the key that came with the call: the truth. */
  readonly ledger: ReadonlyMap<string, PlacedOrder>;
  /** The most reads that ran at the same time for one key. */
  mostForOneKey(): number;
  close(): Promise<void>;
}

export async function startLaggingOrders(random: () => number): Promise<LaggingOrders> {
  const ledger = new Map<string, PlacedOrder>();
  const reading = new Map<string, number>();
  let most = 0;

  function fate(): (typeof FATES)[number][0] {
    let left = random();
    for (const [name, chance] of FATES) {
      left -= chance;
      if (left < 0) return name;
    }
    return 'lost_before';
  }

  function place(key: string): void {
    const before = ledger.get(key);
    if (before !== undefined) before.times += 1;
    else
      ledger.set(key, {
        times: 1,
        doneAt: Date.now() + random() * DONE_LATE_MS,
        isPendingFirst: random() < 0.3,
      });
  }

  /** What a read sees: each is of a replica that lags by another time. */
  function seen(key: string): { readonly status: number; readonly state: string } {
    const order = ledger.get(key);
    const late = Date.now() - random() * SEEN_LATE_MS;
    if (order === undefined || order.doneAt > late) return { status: 404, state: 'absent' };
    const isPending = order.isPendingFirst && order.doneAt + PENDING_MS > late;
    return { status: 200, state: isPending ? 'pending' : 'done' };
  }

  const server = createServer((request, response) => {
    const say = (status: number, state: string): void => {
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify({ state }));
    };
    if (request.method === 'POST') {
      const became = fate();
      request.resume().once('end', () => {
        if (became !== 'lost_before' && became !== 'error_before') place(String(request.headers['idempotency-key']));
        if (became === 'answered') say(201, 'done');
        else if (became.startsWith('error')) say(500, 'broken');
        else response.destroy();
      });
      return;
    }
    const key = decodeURIComponent(request.url?.split('/').at(-1) ?? '');
    const underWay = (reading.get(key) ?? 0) + 1;
    reading.set(key, underWay);
    most = Math.max(most, underWay);
    void delay(random() * 20).then(() => {
      reading.set(key, (reading.get(key) ?? 1) - 1);
      const trouble = random();
      if (trouble < 0.05) response.destroy();
      else if (trouble < 0.1) say(503, 'done');
      else {
        const { status, state } = seen(key);
        say(status, state);
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    ledger,
    mostForOneKey: () => most,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
