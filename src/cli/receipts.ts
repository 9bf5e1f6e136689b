import type { Command } from 'commander';
import { isJsonArray, isJsonObject, type Json } from '../json/value.ts';
import { receiptKeyOf } from '../receipts/jwk.ts';
import { type CliContext, connect, type GatewayAccess, talksToGateway } from './command.ts';
import { CommandFailure } from './ports.ts';
import { json, table } from './terminal.ts';

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
    const { baseUrl } = await connect(options);
    const answer = await fetch(`${baseUrl}/.well-known/jwks.json`);
    const set = (await answer.json()) as Json;
    const keys = isJsonObject(set) && isJsonArray(set['keys']) ? set['keys'].filter(isJsonObject) : [];
    if (!answer.ok || keys.length === 0) throw new CommandFailure(`${baseUrl} does not say which keys sign receipts`);
    if (options.json) return terminal.out(json(set));
    const time = (at: Json | undefined): string => (typeof at === 'number' ? new Date(at * 1000).toISOString() : '');
    const rows = keys.map((jwk) => [receiptKeyOf(jwk)?.kid ?? 'of another kind', time(jwk['iat']), time(jwk['exp'])]);
    terminal.out(table(['key', 'signs since', 'until'], rows));
  });
}
