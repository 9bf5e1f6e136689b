import type { GatewayOptions, RunningGateway } from '../cli/ports.ts';
import { StoreUnavailable } from '../effects/store.ts';
import { VERSION } from '../version.ts';
import { Chores } from './chores.ts';
import { type GatewayHooks, openCore } from './core.ts';
import { openDoors } from './doors.ts';
import { createDrain, type Drain } from './drain.ts';
import { createExitStack, endHard, type ExitStack } from './exit-stack.ts';
import { FilesInForce } from './files-in-force.ts';
import { makeFirstKey } from './first-key.ts';
import { type Ground, openGround } from './ground.ts';
import { healthOf } from './health.ts';
import { listenForCalls, listenForProbes, openServer } from './listening.ts';
import { bindToStore } from './master-secret.ts';
import { watchNeighbours } from './neighbours.ts';
import { OwnSettings } from './own-settings.ts';
import { openSignals } from './signals.ts';
import { TakeUp } from './take-up.ts';
import { openViews, type Views } from './views.ts';

/** A stop takes at most this much longer than the longest call, ms. Reads that pass are cut before. */
const STOP_MS = 30_000;

const STARTING = { code: 'store_unavailable', message: 'It takes up work when the store is ready.' } as const;

export interface GatewayProcess extends RunningGateway {
  /** After a fault: takes nothing more from now on, and closes when what runs is settled. */
  abandon(): Promise<void>;
}

/**
 * Starts a gateway in this process; resolves when it accepts requests. The order is that of trust: files, secrets,
 * store (including recovery), policies, and only then the port.
 * @throws InvalidFiles, CommandFailure
 */
export async function startGateway(
  options: GatewayOptions,
  hooks: GatewayHooks = { decorate: (ports) => ports },
): Promise<GatewayProcess> {
  const opened = createExitStack();
  try {
    return await open(options, hooks, opened);
  } catch (error) {
    await opened.close();
    throw error;
  }
}

async function open(options: GatewayOptions, hooks: GatewayHooks, opened: ExitStack): Promise<GatewayProcess> {
  const ground = await openGround(options, opened);
  const own = new OwnSettings(ground.held);
  const drain = createDrain();
  const chores = new Chores();
  const views = openViews(ground, own, opened);
  const signals = openSignals(ground, views, own, chores.swept, opened);
  const server = openServer(ground, signals, own, drain);
  const files = new FilesInForce(options, ground, views, signals, server.listeners);
  const takingUp = new TakingUp(options, ground, views, files);
  const takeUp = takingUp.whenReady;
  opened.push(() => takeUp.stop());
  opened.push(() => files.stop());
  ground.store.onPolicyChanged(() => {
    if (takeUp.isDone()) void files.reloader.follow();
  });
  const core = openCore(hooks, ground, views, signals, files, own, takeUp, drain, opened);
  const health = healthOf(ground, signals, files, chores, takeUp, drain);
  await openDoors(server, { ground, views, signals, files, core, own, health, drain }, opened);

  await takeUp.begin();
  await chores.start(core.ports, ground, views, signals, opened);
  opened.push(() => drain.finished());
  await listenForProbes(ground, own, health, opened);
  opened.push(() => server.app.close());
  const { url, listeners } = await listenForCalls(server, ground.configuration, options.port);
  own.listensAt(url);
  takingUp.isListening = true;
  if (ground.configuration.store.kind === 'redis')
    opened.push(watchNeighbours(views.directory, views.pauses, () => files.follow(takeUp)));
  files.watch(opened);
  ground.logger.info(
    {
      url,
      ...(ground.configuration.listeners.length === 0 ? {} : { listeners }),
      version: VERSION,
      policy_version: ground.held.inForce.policies.version,
      durability: ground.store.health().durability,
    },
    takeUp.isDone() ? 'ready' : 'listening; the store is not ready',
  );
  return {
    url,
    get administrativeKey() {
      return takingUp.administrativeKey;
    },
    hindrance: () => (takeUp.isDone() ? null : (ground.store.health().problem ?? STARTING)),
    ready: takeUp.finished,
    lost: ground.lost,
    close: () => close(ground, drain, opened),
    async abandon() {
      server.app.close().catch(() => undefined);
      await opened.close();
    },
  };
}

/** Takes up the work of the gateway, as soon as the store can be reached. */
class TakingUp {
  readonly whenReady: TakeUp;
  /** Whether somebody could look at what is shown has passed. */
  isListening = false;
  administrativeKey: RunningGateway['administrativeKey'] = null;
  readonly #options: GatewayOptions;
  readonly #ground: Ground;
  readonly #views: Views;
  readonly #files: FilesInForce;

  constructor(options: GatewayOptions, ground: Ground, views: Views, files: FilesInForce) {
    this.#options = options;
    this.#ground = ground;
    this.#views = views;
    this.#files = files;
    this.whenReady = new TakeUp(
      () => this.#work(),
      (error) => ground.logger.error({ err: error }, 'the store is there, and work cannot be taken up'),
    );
  }

  async #work(): Promise<void> {
    const { store, secrets, configuration, folder, logger } = this.#ground;
    if (!store.health().ready) throw new StoreUnavailable('The store is not ready.');
    await bindToStore(store, secrets, configuration.secrets);
    await this.#files.begin();
    await this.#views.directory.refresh();
    // A key that is made later cannot be shown to anybody.
    const firstKey = this.isListening ? 'file' : this.#options.firstKey;
    this.administrativeKey = await makeFirstKey(store, secrets.keyPepper, { ...this.#options, firstKey }, folder);
    if (this.isListening)
      logger.info({ durability: store.health().durability }, 'the store is there: work is taken up');
  }
}

/** The last calls come to their end; then what was opened is closed. */
async function close({ held, sink, logger }: Ground, drain: Drain, opened: ExitStack): Promise<void> {
  await drain.drain();
  const { tools } = held.inForce.configuration;
  const longest = Math.max(0, ...tools.map(({ timeoutMs, streams }) => streams?.totalMs ?? timeoutMs));
  if (await opened.closeWithin(longest + STOP_MS)) return;
  logger.error('not everything came to its end: the gateway ends without it');
  await sink.written();
  process.once('exit', endHard);
}
