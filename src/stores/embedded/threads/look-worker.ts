import { workerData } from 'node:worker_threads';
import { loadDriver } from '../driver.ts';
import type { ReaderData } from './channel.ts';
import { openLooks } from '../looks.ts';
import { serve } from './serve.ts';

/** The thread that reads for people: looks, and messages with requests and replies. */

const { path }: ReaderData = workerData;
const looks = openLooks(path, await loadDriver());

serve(looks.handlers, {
  // It has no clock: the thread that writes says what time it is.
  now: () => 0,
  letGo: looks.close,
  async close() {
    looks.close();
    return true;
  },
});
