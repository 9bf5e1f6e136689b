import { Worker } from 'node:worker_threads';
import { answerRead, type ReadAnswer, type ReadRequest } from './read-files.ts';

/** Files that take longer to read and check are given up. */
const LONGEST_MS = 120_000;

/** Reads and checks files beside the thread that answers calls. */
export interface FileReader {
  /** @throws FilesNotRead where the thread died or did not answer in time */
  read(request: ReadRequest): Promise<ReadAnswer>;
  /** Gives up what is being read. */
  close(): Promise<void>;
}

/** The files could not be read. Their content is not at fault. */
export class FilesNotRead extends Error {}

/** @param options.entry the program of the thread; `null`: this thread reads, where no other can run these sources */
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

/** The compiled thread beside this file; the source itself where Node runs TypeScript. */
function workerEntry(): URL | null {
  if (import.meta.url.endsWith('.js')) return new URL('./read-worker.js', import.meta.url);
  return 'typescript' in process.features && process.features.typescript === 'strip'
    ? new URL('./read-worker.ts', import.meta.url)
    : null;
}
