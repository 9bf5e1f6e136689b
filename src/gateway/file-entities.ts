import type { Logger } from 'pino';
import type { FileLoader } from '../brain/load-files.ts';
import type { PackedEntities } from '../brain/packed-entities.ts';
import type { Configuration } from '../config/configuration.ts';
import { InvalidFiles } from '../diagnostics/render.ts';
import type { InForce } from './in-force.ts';

/** If the store was away, the next try comes after this long, ms. */
const RETRY_MS = 1000;

interface Waiting {
  readonly entities: PackedEntities;
  readonly workspaces: Configuration['workspaces'];
}

/** Brings the store to what the files of the company brain say, beside the calls. */
export class FileEntities {
  readonly #parts;
  readonly #logger;
  #waiting: Waiting | null = null;
  #problem: string | null = null;
  #hasBegun = false;
  #isStopping = false;
  #running: Promise<void> | null = null;
  #retry: NodeJS.Timeout | undefined;

  /** @param parts.isFleet whether other gateways may have read in newer files than those that are here at the start */
  constructor(parts: {
    readonly loader: Pick<FileLoader, 'load'>;
    readonly isFleet: boolean;
    readonly logger: Logger;
    readonly alert: () => void;
  }) {
    this.#parts = parts;
    this.#logger = parts.logger;
  }

  /** Takes over what files say now. @returns what is in force, without the entities: they are kept in the store only */
  take(next: InForce): InForce {
    const { packed, digest } = next.entities;
    if (packed === null) return next;
    this.#waiting = { entities: packed, workspaces: next.configuration.workspaces };
    this.#goOn();
    return { ...next, entities: { digest, packed: null } };
  }

  /** Puts into the store what was taken over, and from then on does so by itself. @throws InvalidFiles, StoreUnavailable */
  async begin(): Promise<void> {
    await this.#load(this.#parts.isFleet ? 'leave' : 'load');
    this.#hasBegun = true;
    this.#goOn();
  }

  /** Why the store does not say what the files say; `null` where it does, or will in a moment. */
  problem(): string | null {
    return this.#problem;
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    clearTimeout(this.#retry);
    await this.#running;
  }

  /** What is taken over meanwhile comes next. */
  async #load(older: 'load' | 'leave'): Promise<void> {
    while (this.#waiting !== null && !this.#isStopping) {
      const now: Waiting = this.#waiting;
      const { entities, workspaces } = now;
      for (const { id } of workspaces) {
        const loaded = await this.#parts.loader
          .load(id, entities.byWorkspace.get(id) ?? null, older)
          .catch((error: unknown) => {
            // Too much is too much until files or limits change.
            if (error instanceof InvalidFiles && this.#waiting === now) this.#waiting = null;
            throw error;
          });
        switch (loaded.kind) {
          case 'same':
            break;
          case 'older':
            this.#logger.warn(
              { workspace: id },
              'the files of the company brain here were read in before, and others since; those stay. Change them while a gateway runs to put them back',
            );
            break;
          case 'loaded':
            this.#logger.info(
              { workspace: id, put: loaded.put, removed: loaded.removed },
              'the files of the company brain were read in',
            );
            break;
        }
      }
      if (this.#waiting === now) this.#waiting = null;
      this.#problem = null;
    }
  }

  #goOn(): void {
    if (!this.#hasBegun || this.#isStopping || this.#running !== null) return;
    clearTimeout(this.#retry);
    this.#running = this.#load('load').then(
      () => {
        this.#running = null;
        if (this.#waiting !== null) this.#goOn();
      },
      (error: unknown) => {
        this.#running = null;
        if (this.#isStopping) return;
        const detail = error instanceof Error ? error.message : 'it could not be written';
        this.#logger.error({ detail }, 'the files of the company brain are not in the store');
        if (this.#problem === null) this.#parts.alert();
        this.#problem = 'The files of the company brain are not in the store. The log says why.';
        if (this.#waiting !== null) this.#retry = setTimeout(() => this.#goOn(), RETRY_MS).unref();
      },
    );
  }
}
