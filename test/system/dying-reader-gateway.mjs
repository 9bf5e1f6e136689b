// A gateway for tests whose threads that read files die while there is a file `dies` beside its configuration: each
// takes a character off it.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { dirname, join } from 'node:path';
import { parseArgs } from 'node:util';
import threads from 'node:worker_threads';

const { values } = parseArgs({
  args: process.argv.slice(3),
  options: { config: { type: 'string' }, port: { type: 'string' } },
});

const deaths = join(dirname(values.config), 'dies');
threads.Worker = class extends threads.Worker {
  constructor(entry, options) {
    const left = existsSync(deaths) ? readFileSync(deaths, 'utf8').length : 0;
    const dies = options?.name === 'files' && left > 0;
    if (dies) writeFileSync(deaths, '.'.repeat(left - 1));
    super(dies ? new URL('data:text/javascript,process.exit(3)') : entry, options);
  }
};
syncBuiltinESMExports();

const { startGateway } = await import('../../dist/bundle/gateway.js');
const gateway = await startGateway({
  configFile: values.config,
  environment: {},
  port: Number(values.port),
  log: 'stderr',
  firstKey: 'file',
});
process.stdout.write(`${JSON.stringify({ event: 'ready', url: gateway.url })}\n`);
process.on('SIGTERM', () => {
  void gateway.close().then(() => process.exit(0));
});
