import { expect } from 'vitest';
import { awakeMs } from '../awake-clock.ts';
import { until } from '../redis/servers.ts';
import type { Fleet } from './fleet.ts';
import { refund } from './world.ts';

/** Calls one after the other through gateways; one that is refused is sent again with its key, as clients do. */
export interface SteadyCalls {
  /** Waits for so many more committed calls. */
  more(count: number): Promise<void>;
  /**
   * Waits until a call that was begun after `at` is committed through every gateway.
   * @param at by `awakeMs`
   * @returns how long that took, ms for which the machine was awake
   */
  pauseSince(at: number): Promise<number>;
  /** Ends with the calls that are under way. */
  stop(): Promise<void>;
  /** No call happened twice at the upstream; each that was committed happened, and is answered with its receipt. */
  expectOnceEach(): Promise<void>;
}

/** Begins to call. `through`: places of the gateways. */
export function steadyCalls(fleet: Fleet, through: readonly number[]): SteadyCalls {
  const committed = new Map<string, { readonly body: Record<string, unknown>; readonly receipt: unknown }>();
  /** By gateway, the last call that was committed: when it was sent, and when it was answered. */
  const last = new Map<number, { readonly sent: number; readonly answered: number }>();
  let stopped = false;

  async function one(gateway: number): Promise<void> {
    const body = refund({ amount: 1 });
    while (!stopped) {
      const sent = awakeMs();
      const answer = await fleet.run(gateway, body).catch(() => null);
      switch (answer?.body.decision) {
        case 'committed':
          committed.set(String(body['idempotency_key']), { body, receipt: answer.body.receipt });
          last.set(gateway, { sent, answered: awakeMs() });
          return;
        // A person's to look into.
        case 'unknown_effect':
        case 'duplicate_blocked':
          return;
        default:
          await new Promise((resolve) => setTimeout(resolve, 20));
      }
    }
  }
  const running = Promise.all(
    through.map(async (gateway) => {
      while (!stopped) await one(gateway);
    }),
  );

  return {
    async more(count) {
      const before = committed.size;
      await until(() => committed.size >= before + count);
    },
    async pauseSince(at) {
      await until(() => through.every((gateway) => (last.get(gateway)?.sent ?? 0) > at));
      return Math.max(...through.map((gateway) => (last.get(gateway)?.answered ?? 0) - at));
    },
    async stop() {
      stopped = true;
      await running;
    },
    async expectOnceEach() {
      const happened = new Map<string, number>();
      for (const { path } of (await fleet.upstream.ledger()).effects) happened.set(path, (happened.get(path) ?? 0) + 1);
      for (const count of happened.values()) expect(count).toBe(1);
      for (const [key, { body, receipt }] of committed) {
        expect(happened.get(`/v1/payments/pay_${key}/refunds`)).toBe(1);
        // What was answered with `settlement: pending` is in progress for others until it is driven in.
        let again = await fleet.run(0, body);
        await until(async () => {
          if (again.body.decision !== 'duplicate_blocked') again = await fleet.run(0, body);
          return again.body.decision === 'duplicate_blocked';
        });
        expect(again.body.receipt).toEqual(receipt);
      }
    },
  };
}
