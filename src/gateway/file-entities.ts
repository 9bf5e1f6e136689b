import type { Logger } from 'pino';
import type { FileLoader } from '../brain/load-files.ts';
import type { PackedEntities } from '../brain/packed-entities.ts';
import type { Configuration } from '../config/configuration.ts';
import { InvalidFiles } from '../diagnostics/invalid-files.ts';
import type { InForce } from './in-force.ts';

/** If the store was away, the next try comes after this long, ms. */
const RETRY_MS = 1000;

/** Brings the store to what the files of the company brain say, beside the calls. */
export interface FileEntities {
  /** Takes over what files say now. @returns what is in force, without the entities: they are kept in the store only */
  take(next: InForce): InForce;
  /** Puts into the store what was taken over, and from then on does so by itself. @throws InvalidFiles, StoreUnavailable */
  begin(): Promise<void>;
  /** Why the store does not say what the files say; `null` where it does, or will in a moment. */
  problem(): string | null;
  stop(): Promise<void>;
}

interface Waiting {
  readonly entities: PackedEntities;
  readonly workspaces: Configuration['workspaces'];
}

/** @param parts.isFleet whether other gateways may have read in newer files than those that are here at the start */
export function createFileEntities(parts: {
  readonly loader: Pick<FileLoader, 'load'>;
  readonly isFleet: boolean;
  readonly logger: Logger;
  readonly alert: () => void;
}): FileEntities {
  const { loader, logger } = parts;
  let waiting: Waiting | null = null;
  let problem: string | null = null;
  let hasBegun = false;
  let isStopping = false;
  let running: Promise<void> | null = null;
  let retry: NodeJS.Timeout | undefined;

  /** What is taken over meanwhile comes next. */
  async function load(older: 'load' | 'leave'): Promise<void> {
    while (waiting !== null && !isStopping) {
      const now: Waiting = waiting;
      const { entities, workspaces } = now;
      for (const { id } of workspaces) {
        const loaded = await loader.load(id, entities.byWorkspace.get(id) ?? null, older).catch((error: unknown) => {
          // Too much is too much until files or limits change.
          if (error instanceof InvalidFiles && waiting === now) waiting = null;
          throw error;
        });
        switch (loaded.kind) {
          case 'same':
            break;
          case 'older':
            logger.warn(
              { workspace: id },
              'the files of the company brain here were read in before, and others since; those stay. Change them while a gateway runs to put them back',
            );
            break;
          case 'loaded':
            logger.info(
              { workspace: id, put: loaded.put, removed: loaded.removed },
              'the files of the company brain were read in',
            );
            break;
        }
      }
      if (waiting === now) waiting = null;
      problem = null;
    }
  }

  function goOn(): void {
    if (!hasBegun || isStopping || running !== null) return;
    clearTimeout(retry);
    running = load('load').then(
      () => {
        running = null;
        if (waiting !== null) goOn();
      },
      (error: unknown) => {
        running = null;
        if (isStopping) return;
        const detail = error instanceof Error ? error.message : 'it could not be written';
        logger.error({ detail }, 'the files of the company brain are not in the store');
        if (problem === null) parts.alert();
        problem = 'The files of the company brain are not in the store. The log says why.';
        if (waiting !== null) retry = setTimeout(goOn, RETRY_MS).unref();
      },
    );
  }

  return {
    take(next) {
      const { packed, digest } = next.entities;
      if (packed === null) return next;
      waiting = { entities: packed, workspaces: next.configuration.workspaces };
      goOn();
      return { ...next, entities: { digest, packed: null } };
    },
    async begin() {
      await load(parts.isFleet ? 'leave' : 'load');
      hasBegun = true;
      goOn();
    },
    problem: () => problem,
    async stop() {
      isStopping = true;
      clearTimeout(retry);
      await running;
    },
  };
}
