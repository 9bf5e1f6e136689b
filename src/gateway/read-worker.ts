import { parentPort, workerData } from 'node:worker_threads';
import { answerRead, buffersOfAnswer, type ReadRequest } from './read-files.ts';

/** The thread that reads and checks files, so that the thread that answers calls need not. It answers once and ends. */
const request: ReadRequest = workerData;
const answer = await answerRead(request);
parentPort?.postMessage(
  answer,
  buffersOfAnswer(answer).filter((buffer) => buffer instanceof ArrayBuffer),
);
