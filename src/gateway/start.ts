/**
 * A start waits at most this long for the spill journal, ms: it may hold many settlements, or the store may be away.
 */
const FIRST_DRAIN_MS = 5000;

import { setTimeout as delay } from 'node:timers/promises';
import { join } from 'node:path';
import { createBrain } from '../brain/brain.ts';
import { createEntityFacts } from '../brain/facts.ts';
import { createFileLoader } from '../brain/load-files.ts';
import { createBrainWriter } from '../brain/writer.ts';
import { addControlPlane, addHealth } from '../api/control-plane.ts';
import { namesGateway } from '../api/own-names.ts';
import { createInvalidKeyLimiter } from '../api/invalid-key-limiter.ts';
import { createLists } from '../api/lists.ts';
import type { ApiPorts } from '../api/ports.ts';
import { createListeningServer, createServer } from '../api/server.ts';
import { CommandFailure, type GatewayOptions, type RunningGateway } from '../cli/ports.ts';
import { addConsole } from '../console/plugin.ts';
import { createSessions } from '../console/sessions.ts';
import { storeFolder } from '../config/resolve-store.ts';
import { watchFiles } from '../config/watch.ts';
import { decideApproval } from '../effects/run/decide-approval.ts';
import type { People } from '../effects/run/recall.ts';
import type { RunResult } from '../effects/model/outcome.ts';
import type { EffectPorts } from '../effects/ports.ts';
import { previewEffect } from '../effects/run/preview-effect.ts';
import { createProbe } from '../effects/run/probe-effect.ts';
import { resolveEffect } from '../effects/run/resolve-effect.ts';
import { runEffect } from '../effects/run/run-effect.ts';
import { newId } from '../effects/run/ids.ts';
import type { RunRequest } from '../effects/model/run-request.ts';
import { type EffectStore, StoreUnavailable } from '../effects/store.ts';
import { createAuthenticator } from '../identity/authenticate.ts';
import { createDirectory, type Directory } from '../identity/directory.ts';
import { createKeyRecord, keyState, successorOf } from '../identity/key-record.ts';
import { allProfiles } from '../identity/profiles.ts';
import { mcpControlPlugin } from '../mcp/control/plugin.ts';
import { mcpFederatedPlugin } from '../mcp/gateway/federated.ts';
import { mcpGatewayPlugin } from '../mcp/gateway/plugin.ts';
import { proxyPlugin } from '../proxy/plugin.ts';
import { openSigner, ReceiptKeyFault } from '../receipts/sign.ts';
import { receiptView } from '../receipts/view.ts';
import { KeyFileFault, makeKeyFile, readKeyFile } from '../secrets/key-file.ts';
import { settlementTexts } from '../records/settlement-text.ts';
import { openSpillJournal } from '../stores/journal/spill.ts';
import { createAccessLog } from '../telemetry/access-log.ts';
import { createLogger, logSink } from '../telemetry/logger.ts';
import { createMetrics } from '../telemetry/metrics.ts';
import { openSpool } from '../upstreams/http/spool.ts';
import { createUpstreams } from '../upstreams/upstreams.ts';
import { VERSION } from '../version.ts';
import { createAgreement } from './agreement.ts';
import { corePorts, opinionNotes, secondOpinionOf } from './core-ports.ts';
import { discloser } from './disclose.ts';
import { createDrain } from './drain.ts';
import { createFileEntities } from './file-entities.ts';
import { createPasskeys } from '../identity/passkeys/passkeys.ts';
import { createVerifier } from '../identity/passkeys/verifier.ts';
import { createFileReader } from './file-reader.ts';
import { createExitStack, endHard, type ExitStack } from './exit-stack.ts';
import { makeFirstKey } from './first-key.ts';
import { type Held, type InForce, readFiles } from './in-force.ts';
import { mcpGatewayPorts } from './mcp-gateway-ports.ts';
import { mcpControlPorts } from './mcp-ports.ts';
import { watchNeighbours } from './neighbours.ts';
import { createNotifying } from './notify.ts';
import { createForgeryAlarm, createLateKeySeals } from './key-seals.ts';
import { bindToStore, openSecretsFor } from './master-secret.ts';
import { connectionsOf, openFilesLimit } from './open-files.ts';
import { openStoreAndFleet } from './open-store.ts';
import { createPauseView } from './pause-view.ts';
import { createPinAlarm, createPinView } from './pin-view.ts';
import { proxyPorts } from './proxy-ports.ts';
import { outcomeOfProbe, type Prober, startProber } from './prober.ts';
import { createProposals } from './policy-proposals.ts';
import { createReloader } from './reload.ts';
import { sealedStore, unmeasured } from './sealed-store.ts';
import { retentionNotes, startSweeper, type Swept } from './sweeper.ts';
import { createTakeUp } from './take-up.ts';
import { watchUpkeep } from './upkeep.ts';
import { watchStore } from './watch-store.ts';

