import type { Command } from 'commander';
import { createReadStream } from 'node:fs';
import { open } from 'node:fs/promises';
import { printable } from '../diagnostics/render.ts';
import { type JsonObject, isJsonArray, isJsonObject, type Json } from '../json/value.ts';
import { createBundleStory } from '../receipts/bundle-story.ts';
import { receiptKeyOf } from '../receipts/jwk.ts';
import { BUNDLE_MARK, MOST_LINE, verifyBundle } from '../receipts/verify-bundle.ts';
import { bundleReport, verifyReport, type VerifyReport } from '../receipts/verify-report.ts';
import { type CliContext, readText, connect, type GatewayAccess, talksToGateway } from './command.ts';
import { CommandFailure, fetchFailure, WrongUsage } from './ports.ts';
import { json, styled, table } from './terminal.ts';

interface VerifyOptions {
  readonly trust?: string;
  readonly disclosure?: string;
  readonly explain?: true;
  readonly json?: true;
}

/** `svc verify`: a receipt, or a bundle of what a gateway exported, offline. */
export function addVerify(program: Command, { terminal, exit }: CliContext): void {
  program
    .command('verify')
    .description('verify offline: a receipt (a JWS, its JSON view, or an answer that holds one), or an exported bundle')
    .argument('<file>', 'the receipt, or the bundle')
    .option(
      '--trust <file>',
      'the keys to believe: a JWKS, e.g. what /.well-known/jwks.json answered; a receipt needs it',
    )
    .option('--disclosure <file>', 'salts and values that open commitments')
    .option('--explain', 'of a bundle, also who decided and allowed what, and who put which policies in force')
    .option('--json', 'print JSON')
    .action(async (file: string, options: VerifyOptions) => {
      const story = createBundleStory();
      const report = (await isBundle(file))
        ? await reportOfBundle(file, options, (line) => options.explain && story.take(line))
        : await reportOfReceipt(file, options);
      const told = options.explain && report.json['verdict'] !== 'INVALID' ? story.end() : null;
      if (options.json) terminal.out(json({ ...report.json, ...(told && { story: told }) }));
      else for (const line of report.text.trimEnd().split('\n')) terminal.out(printable(line));
      for (const [title, rows] of options.json || told === null ? [] : Object.entries(told))
        terminal.out(
          `\n${styled(terminal, 'bold', title)}\n${rows[0] === undefined ? 'none' : table(Object.keys(rows[0]), rows.map(Object.values))}`,
        );
      exit(report.exit);
    });
}

async function reportOfReceipt(file: string, { trust, disclosure, explain }: VerifyOptions): Promise<VerifyReport> {
  const receipt = await readText(file);
  if (explain) throw new WrongUsage('--explain tells what a bundle holds: this is a receipt');
  if (trust === undefined)
    throw new WrongUsage('a receipt names no keys: give those that you believe with --trust <file>');
  return verifyReport({
    receipt,
    trust: await readText(trust),
    disclosure: disclosure === undefined ? null : await readText(disclosure),
  });
}

async function reportOfBundle(
  file: string,
  { trust, disclosure }: VerifyOptions,
  told: (line: JsonObject) => void,
): Promise<VerifyReport> {
  if (disclosure !== undefined)
    throw new WrongUsage('--disclosure opens one receipt: write its line of the bundle to a file of its own');
  // Loaded for this alone: most commands read no YAML.
  const { policyVersion } = await import('../policy/bundle.ts');
  return bundleReport(trust === undefined ? null : await readText(trust), (keys) =>
    verifyBundle(linesOf(file), keys, policyVersion, told),
  );
}

async function isBundle(file: string): Promise<boolean> {
  const handle = await open(file).catch(() => null);
  if (handle === null) return false;
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(BUNDLE_MARK.length), 0, BUNDLE_MARK.length, 0);
    return buffer.toString('latin1', 0, bytesRead) === BUNDLE_MARK;
  } catch {
    // A folder: whoever reads it next says so.
    return false;
  } finally {
    await handle.close();
  }
}

/** Lines with their ends, also a last one without. @throws CommandFailure for one that is too long */
export async function* linesOf(file: string): AsyncGenerator<Buffer> {
  let rest: Buffer = Buffer.alloc(0);
  for await (const piece of createReadStream(file, { highWaterMark: 1024 * 1024 })) {
    rest = Buffer.concat([rest, piece]);
    let begin = 0;
    for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10, begin)) {
      yield rest.subarray(begin, end + 1);
      begin = end + 1;
    }
    rest = rest.subarray(begin);
    if (rest.length > MOST_LINE) throw new CommandFailure(`${file} has a line that no bundle has: it is too long`);
  }
  if (rest.length > 0) yield rest;
}

/** `svc receipts keys`: whom `svc verify` may be told to trust. */
export function addReceipts(program: Command, { terminal }: CliContext): void {
  const receipts = program.command('receipts').description('proofs of what was done');
  talksToGateway(
    receipts
      .command('keys')
      .description(
        'the public keys that sign receipts and bundles, and since when; --json is what svc verify --trust takes',
      ),
  ).action(async (options: GatewayAccess) => {
    const url = `${(await connect(options)).baseUrl}/.well-known/jwks.json`;
    const asked = fetch(url).then((answer) => (answer.ok ? answer.json() : null));
    const failed = (error: unknown) => Promise.reject(new CommandFailure(`${url}: ${fetchFailure(error)}`));
    const set = (await asked.catch(failed)) as Json;
    const keys = isJsonObject(set) && isJsonArray(set['keys']) ? set['keys'].filter(isJsonObject) : [];
    if (keys.length === 0) throw new CommandFailure(`${url}: it does not say which keys sign receipts`);
    if (options.json) return terminal.out(json(set));
    const time = (at: Json | undefined): string => (typeof at === 'number' ? new Date(at * 1000).toISOString() : '');
    const rows = keys.map((jwk) => [receiptKeyOf(jwk)?.kid ?? 'of another kind', time(jwk['iat']), time(jwk['exp'])]);
    terminal.out(table(['key', 'signs since', 'until'], rows));
  });
}
