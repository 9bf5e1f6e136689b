import type { Command } from 'commander';
import { type CliContext, toPort } from './command.ts';

export interface DemoOptions {
  readonly port?: number;
  readonly tour?: true;
  readonly json?: true;
}

/** `svc demo`: gateway and demo upstream in one process, with keys and a line to try. */
export function addDemo(program: Command, context: CliContext): void {
  program
    .command('demo')
    .description('gateway and a demo API in one process on loopback, with keys and a curl line to try')
    .option('--port <n>', 'port of the gateway (default: 8080)', toPort)
    .option('--tour', 'play an agent against a fresh store, show every decision, and end')
    .option('--json', 'print one JSON line')
    .action(async (options: DemoOptions) => {
      const { runDemo } = await import('../../packages/demo/src/demo.ts');
      await runDemo(options, context);
    });
}