const SWEEP_EVERY_MS = 1000;
/** A stop takes at most this much longer than the longest call, ms. Reads that pass are cut before. */
const STOP_MS = 30_000;
/** The most connections of the admin port at the same time, for scrapes and probes. */
const ADMIN_CONNECTIONS = 16;
const STALE_NOTES = {
  refused: 'The files cannot be used as they are; the last good version is in force. The log says what is wrong.',
  unread:
    'The files could not be read; the last good version is in force. They are tried again by themselves. The log says why.',
} as const;

const STARTING = { code: 'store_unavailable', message: 'It takes up work when the store is ready.' } as const;

/** The lowest level that is logged; `null`: as configured. */
const LEVELS = { stderr: null, warnings: 'warn', text: 'warn', none: 'silent' } as const;

/** For tests that stop or break the gateway at a point of their choice. */
export interface GatewayHooks {
  readonly decorate: (ports: EffectPorts) => EffectPorts;
}

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
  const held: Held = { inForce: await readFiles(options.configFile, options.environment) };
  const { configuration } = held.inForce;
  const current = (): InForce => held.inForce;
  const sink = logSink();
  opened.push(() => sink.written());
  const logger = createLogger({
    level: LEVELS[options.log] ?? configuration.telemetry.logLevel,
    sink,
    isText: options.log === 'text',
  });
  for (const warning of held.inForce.warnings) logger.warn({ warning }, 'configuration');

  const folder = storeFolder(configuration.store);
  const keySeals = createLateKeySeals((key, why) => forgery(key, why));
  const { store: unsealed, fleet } = await mendable(openStoreAndFleet(configuration, keySeals));
  const storeWatch = watchStore(unsealed, logger);
  opened.push(() => storeWatch.stop());
  opened.push(() => unsealed.close());
  const secrets = await mendable(openSecretsFor(unsealed, configuration.secrets));
  const measures = unmeasured();
  const store = sealedStore(unsealed, secrets, measures, (row) => forgery({ row }, 'forged'));
  const signer = await mendable(
    openSigner({
      keys: { path: configuration.receipts.keysDir, read: readKeyFile, make: makeKeyFile },
      issuer: configuration.receipts.issuer,
      get installId() {
        return store.installId;
      },
      version: VERSION,
      durability: () => store.health().durability,
      lend: (head, key) => store.signWith(head, key),
    }),
  );
  const spill = await openSpillJournal(join(folder, 'spill'), settlementTexts);
  const spool = await openSpool(join(folder, 'uploads'));
  const directory = createDirectory(configuration, store);
  let administrativeKey: RunningGateway['administrativeKey'] = null;
  // Whoever can edit files does not turn it off while the gateway runs.
  const isOfTwo = configuration.policies.isOfTwo;
  const agreement = createAgreement(fleet, current, isOfTwo);
  const takeUp = createTakeUp(
    async () => {
      if (!store.health().ready) throw new StoreUnavailable('The store is not ready.');
      await bindToStore(store, secrets, configuration.secrets);
      await reloader.begin(fleet === null ? 'after_files' : 'no');
      await store.seeUsers(held.inForce.configuration.users.map(({ id }) => id));
      await fileEntities.begin();
      agreement.announce(held.inForce);
      await directory.refresh();
      // A key that is made later cannot be shown to anybody.
      const firstKey = isListening ? 'file' : options.firstKey;
      administrativeKey = await makeFirstKey(store, secrets.keyPepper, { ...options, firstKey }, folder);
      if (isListening) logger.info({ durability: store.health().durability }, 'the store is there: work is taken up');
    },
    (error) => logger.error({ err: error }, 'the store is there, and work cannot be taken up'),
  );
  opened.push(() => takeUp.stop());
  const pauses = createPauseView(store);
  const entities = createEntityFacts(store);
  const brain = createBrain({
    store,
    turns: store.turns,
    failed: (workspace, err) => logger.error({ workspace, err }, 'the company brain cannot be read; it is tried again'),
  });
  opened.push(async () => brain.close());
  const brainWriter = createBrainWriter({
    store,
    digestKey: (workspace) => secrets.fingerprintKey(workspace),
    limits: () => held.inForce.configuration.brain.limits,
  });
  let toolsSeen: ReturnType<typeof createPinAlarm> = () => undefined;
  const upstreams = createUpstreams(
    configuration.upstreams,
    configuration.limits,
    store.now,
    (upstream, names) => toolsSeen(upstream, names),
    (address) => namesGateway(address, settings()),
  );
  const pins = createPinView(upstreams, () => held.inForce);
  opened.push(() => upstreams.close());
  let swept: () => Swept | null = () => null;
  let prober: Prober | null = null;
  const metrics = createMetrics({
    store,
    workspaces: () => directory.workspaces(),
    swept: () => swept(),
    upkeep: () => upkeep.figures(),
  });
  const upkeep = watchUpkeep(
    folder,
    () => (configuration.store.kind === 'embedded' ? configuration.store.backupEveryMs : null),
    (alert, message) => {
      metrics.alerted(alert);
      logger.error({ alert }, message);
    },
  );
  opened.push(async () => upkeep.stop());
  Object.assign(measures, metrics);
  const notifying = createNotifying({
    store,
    held,
    workspaces: () => directory.workspaces(),
    publicUrl: () => settings().publicUrl,
    owner: () => ports.owner,
    isFleet: fleet !== null,
    unsettled: () => swept()?.unsettled ?? 0,
    logger,
  });
  toolsSeen = createPinAlarm({
    upstreams,
    declared: () => held.inForce,
    quarantined: (tool, state) => {
      metrics.alerted('tool_quarantined');
      logger.error({ alert: 'tool_quarantined', tool, state }, 'an MCP server changed this tool: it is not called');
      notifying.quarantined(tool, state);
    },
    released(tool) {
      logger.info({ tool }, 'this MCP tool is what was approved again');
      notifying.released(tool);
    },
    unapproved: (upstream, tools) =>
      logger.warn({ upstream, tools: tools.slice(0, 20) }, 'an MCP server lists tools that nobody has approved'),
  });
  const forgery = createForgeryAlarm({
    count: () => metrics.alerted('key_forged'),
    report: (of, why) =>
      why === 'forged'
        ? logger.error(
            { alert: 'key_id' in of ? 'key_forged' : 'record_forged', ...of },
            'this record is not as it was sealed: something else than a gateway wrote to the store',
          )
        : logger.warn(of, 'this was sealed under a master secret that is not named here'),
    elapsed: () => performance.now(),
  });
  keySeals.use(secrets.keySeals);
  const opinion = secondOpinionOf(held, metrics, logger);
  const ports = hooks.decorate(
    corePorts({
      opinion,
      store,
      upstream: upstreams,
      held,
      directory,
      pauses,
      pins,
      entities,
      secrets,
      signer,
      spill,
      metrics,
      alert: (what, effectId, err) =>
        logger.error({ alert: what, effect_id: effectId, err }, 'somebody has to look at this'),
      policies: { follow: () => reloader.follow(), hindrance: () => reloader.hindrance() },
    }),
  );
  const fileEntities = createFileEntities({
    loader: createFileLoader({
      store: unsealed,
      writer: brainWriter,
      turns: store.turns,
      actor: { type: 'gateway', id: ports.owner },
    }),
    isFleet: fleet !== null,
    logger,
    alert: () => metrics.alerted('configuration_rejected'),
  });
  opened.push(() => fileEntities.stop());
  held.inForce = fileEntities.take(held.inForce);
  const people = peopleOf(directory, store);
  const authenticator = createAuthenticator({
    store,
    peppers: [secrets.keyPepper, ...secrets.previousPeppers],
    elapsed: () => performance.now(),
  });
  opened.push(() => authenticator.close());
  const authenticate: typeof authenticator.authenticate = (key) =>
    takeUp.isDone() ? authenticator.authenticate(key) : Promise.reject(new StoreUnavailable('The store is not ready.'));
  const run = (request: RunRequest): Promise<RunResult> => {
    drain.begin();
    return runEffect(ports, request, (result) => {
      drain.end();
      if (result?.kind !== 'outcome') return;
      const { decision, reason, observed, repeat } = result.outcome;
      metrics.decided(decision, reason.code, request.via);
      if (observed !== null && !repeat) metrics.observed(observed.would, request.via);
    });
  };

  let origin = configuration.server.publicUrl ?? '';
  let isListening = false;
  const drain = createDrain(() => performance.now());
  let known = { of: held.inForce, origin, settings: settingsOf(held.inForce, origin) };
  const settings = () => {
    if (known.of !== held.inForce || known.origin !== origin)
      known = { of: held.inForce, origin, settings: settingsOf(held.inForce, origin) };
    return known.settings;
  };
  const keyContext = () => ({
    pepper: secrets.keyPepper,
    now: store.now(),
    profiles: allProfiles(held.inForce.configuration.auth.profiles),
    workspaces: directory.workspaces(),
    defaultExpiryMs: held.inForce.configuration.auth.defaultExpiryMs,
  });
  let notifyWatch: (stamp: string) => void = () => undefined;
  const persons = {
    isUser: (user: string) => directory.isUser(user),
    since: (user: string) => people.since(user),
    keys: (user: string) => store.keys(user),
  };
  const reloader = createReloader({
    ...options,
    store,
    seals: secrets.policySeals,
    proposals: isOfTwo ? createProposals({ store, seals: secrets.policySeals, persons, newId }) : null,
    current,
    adopt(next) {
      held.inForce = fileEntities.take(next);
      agreement.announce(next);
      notifyWatch(next.stamp);
      upstreams.update(next.configuration.upstreams, next.configuration.limits);
      directory.update(next.configuration);
      notifying.changed();
      listeners.update(next.configuration.server.tls, next.configuration.listeners);
    },
    noted(same) {
      held.inForce = fileEntities.take(same);
      notifyWatch(same.stamp);
    },
    // What another gateway puts in force is to be in force here at once.
    reader: createFileReader({ spare: fleet !== null }),
    owner: ports.owner,
    logger,
    metrics,
  });
  store.onPolicyChanged(() => {
    if (takeUp.isDone()) void reloader.follow();
  });
  const { host, adminPort } = configuration.server;
  const health = {
    impediments: () => {
      if (drain.isDraining()) return [{ part: 'gateway', message: 'It is shutting down.' }];
      if (!takeUp.isDone()) return [{ part: 'gateway', message: 'It takes up work when the store is ready.' }];
      const hindrance = reloader.hindrance();
      return hindrance === null ? [] : [{ part: 'policies', message: hindrance }];
    },
    notes: () => {
      const staleness = reloader.staleness();
      const notes = staleness === null ? [] : [{ part: 'configuration', message: STALE_NOTES[staleness] }];
      const entities = fileEntities.problem();
      const ofBrain = entities === null ? [] : [{ part: 'brain', message: entities }];
      const ofParts = [
        ...retentionNotes(swept(), Date.now()),
        ...upkeep.notes(),
        ...notifying.notes(),
        ...agreement.notes(),
      ];
      const { warning } = store.health();
      const ofStore = warning === undefined ? [] : [{ part: 'store', message: warning }];
      return [...notes, ...ofStore, ...ofBrain, ...ofParts, ...opinionNotes(held, opinion), ...(prober?.notes() ?? [])];
    },
    metrics: () => metrics.render(),
  };
  const limiter = createInvalidKeyLimiter(() => performance.now());
  const {
    app: server,
    listeners,
    front,
  } = createListeningServer({
    logger,
    settings,
    bodyLimit: configuration.limits.bodyBytes,
    tls: configuration.server.tls,
    routes: () => held.inForce.configuration.routes,
    connections: connectionsOf(configuration.limits.connections, openFilesLimit()),
    arrived: drain.arrived,
    isStopping: drain.isDraining,
    answered: metrics.answered,
  });
  const lists = createLists(store.turns);
  const openParams: ApiPorts['openParams'] = ({ sealed, workspace, id, fingerprint }) =>
    sealed === null ? null : secrets.open(sealed, { workspace, effectId: id, fingerprint });
  const probing = createProbe(ports);
  const probe: ApiPorts['probe'] = async (call) => {
    const result = await drain.running(probing(call));
    metrics.probed('caller', outcomeOfProbe(result));
    return result;
  };
  const stillValid: ApiPorts['stillValid'] = (keyId) => authenticator.stillValid(keyId);
  const sessions = createSessions({ store, seals: secrets, stillValid, settings });
  const verifier = createVerifier();
  opened.push(() => verifier.close());
  const passkeys = createPasskeys({ store, seals: secrets, verifier });
  await addControlPlane(
    server,
    {
      store,
      authenticate,
      stillValid,
      sessions,
      passkeys,
      seals: secrets,
      invalidKeys: limiter,
      run,
      preview: (request) => previewEffect(ports, request),
      running: ports.running,
      choosePolicy: (choice, by, why) => reloader.choose(choice, by, why),
      confirmPolicy: (proposal, by) => reloader.confirm(proposal, by),
      showPolicy: (version) => reloader.show(version),
      resolve: (call) => drain.running(resolveEffect(ports, call)),
      probe,
      decideApproval: (call) => drain.running(decideApproval(ports, people, call)),
      openParams,
      directory,
      upstream: (id) => upstreams.settings(id),
      catalog: () => held.inForce.catalog,
      policies: () => ({
        set: held.inForce.policies,
        mode: held.inForce.configuration.policies.mode,
        filesVersion: held.inForce.own.version,
      }),
      profiles: () => allProfiles(held.inForce.configuration.auth.profiles),
      keys: {
        create: (request) => createKeyRecord(request, keyContext()),
        successor: (record) => successorOf(record, keyContext()),
      },
      receipts: {
        view: receiptView,
        disclosure: discloser(secrets),
        jwks: () => signer.jwks(),
        sealExport: signer.sealExport,
      },
      lists,
      brain: { query: (workspace, question) => brain.query(workspace, question), put: brainWriter.put },
      pins,
      pools: () => held.inForce.pools,
      receivers: () => held.inForce.configuration.webhooks,
      settings,
      newId,
      ...health,
    },
    VERSION,
    adminPort !== null,
  );
  await addConsole(server, { sessions, passkeys, store, authenticate, invalidKeys: limiter, settings, directory });
  const mcpControl = mcpControlPorts({
    core: ports,
    opinion,
    held,
    directory,
    brain,
    lists,
    authenticate,
    limiter,
    pauses,
    pins,
    entities,
    signer,
    openParams,
    probe,
    settings,
    health,
    logger,
  });
  await server.register(mcpControlPlugin, { ports: mcpControl });
  const access = createAccessLog((lines) => sink.write(lines));
  opened.push(async () => access.flush());
  const isAccessLogged = configuration.telemetry.accessLog && logger.isLevelEnabled('info');
  const data = proxyPorts({
    core: ports,
    held,
    authenticate,
    limiter,
    pauses,
    upstreams,
    spool,
    run,
    shadowed: metrics.shadowed,
    observed: (would) => metrics.observed(would, 'proxy'),
    access: (line) => {
      if (!line.lasts) metrics.called(line.upstream, line.tool, line.decision, line.durationMs);
      if (isAccessLogged) access.record(line);
    },
    settings,
  });

  await server.register(proxyPlugin, { ports: data, front });
  const mcpGateway = mcpGatewayPorts({
    core: ports,
    proxy: data,
    current,
    upstreams,
    run,
    problemOf: mcpControl.problemOf,
  });
  await server.register(mcpGatewayPlugin, { ports: mcpGateway });
  await server.register(mcpFederatedPlugin, { ports: mcpGateway });

  await takeUp.begin();
  const sweeper = startSweeper(ports, people, spill, SWEEP_EVERY_MS, (error) =>
    logger.error({ err: error }, 'sweeping failed'),
  );
  swept = sweeper.last;
  opened.push(() => sweeper.stop());
  const standing = startProber({
    ports,
    tools: () => held.inForce.configuration.tools,
    workspaces: () => directory.workspaces(),
    probed: (outcome) => metrics.probed('gateway', outcome),
    report: (err) => logger.error({ err }, 'probing failed'),
  });
  prober = standing;
  opened.push(() => standing.stop());
  notifying.start();
  opened.push(() => notifying.stop());
  // After this, a repeated call gets its outcome if this gateway knows it.
  await Promise.race([sweeper.begun, delay(FIRST_DRAIN_MS, undefined, { ref: false })]);
  opened.push(() => drain.finished());
  if (adminPort !== null) {
    const admin = createServer({
      logger,
      settings,
      bodyLimit: configuration.limits.bodyBytes,
      connections: ADMIN_CONNECTIONS,
    });
    opened.push(() => admin.close());
    await addHealth(admin, { store, ...health });
    await listen(admin, host, adminPort);
  }
  opened.push(() => server.close());
  const routesListen: Record<string, string> = {};
  for (const settings of configuration.listeners)
    routesListen[settings.at] = await orTaken(listeners.open(settings), settings.host, settings.port);
  const bound = await listen(server, host, options.port ?? configuration.server.port);
  const listening = configuration.server.tls === null ? bound : bound.replace(/^http:/, 'https:');
  if (origin === '') origin = listening;
  isListening = true;
  if (configuration.store.kind === 'redis')
    opened.push(
      watchNeighbours(directory, pauses, async () => {
        const version = takeUp.isDone() ? await store.policyInForce() : null;
        if (version !== null && version !== held.inForce.policies.version) await reloader.follow();
      }),
    );

  const watch = watchFiles(
    () => held.inForce.files,
    () => void reloader.reload(),
    held.inForce.stamp,
  );
  // A reload may read a later change than the one that triggered it.
  notifyWatch = (stamp) => watch.adopted(stamp);
  opened.push(() => reloader.settled());
  opened.push(() => watch.close());
  logger.info(
    {
      url: listening,
      ...(configuration.listeners.length === 0 ? {} : { listeners: routesListen }),
      version: VERSION,
      policy_version: held.inForce.policies.version,
      durability: store.health().durability,
    },
    takeUp.isDone() ? 'ready' : 'listening; the store is not ready',
  );
  return {
    url: listening,
    get administrativeKey() {
      return administrativeKey;
    },
    hindrance: () => (takeUp.isDone() ? null : (store.health().problem ?? STARTING)),
    ready: takeUp.finished,
    lost: storeWatch.lost,
    async close() {
      await drain.drain();
      const { tools } = held.inForce.configuration;
      const longest = Math.max(0, ...tools.map(({ timeoutMs, streams }) => streams?.totalMs ?? timeoutMs));
      if (await opened.closeWithin(longest + STOP_MS)) return;
      logger.error('not everything came to its end: the gateway ends without it');
      await sink.written();
      process.once('exit', endHard);
    },
    async abandon() {
      server.close().catch(() => undefined);
      await opened.close();
    },
  };
}

