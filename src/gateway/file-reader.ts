import { Worker } from 'node:worker_threads';
import { answerRead, type ReadAnswer, type ReadRequest } from './read-files.ts';

/** Reading and checking the files is given up after this long. */
const LONGEST_MS = 120_000;
/** A thread for the next files is begun so long after the last ones, ms. */
const SPARE_AFTER_MS = 2_000;

/** Reads and checks files outside the thread that answers calls. */
export interface FileReader {
  /** @throws FilesNotRead if the thread died or did not answer in time */
  read(request: ReadRequest): Promise<ReadAnswer>;
  /** Stops a read that is running. */
  close(): Promise<void>;
}

/** The files could not be read. Their content is not the cause. */
export class FilesNotRead extends Error {}

/**
 * @param options.entry the program of the thread; `null`: read in this thread, if no other can run these sources
 * @param options.spare whether a thread waits for the next files with its modules loaded: that takes longer than to read them
 */
export function createFileReader(
  options: {
    readonly entry?: URL | null;
    readonly longestMs?: number;
    readonly spare?: boolean;
    readonly spareAfterMs?: number;
  } = {},
): FileReader {
  const { entry = workerEntry(), longestMs = LONGEST_MS, spareAfterMs = SPARE_AFTER_MS } = options;
  const running = new Set<Worker>();
  let spare: Worker | null = null;
  let preparing: NodeJS.Timeout | undefined;
  let isClosed = false;

  /** The next thread is begun when what was read has been taken on. */
  function prepareLater(program: URL): void {
    clearTimeout(preparing);
    if (options.spare === true && !isClosed) preparing = setTimeout(() => prepare(program), spareAfterMs).unref();
  }

  function prepare(program: URL): void {
    if (spare !== null) return;
    const worker = begin(program);
    if (worker === null) return;
    worker.unref();
    // One that dies is no loss: the next read begins a thread of its own.
    worker.on('error', () => undefined);
    worker.once('exit', () => {
      if (spare === worker) spare = null;
    });
    spare = worker;
  }

  function readInThread(program: URL, request: ReadRequest): Promise<ReadAnswer> {
    return new Promise((resolve, reject) => {
      const worker = spare ?? begin(program);
      spare = null;
      if (worker === null) return reject(new FilesNotRead('The system has no thread for the files now'));
      worker.ref();
      running.add(worker);
      const end = (): void => {
        clearTimeout(timer);
        running.delete(worker);
        void worker.terminate();
        prepareLater(program);
      };
      const fail = (message: string): void => {
        end();
        reject(new FilesNotRead(message));
      };
      const timer = setTimeout(
        () => fail(`The files were not read and checked within ${longestMs / 1000} s`),
        longestMs,
      ).unref();
      worker.once('message', (answer: ReadAnswer) => {
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

  if (entry !== null) prepareLater(entry);
  return {
    read: (request) => (entry === null ? answerRead(request) : readInThread(entry, request)),
    async close() {
      isClosed = true;
      clearTimeout(preparing);
      await Promise.all([...running, ...(spare === null ? [] : [spare])].map((worker) => worker.terminate()));
    },
  };
}

/** @returns `null` where the system has none to give now */
function begin(program: URL): Worker | null {
  try {
    return new Worker(program, { name: 'files' });
  } catch {
    return null;
  }
}

/** The compiled thread beside this file, or the source if Node runs TypeScript. */
function workerEntry(): URL | null {
  if (import.meta.url.endsWith('.js')) return new URL('./read-worker.js', import.meta.url);
  return 'typescript' in process.features && process.features.typescript === 'strip'
    ? new URL('./read-worker.ts', import.meta.url)
    : null;
}
