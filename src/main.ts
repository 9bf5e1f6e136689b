import { runCli } from './cli/main.ts';
import { startPaymentsUpstream } from './demo/payments-upstream.ts';
import { inspectStore } from './gateway/offline.ts';
import { createKey, listKeys, revokeKey, rotateKey } from './gateway/offline-keys.ts';
import { acceptClock, acceptLoss, checkStore, recoverLost } from './gateway/operate-store.ts';
import { checkFormat, migrateStore } from './gateway/store-format.ts';
import { startGateway } from './gateway/start.ts';
import { probeUpstream } from './upstreams/http/probe.ts';
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
    listKeys,
    revokeKey,
    rotateKey,
    inspectStore,
    probeUpstream,
    acceptLoss,
    acceptClock,
    recoverLost,
    checkStore,
    checkFormat,
    migrateStore,
    startDemoUpstream: () => startPaymentsUpstream({ port: 0 }),
  });
}
