import { parentPort } from 'node:worker_threads';
import { answerRead, buffersOfAnswer, type ReadRequest } from './read-files.ts';
import { answerSuggest, type SuggestRequest } from './suggest-rules.ts';

/** The thread that reads and checks files, so that the thread that answers calls need not. It answers once and ends. */
parentPort?.once('message', (request: ReadRequest | SuggestRequest) => void answer(request));

async function answer(request: ReadRequest | SuggestRequest): Promise<void> {
  if ('groups' in request) {
    parentPort?.postMessage(await answerSuggest(request));
    return;
  }
  const read = await answerRead(request);
  parentPort?.postMessage(
    read,
    buffersOfAnswer(read).filter((buffer) => buffer instanceof ArrayBuffer),
  );
}
