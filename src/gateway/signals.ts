import { createMetrics } from '../telemetry/metrics.ts';
import { secondOpinionOf } from './core-ports.ts';
import type { ExitStack } from './exit-stack.ts';
import type { Ground } from './ground.ts';
import type { OwnSettings } from './in-force.ts';
import { createPinAlarm, type Views } from './views.ts';
import type { Swept } from './sweeper.ts';
import { watchUpkeep } from './upkeep.ts';
import type { Note } from '../effects/model/note.ts';
import type { EffectPorts } from '../effects/ports.ts';
import { Observed } from '../notifications/observed.ts';
import { limitInForce } from '../policy/policies.ts';
import { Notifier } from '../notifications/notifier.ts';

export type Signals = ReturnType<typeof openSignals>;

/** Opens metrics, alarms and notifications, and lets what is open already be measured. */
export function openSignals(
  ground: Ground,
  views: Views,
  own: OwnSettings,
  swept: () => Swept | null,
  opened: ExitStack,
) {
  const { held, configuration, store, folder, measures, logger } = ground;
  const workspaces = (): readonly string[] => views.directory.workspaces();
  const metrics = createMetrics({ store, workspaces, swept, upkeep: () => upkeep.figures() });
  const alert = (what: string, message: string, about: object = {}): void => {
    metrics.alerted(what);
    logger.error({ alert: what, ...about }, message);
  };
  const upkeep = watchUpkeep(
    folder,
    () => (configuration.store.kind === 'embedded' ? configuration.store.backupEveryMs : null),
    alert,
  );
  opened.push(async () => upkeep.stop());
  Object.assign(measures, metrics);
  const notifying = new Notifying(ground, own, workspaces, () => swept()?.unsettled ?? 0);
  const alarm = createPinAlarm({
    upstreams: views.upstreams,
    declared: () => held.inForce,
    quarantined: (tool, state) => {
      alert('tool_quarantined', 'an MCP server changed this tool: it is not called', { tool, state });
      notifying.observed.quarantined(tool, state);
    },
    released(tool) {
      logger.info({ tool }, 'this MCP tool is what was approved again');
      notifying.observed.released(tool);
    },
    unapproved: (upstream, tools) =>
      logger.warn({ upstream, tools: tools.slice(0, 20) }, 'an MCP server lists tools that nobody has approved'),
  });
  views.heed(alarm.heed);
  const silent = new SilentUpstreams((upstream, code) =>
    alert('upstream_silent', 'an upstream does not answer', { upstream, code }),
  );
  return { metrics, upkeep, notifying, alarm, silent, opinion: secondOpinionOf(held, metrics, logger) };
}

/** So many calls in a row without an answer are worth a note. */
const NOTEWORTHY = 3;
/** After this without a call nobody knows whether it still is silent, ms. */
const FORGOTTEN_MS = 3_600_000;

/** Which upstreams do not answer, by what became of the calls and reads that were sent there. */
export class SilentUpstreams {
  /** Of each upstream its calls in a row that had no answer, and why the last one had none. */
  readonly #silences = new Map<string, { since: number; calls: number; lastAt: number; code: string }>();
  readonly known: ReadonlyMap<string, unknown> = this.#silences;
  readonly #alert;

  /** @param alert told once for each silence that is worth a note */
  constructor(alert: (upstream: string, code: string) => void) {
    this.#alert = alert;
  }

  /** An upstream was called. @param code why there was no answer; `null`: there was one, whatever it said */
  heard(upstream: string, code: string | null): void {
    if (code === null) {
      this.#silences.delete(upstream);
      return;
    }
    const now = Date.now();
    const before = this.#silences.get(upstream) ?? { since: now, calls: 0 };
    const calls = before.calls + 1;
    this.#silences.set(upstream, { since: before.since, calls, lastAt: now, code });
    if (calls === NOTEWORTHY) this.#alert(upstream, code);
  }

  /** The same of a governed call. What the gateway held back says nothing of the upstream. */
  readonly called: EffectPorts['silent']['called'] = (upstream, { code, answered }) => {
    if (code !== 'not_dispatched') this.heard(upstream, answered === null ? code : null);
  };

  /** Of each upstream that is silent. The address stays out of it: everybody may read notes. */
  notes(now: number): readonly Note[] {
    return [...this.#silences].flatMap(([upstream, { since, calls, lastAt, code }]) => {
      if (calls < NOTEWORTHY || now - lastAt > FORGOTTEN_MS) return [];
      const message = `The last ${calls} calls of ${upstream} had no answer (${code}), the latest ${Math.round((now - lastAt) / 60_000)} min ago. svc doctor asks each upstream and says why it is not reached; svc effects list --state unknown has what may have arrived.`;
      return [{ part: 'upstream', message, since }];
    });
  }
}

/** What people are told of: what this gateway sees goes in, and one gateway of the store sends it. */
class Notifying {
  readonly #ground;
  readonly #own;
  readonly observed;
  #notifier: Notifier | null = null;

  constructor(ground: Ground, own: OwnSettings, workspaces: () => readonly string[], unsettled: () => number) {
    const { held, store } = ground;
    this.#ground = ground;
    this.#own = own;
    this.observed = new Observed({
      store,
      workspaces,
      limitOf: (row) => limitInForce(row, held.inForce.policies),
      nearPercent: () => held.inForce.configuration.telemetry.budgetNearPercent,
      unsettled,
    });
  }

  /** What people should look at. */
  notes(): readonly Note[] {
    const part = 'notifications';
    const dead = this.#notifier?.dead() ?? 0;
    const many = `${dead}${dead < 100 ? '' : ' or more'} notification${dead === 1 ? '' : 's'}`;
    const message = `${many} could not be delivered: svc notifications list --state dead shows them, svc notifications resend sends them again.`;
    const stuck = (this.#notifier?.stuck() ?? []).map(({ receiverName, attempts, triedFrom: since }) => ({
      part,
      since,
      message: `Nobody is told by ${receiverName}: a notification was tried ${attempts} times, and not taken. svc notifications list --state waiting says why; it is tried further by itself.`,
    }));
    return dead === 0 ? stuck : [{ part, message }, ...stuck];
  }

  start(): void {
    const { held, store, fleet, owner, logger } = this.#ground;
    this.#notifier = new Notifier({
      store,
      receivers: () => held.inForce.configuration.webhooks,
      publicUrl: () => this.#own.read().publicUrl,
      owner,
      isFleet: fleet !== null,
      observed: this.observed,
      attempted: ({ id, receiverName: receiver, notification: { event } }, attempted) => {
        if (attempted.kind === 'delivered') logger.debug({ id, receiver, event }, 'a notification was delivered');
        else logger.warn({ id, receiver, event, why: attempted.why }, 'a notification could not be delivered');
      },
      report: (error) => logger.error({ err: error }, 'notifying failed'),
    });
  }

  /** The configuration is another. */
  changed(): void {
    this.#notifier?.changed();
  }

  async stop(): Promise<void> {
    return this.#notifier?.stop();
  }
}