/** Turns an error that a person can correct into one that says how. */
async function mendable<T>(opening: Promise<T>): Promise<T> {
  try {
    return await opening;
  } catch (error) {
    if (error instanceof StoreUnavailable || error instanceof KeyFileFault || error instanceof ReceiptKeyFault)
      throw new CommandFailure(error.message);
    throw error;
  }
}

/** The settings that the doors read. */
function settingsOf({ configuration: { server, auth, limits } }: InForce, origin: string) {
  return {
    publicUrl: server.publicUrl ?? origin,
    allowedHosts: server.allowedHosts,
    queryKey: auth.queryKey,
    jsonLimits: { depth: limits.paramsDepth, values: limits.paramsValues },
  };
}

function peopleOf(directory: Directory, store: EffectStore): People {
  return {
    rolesOf: (user) => directory.rolesOf(user),
    // A user whom the configuration does not name has no roles: only the key is known.
    since: async (user) => (directory.isUser(user) ? store.userSince(user) : 0),
    agent: (workspace, id) => directory.agent(workspace, id),
    async key(keyId) {
      const record = await store.key(keyId.slice('key_'.length));
      // A call is only sent while its key is valid. During the overlap of a rotation, the old key still is.
      return record === null || keyState(record, store.now()) !== 'active' ? null : { profile: record.profile };
    },
  };
}

function listen(
  server: { listen(at: { host: string; port: number }): Promise<string> },
  host: string,
  port: number,
): Promise<string> {
  // Node would open a second server for the other address of `localhost`, without the limits of the first.
  const address = host === 'localhost' ? '127.0.0.1' : host;
  return orTaken(server.listen({ host: address, port }), host, port);
}

async function orTaken(listening: Promise<string>, host: string, port: number): Promise<string> {
  try {
    return await listening;
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : null;
    if (code === 'EADDRINUSE')
      throw new CommandFailure(
        `Port ${port} on ${host} is taken. Stop what uses it, or start with --port N (0 lets the system choose).`,
      );
    if (code === 'EACCES' || code === 'EADDRNOTAVAIL')
      throw new CommandFailure(`The gateway may not listen on ${host}:${port}.`);
    throw error;
  }
}
