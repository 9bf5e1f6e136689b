import { Worker } from 'node:worker_threads';
import { answerRead, type ReadAnswer, type ReadRequest } from './read-files.ts';

/** Reading and checking the files is given up after this long. */
const LONGEST_MS = 120_000;

/** Reads and checks files outside the thread that answers calls. */
export interface FileReader {
  /** @throws FilesNotRead if the thread died or did not answer in time */
  read(request: ReadRequest): Promise<ReadAnswer>;
  /** Stops a read that is running. */
  close(): Promise<void>;
}

/** The files could not be read. Their content is not the cause. */
export class FilesNotRead extends Error {}

/** @param options.entry the program of the thread; `null`: read in this thread, if no other can run these sources */
export function createFileReader(
  options: { readonly entry: URL | null; readonly longestMs: number } = {
    entry: workerEntry(),
    longestMs: LONGEST_MS,
  },
): FileReader {
  const { entry, longestMs } = options;
  const running = new Set<Worker>();
  return {
    read: (request) =>
      entry === null
        ? answerRead(request)
        : new Promise((resolve, reject) => {
            const worker = new Worker(entry, { workerData: request, name: 'files' });
            running.add(worker);
            const end = (): void => {
              clearTimeout(timer);
              running.delete(worker);
              void worker.terminate();
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
          }),
    async close() {
      await Promise.all([...running].map((worker) => worker.terminate()));
    },
  };
}

/** The compiled thread beside this file, or the source if Node runs TypeScript. */
function workerEntry(): URL | null {
  if (import.meta.url.endsWith('.js')) return new URL('./read-worker.js', import.meta.url);
  return 'typescript' in process.features && process.features.typescript === 'strip'
    ? new URL('./read-worker.ts', import.meta.url)
    : null;
}
