import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { CommandFailure, type GatewayOptions } from '../cli/ports.ts';
import type { Configuration } from '../config/configuration.ts';
import { storeFolder } from '../config/resolve-store.ts';
import { StoreUnavailable, type EffectStore, type StoreHealth } from '../effects/store.ts';
import { openSigner, ReceiptKeyFault } from '../receipts/sign.ts';
import { settlementTexts } from '../records/settlement-text.ts';
import { KeyFileFault, makeKeyFile, readKeyFile } from '../secrets/key-file.ts';
import { openSpillJournal } from '../stores/journal/spill.ts';
import { createLogger, logSink } from '../telemetry/logger.ts';
import { openSpool } from '../upstreams/http/spool.ts';
import { VERSION } from '../version.ts';
import { type ExitStack, endHard } from './exit-stack.ts';
import { type Held, readFiles } from './in-force.ts';
import { createForgeryAlarm, createLateKeySeals } from './key-seals.ts';
import { openSecretsFor } from './master-secret.ts';
import { openStoreAndFleet } from './open-store.ts';
import { sealedStore, unmeasured } from './sealed-store.ts';

/** The lowest level that is logged; `null`: as configured. */
const LEVELS = { stderr: null, warnings: 'warn', text: 'warn', none: 'silent' } as const;

/** What everything else of a gateway stands on. */
export type Ground = Awaited<ReturnType<typeof openGround>>;

/**
 * Opens the files, the log, the store, the secrets, the keys of receipts and the journals, in the order of trust.
 * @throws InvalidFiles, CommandFailure
 */
export async function openGround(options: GatewayOptions, opened: ExitStack) {
  const held: Held = { inForce: await readFiles(options.configFile, options.environment) };
  const { configuration, warnings } = held.inForce;
  const { sink, logger } = openLog(options.log, configuration, opened);
  for (const warning of warnings) logger.warn({ warning }, 'configuration');

  const measures = unmeasured();
  const forged = forgeryAlarm(measures, logger);
  const keySeals = createLateKeySeals(forged);
  const { store: unsealed, fleet } = await mendable(openStoreAndFleet(configuration, keySeals));
  const storeWatch = watchStore(unsealed, logger);
  opened.push(() => storeWatch.stop());
  opened.push(() => unsealed.close());
  const secrets = await mendable(openSecretsFor(unsealed, configuration.secrets));
  keySeals.use(secrets.keySeals);
  const store = sealedStore(unsealed, secrets, measures, (row) => forged({ row }, 'forged'));
  const signer = await mendable(
    openSigner({
      keys: { path: configuration.receipts.keysDir, read: readKeyFile, make: makeKeyFile },
      issuer: configuration.receipts.issuer,
      params: configuration.receipts.params,
      store,
      version: VERSION,
      lend: (head, key) => store.signWith(head, key),
    }),
  );
  const folder = storeFolder(configuration.store);
  return {
    held,
    /** As it was at the start; what a reload can change is read from what is held. */
    configuration,
    sink,
    logger,
    /** Where files stand that belong to the store. */
    folder,
    /** Of this process, among all that ever use the store. */
    owner: randomUUID(),
    store,
    /** The same store, for what seals by itself. */
    unsealed,
    fleet,
    /** Resolves when only another process can go on with the store. */
    lost: storeWatch.lost,
    secrets,
    signer,
    /** Silent, until there are metrics. */
    measures,
    spill: await openSpillJournal(join(folder, 'spill'), settlementTexts),
    spool: await openSpool(join(folder, 'uploads')),
  };
}

function openLog(log: GatewayOptions['log'], { telemetry }: Configuration, opened: ExitStack) {
  const sink = logSink();
  opened.push(() => sink.written());
  return { sink, logger: createLogger({ level: LEVELS[log] ?? telemetry.logLevel, sink, isText: log === 'text' }) };
}

function forgeryAlarm(measures: ReturnType<typeof unmeasured>, logger: ReturnType<typeof createLogger>) {
  return createForgeryAlarm({
    count: () => measures.alerted('key_forged'),
    report: (of, why) =>
      why === 'forged'
        ? logger.error(
            { alert: 'key_id' in of ? 'key_forged' : 'record_forged', ...of },
            'this record is not as it was sealed: something else than a gateway wrote to the store',
          )
        : logger.warn(of, 'this was sealed under a master secret that is not named here'),
    elapsed: () => performance.now(),
  });
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

const CHECK_MS = 250;

/**
 * Logs when the store stops being ready, why, and when it is ready again. After a failed sync the process ends without
 * closing its database connections, whatever ends it: closing would copy data inside the store that may not be on the
 * disk.
 */
export function watchStore(store: Pick<EffectStore, 'health'>, logger: ReturnType<typeof createLogger>) {
  let reported: StoreHealth['problem'] = null;
  let fail: (message: string) => void = () => undefined;
  const lost = new Promise<string>((resolve) => {
    fail = resolve;
  });

  function check(): void {
    const { problem } = store.health();
    if (problem?.code === reported?.code && problem?.message === reported?.message) return;
    reported = problem;
    if (problem === null) {
      logger.info('the store is ready again');
      return;
    }
    logger.error({ code: problem.code, reason: problem.message }, 'the store is not ready');
    if (problem.code !== 'store_sync_failed') return;
    process.once('exit', endHard);
    fail(problem.message);
  }

  check();
  const timer = setInterval(check, CHECK_MS).unref();
  return {
    /** Resolves, with a message, when only another process can go on with the store. */
    lost,
    stop(): void {
      check();
      clearInterval(timer);
    },
  };
}
