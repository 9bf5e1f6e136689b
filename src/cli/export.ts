import { createWriteStream, existsSync } from 'node:fs';
import { link, rename, rm } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { type Command, Option } from 'commander';
import { type CliContext, connect, type GatewayAccess, talksToGateway, toTime } from './command.ts';
import { aboutEffects, type FoundBy, filterOf } from './ledger.ts';
import { CommandFailure } from './ports.ts';

interface ExportOptions extends Omit<GatewayAccess, 'json'>, Omit<FoundBy, 'kind' | 'actor' | 'effect'> {
  readonly format: 'jsonl' | 'csv' | 'bundle';
  readonly what?: 'effects' | 'receipts' | 'events';
  readonly out: string;
}

/** `svc export`: effects, receipts and events into a file, as fast as it is written. */
export function addExport(program: Command, { terminal }: CliContext): void {
  const command = program
    .command('export')
    .description('write effects, receipts and events to a file; a bundle is checked offline with svc verify')
    .requiredOption('--out <file>', 'the file, which must not be there yet')
    .addOption(
      new Option('--format <format>', 'JSON lines, comma-separated values, or JSON lines with keys and a signed end')
        .choices(['jsonl', 'csv', 'bundle'])
        .default('bundle'),
    )
    .addOption(new Option('--what <what>', 'only these').choices(['effects', 'receipts', 'events']));
  talksToGateway(
    aboutEffects(command).option(
      '--until <time>',
      'a time (RFC 3339) or a date in UTC, exclusive; now, if absent',
      toTime,
    ),
  ).action(async ({ out, format, what, ...options }: ExportOptions & GatewayAccess) => {
    const { ledger } = await connect(options);
    const bytes = await written(() => ledger.export({ format, ...(what && { what }), ...filterOf(options) }), out);
    terminal.out(options.json ? JSON.stringify({ file: out, format, bytes }) : `Written: ${out} (${bytes} bytes)`);
  });
}

async function written(ask: () => Promise<AsyncIterable<Uint8Array>>, file: string): Promise<number> {
  const isThere = `${file} is there already, and was left as it is: name another file, or remove it first`;
  if (existsSync(file)) throw new CommandFailure(isThere);
  // One that is asked for and not taken would be in the way of the user's next.
  const pieces = await ask();
  // Under its name there is never a part: comma-separated values would look whole.
  const part = `${file}.${process.pid}.part`;
  const out = createWriteStream(part, { flags: 'wx', mode: 0o600, flush: true });
  try {
    await pipeline(pieces, out);
    // A file that came meanwhile stays; some file systems have no links.
    await link(part, file).catch((error: unknown) => (existsSync(file) ? Promise.reject(error) : rename(part, file)));
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') throw new CommandFailure(isThere);
    const why = error instanceof Error ? error.message : String(error);
    throw new CommandFailure(`nothing was written to ${file}: ${why}`);
  } finally {
    await rm(part, { force: true });
  }
  return out.bytesWritten;
}
