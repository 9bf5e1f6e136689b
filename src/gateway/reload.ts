import type { Logger } from 'pino';
import { unchangeable } from '../config/changes.ts';
import { InvalidFiles } from '../diagnostics/invalid-files.ts';
import type { JsonObject } from '../json/value.ts';
import { INSTALLATION, type LedgerKind } from '../effects/model/ledger.ts';
import { type EffectStore, StoreUnavailable } from '../effects/store.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { type FileReader, FilesNotRead } from './file-reader.ts';
import { activate, FilesRefused, type InForce, rereadFiles } from './in-force.ts';

/** If files could not be put in force because the store was away, the next try comes after this long. */
const RETRY_MS = 1_000;
/** If a thread died while it read files, the wait before the next try doubles up to this. */
const LONGEST_RETRY_MS = 60_000;

/** Puts the current files in force. Broken files change nothing, and the log reports them as an error. */
export interface Reloader {
  /** Reloads run one after the other. Resolves when this one is done. */
  reload(): Promise<void>;
  /** Whether the current files were refused, or could not be read at all and are tried again. */
  behind(): 'refused' | 'unread' | null;
  /** Resolves when no reload is running. */
  settled(): Promise<void>;
}

/** @param parts.adopt switches everything to what is in force now */
export function createReloader(parts: {
  readonly configFile: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly store: EffectStore;
  readonly current: () => InForce;
  readonly adopt: (next: InForce) => void;
  /** Called with where the files are and their current state, if their content is what is in force. */
  readonly noted: (same: InForce) => void;
  readonly reader: FileReader;
  readonly owner: string;
  readonly logger: Logger;
  readonly metrics: Metrics;
}): Reloader {
  const { store, current, logger } = parts;
  let running = Promise.resolve();
  let behind: 'refused' | 'unread' | null = null;
  let retryMs = RETRY_MS;
  let isStopping = false;
  let retry: NodeJS.Timeout | null = null;

  const record = (kind: LedgerKind, data: JsonObject): Promise<void> =>
    store.append(INSTALLATION, [{ kind, effectId: null, actor: { type: 'gateway', id: parts.owner }, data }]);

  async function reload(): Promise<void> {
    if (isStopping) return;
    try {
      const before = current();
      const found = await rereadFiles(parts.reader, parts.configFile, parts.environment, before);
      const next = found.inForce;
      if (found.kind === 'same') {
        parts.noted(next);
        caughtUp();
        return;
      }
      for (const name of unchangeable(before.configuration, next.configuration))
        logger.warn({ setting: name }, 'changes at the next start only');
      await activate(store, next);
      await store.seeUsers(next.configuration.users.map(({ id }) => id));
      parts.adopt(next);
      caughtUp();
      for (const warning of next.warnings) logger.warn({ warning }, 'configuration');
      logger.info(
        { policy_version: next.policies.version, rules: next.policies.rules.length },
        'configuration and policies reloaded',
      );
      await record('policy.loaded', { version: next.policies.version });
    } catch (error) {
      if (isStopping) return;
      if (error instanceof FilesNotRead) return unread(error);
      behind = 'refused';
      retryMs = RETRY_MS;
      const detail =
        error instanceof FilesRefused || error instanceof InvalidFiles || error instanceof StoreUnavailable
          ? error.message
          : 'it could not be read';
      logger.error({ detail }, 'the new configuration is not in force; the last good one is');
      parts.metrics.alerted('configuration_rejected');
      await record('policy.rejected', { in_force: current().policies.version }).catch(() => undefined);
      if (error instanceof StoreUnavailable) later(RETRY_MS);
    }
  }

  function caughtUp(): void {
    behind = null;
    retryMs = RETRY_MS;
  }

  /** The files' content is not the cause: the next try can succeed without a change. */
  function unread({ message }: FilesNotRead): void {
    behind = 'unread';
    logger.error({ detail: message, retry_after_ms: retryMs }, 'the files could not be read; they are tried again');
    parts.metrics.alerted('configuration_rejected');
    later(retryMs);
    retryMs = Math.min(2 * retryMs, LONGEST_RETRY_MS);
  }

  function later(ms: number): void {
    retry = setTimeout(() => void reloadNext(), ms).unref();
  }

  function reloadNext(): Promise<void> {
    if (retry !== null) clearTimeout(retry);
    retry = null;
    running = running.then(reload);
    return running;
  }

  return {
    reload: reloadNext,
    behind: () => behind,
    async settled() {
      isStopping = true;
      await parts.reader.close();
      await running;
      if (retry !== null) clearTimeout(retry);
    },
  };
}
