import { setTimeout as delay } from 'node:timers/promises';
import type { EffectPorts } from '../effects/ports.ts';
import type { ExitStack } from './exit-stack.ts';
import type { Ground } from './ground.ts';
import { Prober } from './prober.ts';
import type { Signals } from './signals.ts';
import { Sweeper, type Swept } from './sweeper.ts';
import type { Views } from './views.ts';

const SWEEP_EVERY_MS = 1000;
/** A start waits at most this long for the spill journal, ms: it may hold many settlements, or the store may be away. */
const FIRST_DRAIN_MS = 5000;

/** What the gateway does without being asked: it sweeps, probes unknown outcomes, and tells people. */
export class Chores {
  #sweeper: Sweeper | null = null;
  #prober: Prober | null = null;

  /** What the last round of the sweeper left; `null` before the first. */
  readonly swept = (): Swept | null => this.#sweeper?.last() ?? null;

  /** Where probing stands still. */
  probeNotes(): ReturnType<Prober['notes']> {
    return this.#prober?.notes() ?? [];
  }

  /** After this, a repeated call gets its outcome if this gateway knows it. */
  async start(
    ports: EffectPorts,
    { held, spill, logger }: Ground,
    { directory, people }: Views,
    { metrics, notifying }: Signals,
    opened: ExitStack,
  ): Promise<void> {
    const sweeper = new Sweeper(ports, people, spill, SWEEP_EVERY_MS, (error) =>
      logger.error({ err: error }, 'sweeping failed'),
    );
    this.#sweeper = sweeper;
    opened.push(() => sweeper.stop());
    const prober = new Prober({
      ports,
      tools: () => held.inForce.configuration.tools,
      workspaces: () => directory.workspaces(),
      probed: (outcome) => metrics.probed('gateway', outcome),
      report: (err) => logger.error({ err }, 'probing failed'),
    });
    this.#prober = prober;
    opened.push(() => prober.stop());
    notifying.start();
    opened.push(() => notifying.stop());
    await Promise.race([sweeper.begun, delay(FIRST_DRAIN_MS, undefined, { ref: false })]);
  }
}
