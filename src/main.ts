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
    startGateway: (options) => startGateway(options),
    createKey,
    inspectStore,
    acceptLoss,
    recoverLost,
    checkStore,
    startDemoUpstream: () => startPaymentsUpstream({ port: 0 }),
  });
}
