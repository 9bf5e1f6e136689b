import { parentPort } from 'node:worker_threads';
import { type VerifyRequest, verify } from './verify.ts';

/** The thread that checks what authenticators have signed: its library takes longer to load than calls may wait. */
parentPort?.on('message', ({ ticket, request }: { readonly ticket: number; readonly request: VerifyRequest }) => {
  void verify(request).then((verified) => parentPort?.postMessage({ ticket, verified }));
});
