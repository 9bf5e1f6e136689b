import { createWriteStream, existsSync } from 'node:fs';
import { link, rename, rm, stat } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { type Command, Option } from 'commander';
import { type CliContext, connect, type GatewayAccess, withAccess, withExitCodes } from './command.ts';
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
  withAccess(aboutEffects(command).option('--until <time>', 'RFC 3339, exclusive; now, if absent')).action(
    async ({ out, format, what, ...options }: ExportOptions & GatewayAccess) => {
      const svc = await connect(options);
      const asked = { format, ...(what && { what }), ...filterOf(options) };
      const bytes = await written(await svc.ledger.export(asked), out);
      terminal.out(options.json ? JSON.stringify({ file: out, format, bytes }) : `Written: ${out} (${bytes} bytes)`);
    },
  );
  withExitCodes(command, 'written', 'the gateway refused', 'could not run, or the answer broke off: no file was made');
}

async function written(pieces: AsyncIterable<Uint8Array>, file: string): Promise<number> {
  const isThere = `${file} is there already, and was left as it is: name another file, or remove it first`;
  if (existsSync(file)) throw new CommandFailure(isThere);
  // Under its name there is never a part: comma-separated values would look whole.
  const part = `${file}.${process.pid}.part`;
  try {
    await pipeline(pieces, createWriteStream(part, { flags: 'wx', mode: 0o600, flush: true }));
    const { size } = await stat(part);
    // A file that came meanwhile stays; some file systems have no links.
    await link(part, file).catch((error: unknown) => (existsSync(file) ? Promise.reject(error) : rename(part, file)));
    return size;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') throw new CommandFailure(isThere);
    throw new CommandFailure(
      `nothing was written to ${file}: ${error instanceof Error ? error.message : String(error)}`,
    );
  } finally {
    await rm(part, { force: true });
  }
}
