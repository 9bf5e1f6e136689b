import type { Command } from 'commander';
import { CommandFailure } from './ports.ts';
import { type CliContext, namingConfig, toPort } from './command.ts';

/** `svc start`: the gateway, in the foreground, until SIGINT or SIGTERM, or until the disk fails to sync. */
export function addStart(program: Command, { ports, terminal }: CliContext): void {
  program
    .command('start')
    .description('run the gateway; logs go to standard error, a "ready" line to standard output')
    .requiredOption('--config <file>', 'the configuration')
    .option('--port <n>', 'overrides server.port; 0 lets the system choose', toPort)
    .option('--json', 'has no effect here: the output is JSON lines anyway')
    .action(async (options: { readonly config: string; readonly port?: number }) => {
      const stopped = terminal.stopped();
      const gateway = await ports.startGateway({
        configFile: options.config,
        environment: {},
        port: options.port ?? null,
        log: 'stderr',
        firstKey: terminal.interactive ? 'shown' : 'file',
      });
      const first = gateway.administrativeKey;
      if (first !== null && 'key' in first) terminal.err(`The first administrative key, shown this once: ${first.key}`);
      else if (first !== null)
        terminal.err(
          JSON.stringify({ level: 'info', file: first.file, msg: 'the first administrative key is in this file' }),
        );
      const { url } = gateway;
      const hindrance = gateway.hindrance();
      const message = namingConfig(hindrance?.message ?? '', options.config);
      if (hindrance !== null)
        terminal.out(JSON.stringify({ event: 'listening', url, problem: { ...hindrance, message } }));
      void gateway.ready.then(() => terminal.out(JSON.stringify({ event: 'ready', url })));
      const lost = await Promise.race([stopped.then(() => null), gateway.lost]);
      await gateway.close();
      if (lost !== null) throw new CommandFailure(lost);
    });
}
