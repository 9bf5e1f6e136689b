import type { Command } from 'commander';
import { type CliContext, connect, type GatewayAccess, talksToGateway } from './command.ts';
import { json, table, wire } from './terminal.ts';

/** `svc passkeys list|remove`: through the API. One is added in a browser, on the console. */
export function addPasskeys(program: Command, { terminal }: CliContext): void {
  const passkeys = program.command('passkeys').description('passkeys, by which people sign in to the console');
  talksToGateway(
    passkeys
      .command('list')
      .description('the passkeys of a user: your own, or with an administrative key anybody’s')
      .argument('<user>', 'id of the user'),
  ).action(async (user: string, options: GatewayAccess) => {
    const found = await (await connect(options)).passkeys.list(user);
    if (options.json) return terminal.out(json(wire(found)));
    if (found.passkeys.length === 0) return terminal.out('None.');
    const rows = found.passkeys.map(({ id, keyId, createdAt, lastUsedAt, synced, name }) => [
      id,
      keyId,
      createdAt,
      lastUsedAt ?? 'never',
      synced ? 'several devices' : 'one device',
      name,
    ]);
    terminal.out(table(['passkey', 'key', 'added', 'last used', 'on', 'name'], rows));
  });
  talksToGateway(
    passkeys
      .command('remove')
      .description('end a passkey: it signs in no more, and its sessions end')
      .argument('<user>', 'id of the user')
      .argument('<passkey-id>', 'psk_… as `svc passkeys list` shows it'),
  ).action(async (user: string, id: string, options: GatewayAccess) => {
    const removed = await (await connect(options)).passkeys.remove(user, id);
    terminal.out(options.json ? json(wire(removed)) : `Removed: ${id}`);
  });
}
