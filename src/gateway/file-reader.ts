import { threadBeside } from '../home.ts';
import { Worker } from 'node:worker_threads';
import { answerRead, type ReadAnswer, type ReadRequest } from './read-files.ts';
import { answerSuggest, type SuggestAnswer, type SuggestRequest } from './suggest-rules.ts';

/** Reading and checking the files is given up after this long. */
const LONGEST_MS = 120_000;
/** A thread for the next files is begun so long after the last ones, ms. */
const SPARE_AFTER_MS = 2_000;
/** What a thread has for what soon is garbage, MB. V8's own is 48, and a spare one keeps all that its start took. */
const MOST_YOUNG_MB = 6;

/** The files could not be read. Their content is not the cause. */
export class FilesNotRead extends Error {}

/** Reads and checks files outside the thread that answers calls. */
export class FileReader {
  readonly #options;
  readonly #entry;
  readonly #longestMs;
  readonly #spareAfterMs;
  readonly #running = new Set<Worker>();
  #spare: Worker | null = null;
  #preparing: NodeJS.Timeout | undefined;
  #isClosed = false;

  /**
   * @param options.entry the program of the thread; `null`: read in this thread, if no other can run these sources
   * @param options.spare whether a thread waits for the next files with its modules loaded: that takes longer than to read them
   */
  constructor(
    options: {
      readonly entry?: URL | null;
      readonly longestMs?: number;
      readonly spare?: boolean;
      readonly spareAfterMs?: number;
    } = {},
  ) {
    this.#options = options;
    // `null` is an entry too.
    this.#entry = options.entry === undefined ? threadBeside(import.meta.url, 'read-worker') : options.entry;
    this.#longestMs = options.longestMs ?? LONGEST_MS;
    this.#spareAfterMs = options.spareAfterMs ?? SPARE_AFTER_MS;
    if (this.#entry !== null) this.#prepareLater(this.#entry);
  }

  /** @throws FilesNotRead if the thread died or did not answer in time */
  read(request: ReadRequest): Promise<ReadAnswer> {
    return this.#entry === null ? answerRead(request) : this.#inThread(this.#entry, request);
  }

  /** @throws FilesNotRead if the thread died or did not answer in time */
  suggest(request: SuggestRequest): Promise<SuggestAnswer> {
    return this.#entry === null ? answerSuggest(request) : this.#inThread(this.#entry, request);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#preparing);
    await Promise.all(
      [...this.#running, ...(this.#spare === null ? [] : [this.#spare])].map((worker) => worker.terminate()),
    );
  }

  /** The next thread is begun when what was read has been taken on. */
  #prepareLater(program: URL): void {
    clearTimeout(this.#preparing);
    if (this.#options.spare === true && !this.#isClosed)
      this.#preparing = setTimeout(() => this.#prepare(program), this.#spareAfterMs).unref();
  }

  #prepare(program: URL): void {
    if (this.#spare !== null) return;
    const worker = begin(program);
    if (worker === null) return;
    worker.unref();
    // One that dies is no loss: the next read begins a thread of its own.
    worker.on('error', () => undefined);
    worker.once('exit', () => {
      if (this.#spare === worker) this.#spare = null;
    });
    this.#spare = worker;
  }

  #inThread<Answer>(program: URL, request: ReadRequest | SuggestRequest): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const worker = this.#spare ?? begin(program);
      this.#spare = null;
      if (worker === null) return reject(new FilesNotRead('The system has no thread for the files now'));
      worker.ref();
      this.#running.add(worker);
      const end = (): void => {
        clearTimeout(timer);
        this.#running.delete(worker);
        void worker.terminate();
        this.#prepareLater(program);
      };
      const fail = (message: string): void => {
        end();
        reject(new FilesNotRead(message));
      };
      const timer = setTimeout(
        () => fail(`The files were not read and checked within ${this.#longestMs / 1000} s`),
        this.#longestMs,
      ).unref();
      worker.once('message', (answer: Answer) => {
        end();
        resolve(answer);
      });
      worker.once('error', (error) =>
        fail(`The thread that reads the files failed: ${error instanceof Error ? error.message : 'unknown'}`),
      );
      worker.once('exit', (code) => fail(`The thread that reads the files ended with code ${code}`));
      worker.postMessage(request);
    });
  }
}

/** @returns `null` where the system has none to give now */
function begin(program: URL): Worker | null {
  try {
    return new Worker(program, { name: 'files', resourceLimits: { maxYoungGenerationSizeMb: MOST_YOUNG_MB } });
  } catch {
    return null;
  }
}
