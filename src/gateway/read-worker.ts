import { parentPort } from 'node:worker_threads';
import { answerRead, buffersOfAnswer, type ReadRequest } from './read-files.ts';

/** The thread that reads and checks files, so that the thread that answers calls need not. It answers once and ends. */
parentPort?.once('message', (request: ReadRequest) => void answer(request));

async function answer(request: ReadRequest): Promise<void> {
  const read = await answerRead(request);
  parentPort?.postMessage(
    read,
    buffersOfAnswer(read).filter((buffer) => buffer instanceof ArrayBuffer),
  );
}
