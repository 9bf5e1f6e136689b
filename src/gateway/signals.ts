import { createMetrics } from '../telemetry/metrics.ts';
import { secondOpinionOf } from './core-ports.ts';
import type { ExitStack } from './exit-stack.ts';
import type { Ground } from './ground.ts';
import { Notifying } from './notify.ts';
import type { OwnSettings } from './own-settings.ts';
import { createPinAlarm } from './pin-view.ts';
import { SilentUpstreams } from './silent-upstreams.ts';
import type { Swept } from './sweeper.ts';
import { watchUpkeep } from './upkeep.ts';
import type { Views } from './views.ts';

export type Signals = ReturnType<typeof openSignals>;

/** Opens metrics, alarms and notifications, and lets what is open already be measured. */
export function openSignals(
  { held, configuration, store, fleet, folder, owner, measures, logger }: Ground,
  views: Views,
  own: OwnSettings,
  swept: () => Swept | null,
  opened: ExitStack,
) {
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
  const notifying = new Notifying({
    store,
    held,
    workspaces,
    publicUrl: () => own.read().publicUrl,
    owner,
    isFleet: fleet !== null,
    unsettled: () => swept()?.unsettled ?? 0,
    logger,
  });
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
  views.heed(alarm);
  const silent = new SilentUpstreams((upstream, code) =>
    alert('upstream_silent', 'an upstream does not answer', { upstream, code }),
  );
  return { metrics, upkeep, notifying, silent, opinion: secondOpinionOf(held, metrics, logger) };
}
