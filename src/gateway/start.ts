import { type GatewayOptions, type RunningGateway, CommandFailure } from '../cli/ports.ts';
import { StoreUnavailable, type EffectStore } from '../effects/store.ts';
import { VERSION } from '../version.ts';
import { Chores } from './chores.ts';
import { type GatewayHooks, openCore } from './core.ts';
import { openDoors } from './doors.ts';
import { createDrain, type Drain } from './drain.ts';
import { createExitStack, endHard, type ExitStack } from './exit-stack.ts';
import { FilesInForce } from './files-in-force.ts';
import { type Ground, openGround } from './ground.ts';
import { healthOf } from './health.ts';
import { listenForCalls, listenForProbes, openServer } from './listening.ts';
import { bindToStore } from './master-secret.ts';
import { OwnSettings } from './in-force.ts';
import { openSignals } from './signals.ts';
import { TakeUp } from './take-up.ts';
import { type LivePauseView, openViews, type Views } from './views.ts';
import type { KeyObject } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { bootstrapAdminKeyFile } from '../config/environment.ts';
import { bootstrapAdministrativeKey } from '../identity/bootstrap.ts';
import { makeKeyFile, readKeyFile } from '../secrets/key-file.ts';
import type { Tool } from '../effects/model/tool.ts';
import type { Directory } from '../identity/directory.ts';

/** How much longer than the longest call a stop may take, ms. Reads that stream are cut before. */
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
  if (await opened.closeWithin(longestStopMs(held.inForce.configuration.tools))) return;
  logger.error('not everything came to its end: the gateway ends without it');
  await sink.written();
  process.once('exit', endHard);
}

/** How long a stop may take once no more requests come. Whatever is not over then is not waited for. */
export function longestStopMs(tools: readonly Pick<Tool, 'timeoutMs' | 'streams'>[]): number {
  return STOP_MS + Math.max(0, ...tools.map(({ timeoutMs, streams }) => streams?.totalMs ?? timeoutMs));
}

/**
 * The first administrative key of an empty store: given by the operator, shown on a terminal, or left in a file.
 * @param folder where the file goes
 * @throws CommandFailure if what the operator gave cannot be used
 */
async function makeFirstKey(
  store: EffectStore,
  pepper: KeyObject,
  options: GatewayOptions,
  folder: string,
): Promise<RunningGateway['administrativeKey']> {
  const file = join(folder, 'admin.key');
  const provided = async (): Promise<string | null> => {
    const given = bootstrapAdminKeyFile();
    return given === null ? null : readFile(given, 'utf8').catch(() => failToRead(given));
  };
  const made = await bootstrapAdministrativeKey({ store, pepper, provided }).catch((error: unknown) => {
    throw new CommandFailure(error instanceof Error ? error.message : String(error));
  });
  if (made.key === null) return (await readKeyFile(file)) === null ? null : { file };
  if (options.firstKey === 'shown') return { key: made.key };
  await makeKeyFile(file, `${made.key}\n`);
  return { file };
}

function failToRead(file: string): never {
  throw new CommandFailure(`SVC_BOOTSTRAP_ADMIN_KEY_FILE names ${file}, which cannot be read.`);
}

/** How often this gateway looks for changes of other gateways, ms. A message usually announces them earlier. */
const CHECK_EVERY_MS = 400;

/**
 * Keeps what is read without the store (workspaces, agents, pauses, policies) as other gateways have left it. One look at
 * a time; what cannot be read now is read at the next look.
 * @param follow takes on the policies in force, if they are others than here
 * @returns a function that stops it
 */
export function watchNeighbours(
  directory: Directory,
  pauses: LivePauseView,
  follow: () => Promise<void>,
): () => Promise<void> {
  let checking: Promise<void> | null = null;
  async function check(): Promise<void> {
    await Promise.allSettled([
      directory.refresh(),
      follow(),
      ...pauses.loaded().map((workspace) => pauses.refresh(workspace)),
    ]);
    checking = null;
  }
  const timer = setInterval(() => {
    checking ??= check();
  }, CHECK_EVERY_MS);
  timer.unref();
  return async () => {
    clearInterval(timer);
    await checking;
  };
}
