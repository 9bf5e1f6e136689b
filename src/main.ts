import { setFlagsFromString } from 'node:v8';
import { runCli } from './cli/main.ts';
import { startPaymentsUpstream } from './demo/payments-upstream.ts';
import { createKey, inspectStore } from './gateway/offline.ts';
import { acceptLoss, checkStore, recoverLost } from './gateway/operate-store.ts';
import { startGateway } from './gateway/start.ts';
import { VERSION } from './version.ts';

/**
 * The composition root: gives the command line what its commands need.
 * @param argv the words after `svc`
 * @returns the exit code
 */
export function main(argv: readonly string[]): Promise<number> {
  return runCli(argv, VERSION, {
    startGateway(options) {
      // What is young here is a few MB, collected some times a second: the threads that V8 has help with it use more
      // time waking up and waiting than they save, a twentieth of what a call costs on two cores. V8 looks at this flag
      // at each collection, so that it may be set while the program runs.
      setFlagsFromString('--no-parallel-scavenge');
      return startGateway(options);
    },
    createKey,
    inspectStore,
    acceptLoss,
    recoverLost,
    checkStore,
    startDemoUpstream: () => startPaymentsUpstream({ port: 0 }),
  });
}
