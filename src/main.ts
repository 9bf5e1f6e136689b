import { runCli } from './cli/main.ts';
import { VERSION } from './version.ts';

/**
 * The composition root: gives the command line what its commands need. Most commands speak to a gateway that runs, and
 * need none of it: each part is loaded when a command asks for it.
 * @param argv the words after `svc`
 * @returns the exit code
 */
export function main(argv: readonly string[]): Promise<number> {
  return runCli(argv, VERSION, {
    startGateway: async (options) => (await import('./gateway/last-line.ts')).startOwnProcess(options),
    createKey: async (options) => (await offlineKeys()).createKey(options),
    listKeys: async (options) => (await offlineKeys()).listKeys(options),
    revokeKey: async (options, id) => (await offlineKeys()).revokeKey(options, id),
    rotateKey: async (options, id, overlapMs) => (await offlineKeys()).rotateKey(options, id, overlapMs),
    inspectStore: async (options) => (await import('./gateway/offline.ts')).inspectStore(options),
    probeUpstream: async (upstream, timeoutMs) =>
      (await import('./upstreams/http/probe.ts')).probeUpstream(upstream, timeoutMs),
    readMcpServer: async (upstream) => (await import('./upstreams/mcp/read-once.ts')).readServerOnce(upstream),
    acceptLoss: async (options) => (await operateStore()).acceptLoss(options),
    acceptClock: async (options) => (await operateStore()).acceptClock(options),
    recoverLost: async (options, gateway) => (await operateStore()).recoverLost(options, gateway),
    checkStore: async (options) => (await operateStore()).checkStore(options),
    backUpStore: async (options, to) => (await backups()).backUpStore(options, to),
    restoreStore: async (options, from, replace) => (await backups()).restoreStore(options, from, replace),
    checkFormat: async (options) => (await storeFormat()).checkFormat(options),
  });
}

const offlineKeys = () => import('./gateway/offline-keys.ts');
const backups = () => import('./gateway/backups.ts');
const operateStore = () => import('./gateway/operate-store.ts');
const storeFormat = () => import('./gateway/store-format.ts');
