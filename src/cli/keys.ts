import { type Command, InvalidArgumentError, Option } from 'commander';
import { KEY_KINDS, type KeyKind } from '../effects/model/principal.ts';
import { OVERLAP_S } from '../effects/steps/key-events.ts';
import { type CliContext, connect, type GatewayAccess, talksToGateway } from './command.ts';
import { CommandFailure } from './ports.ts';
import { json, table, type Terminal, wire } from './terminal.ts';

interface CreateOptions {
  readonly config: string;
  readonly kind: KeyKind;
  readonly workspace?: string;
  readonly agent?: string;
  readonly user?: string;
  readonly profile?: string;
  readonly name?: string;
  readonly json?: true;
}

/** `svc keys create|list|revoke|rotate`: directly in the store, even while the gateway runs, or through the API. */
export function addKeys(program: Command, context: CliContext): void {
  const keys = program.command('keys').description('API keys');
  addCreate(keys, context);
  addList(keys, context);
  addRevoke(keys, context);
  addRotate(keys, context);
}

function addCreate(keys: Command, { ports, terminal }: CliContext): void {
  keys
    .command('create')
    .description('make a key in the store; it is shown once')
    .requiredOption('--config <file>', 'the configuration, which names the store')
    .addOption(new Option('--kind <kind>', 'what the key is for').choices(KEY_KINDS).makeOptionMandatory())
    .option('--workspace <id>', 'the workspace it belongs to (default: the only one)')
    .option('--agent <id>', 'the agent that an agent key names')
    .option(
      '--user <id>',
      'the user who answers for it; without one it decides no approvals, and its calls wait for none',
    )
    .option('--profile <name>', 'the profile of a profile key, e.g. mcp_readonly')
    .option('--name <text>', 'a label for people')
    .option('--json', 'print the record as JSON, with the key')
    .action(async (options: CreateOptions) => {
      const { record, key, notice } = await ports.createKey({
        configFile: options.config,
        environment: {},
        kind: options.kind,
        workspace: options.workspace ?? null,
        agent: options.agent ?? null,
        user: options.user ?? (await askUser(options, terminal)),
        profile: options.profile ?? null,
        name: options.name ?? null,
      });
      if (notice !== null) terminal.err(notice);
      if (options.json) return terminal.out(json({ ...record, key }));
      terminal.err(
        `A key of kind ${options.kind} ${typeof record['id'] === 'string' ? record['id'] : ''}; it is shown this once:`,
      );
      terminal.out(key);
    });
}

/** The user who is responsible for a key that makes calls. Asks for it when a person is at the terminal. */
async function askUser({ kind, json: asJson }: CreateOptions, terminal: Terminal): Promise<string | null> {
  if ((kind !== 'account' && kind !== 'agent') || asJson === true || !terminal.interactive) return null;
  const question = 'Which user answers for the key? (Calls that need approval ask somebody else. Empty: nobody.)';
  const user = await terminal.ask(question);
  if (user === null) throw new CommandFailure('No key was made: cancelled.');
  return user === '' ? null : user;
}

interface KeyAccess {
  readonly config?: string;
  readonly url?: string;
  readonly keyFile?: string;
  readonly json?: true;
}

interface ListOptions extends KeyAccess {
  readonly kind?: KeyKind;
  readonly workspace?: string;
  readonly agent?: string;
  readonly user?: string;
}

interface RotateOptions extends KeyAccess {
  readonly overlap: number;
}

function onKeys(command: Command): Command {
  return command
    .option('--config <file>', 'the configuration, which names the store: works in it directly')
    .option('--url <url>', 'without --config: the gateway (default: SVC_BASE_URL, else http://127.0.0.1:8080)')
    .option('--key-file <file>', 'file that holds an administrative key (default: the variable SVC_API_KEY)')
    .option('--json', 'print JSON');
}

function addList(keys: Command, { ports, terminal }: CliContext): void {
  onKeys(keys.command('list').description('keys of agents, users and administrators, without secrets'))
    .addOption(new Option('--kind <kind>', 'only these').choices(KEY_KINDS))
    .option('--workspace <id>', 'only those of a workspace')
    .option('--agent <id>', 'only those of an agent')
    .option('--user <id>', 'only those of a user')
    .action(async (options: ListOptions) => {
      const { kind, workspace, agent, user } = options;
      const wanted = { kind, workspace, agent_id: agent, user_id: user };
      const found = (await allKeys(options, ports)).filter((key) =>
        Object.entries(wanted).every(([name, value]) => value === undefined || key[name] === value),
      );
      if (options.json) return terminal.out(json({ keys: found }));
      if (found.length === 0) return terminal.out('None.');
      const texts = (key: WireRecord, ...names: readonly string[]): readonly string[] =>
        names.map((one) => text(key[one]));
      const rows = found.map((key) => [
        ...texts(key, 'id', 'kind', 'agent_id', 'user_id', 'workspace'),
        stateOf(key),
        ...texts(key, 'expires_at', 'last_used_at', 'name'),
      ]);
      const heads = ['key', 'kind', 'agent', 'user', 'workspace', 'state', 'expires', 'last used', 'name'];
      terminal.out(table(heads, rows));
    });
}

async function allKeys(options: KeyAccess, ports: CliContext['ports']): Promise<readonly WireRecord[]> {
  const all =
    options.config === undefined
      ? wire((await (await connect(options)).keys.list()).keys)
      : await ports.listKeys({ configFile: options.config, environment: {} });
  return (Array.isArray(all) ? all : []).filter(isRecord);
}

function addRevoke(keys: Command, { ports, terminal, exit }: CliContext): void {
  onKeys(keys.command('revoke').description('end a key, everywhere, within a second'))
    .argument('<key-id>', 'key_… as `svc keys list` shows it', toKeyId)
    .action(async (id: string, options: KeyAccess) => {
      const known = (await allKeys(options, ports)).find((key) => key['id'] === id);
      const before = known === undefined ? '' : text(known['revoked_at']);
      if (known !== undefined && before !== '')
        return terminal.out(options.json ? json(known) : `Revoked before, at ${before}: ${id}`);
      const record =
        options.config === undefined
          ? wire(await (await connect(options)).keys.revoke(id))
          : await ports.revokeKey({ configFile: options.config, environment: {} }, id);
      if (record === null) {
        exit(1);
        return terminal.err(`svc: There is no key ${id}.`);
      }
      terminal.out(options.json ? json(record) : `Revoked: ${id}`);
    });
}

function addRotate(keys: Command, { ports, terminal, exit }: CliContext): void {
  onKeys(keys.command('rotate').description('make a successor with the same rights; it is shown once'))
    .argument('<key-id>', 'key_… as `svc keys list` shows it', toKeyId)
    .option('--overlap <seconds>', 'how long the old key stays valid', toSeconds, OVERLAP_S.usual)
    .action(async (id: string, options: RotateOptions) => {
      const rotated = await rotatedKey(id, options, ports);
      if (rotated.kind !== 'rotated') {
        exit(1);
        const why = rotated.kind === 'absent' ? `There is no key ${id}.` : `${id} is revoked or was rotated before.`;
        return terminal.err(`svc: ${why}`);
      }
      if (options.json) return terminal.out(json({ ...rotated.record, key: rotated.key }));
      terminal.err(`The successor of ${id} is ${text(rotated.record['id'])}; it is shown this once:`);
      terminal.out(rotated.key);
    });
}

async function rotatedKey(id: string, options: RotateOptions, ports: CliContext['ports']) {
  if (options.config !== undefined)
    return ports.rotateKey({ configFile: options.config, environment: {} }, id, options.overlap * 1000);
  const { key, ...record } = await (await connect(options)).keys.rotate(id, { overlap: options.overlap });
  const shown = wire(record);
  return { kind: 'rotated', record: isRecord(shown) ? shown : {}, key } as const;
}

/** Takes the id of a key, never the key itself: that would stay in the shell's history. */
function toKeyId(value: string): string {
  if (/^key_[0-9A-Za-z]{12}$/.test(value)) return value;
  throw new InvalidArgumentError('A key is named by its id, key_ and 12 characters; svc keys list shows it.');
}

function toSeconds(value: string): number {
  const seconds = Number(value);
  if (!/^\d+$/.test(value) || seconds > OVERLAP_S.most)
    throw new InvalidArgumentError(`A number of seconds from 0 to ${OVERLAP_S.most}.`);
  return seconds;
}

/** A record with the names that the API uses. */
type WireRecord = Readonly<Record<string, unknown>>;

function isRecord(value: unknown): value is WireRecord {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function stateOf(key: WireRecord): string {
  if (key['revoked_at'] !== null) return 'revoked';
  const expires = key['expires_at'];
  if (typeof expires === 'string' && Date.parse(expires) <= Date.now())
    return key['replaced_by'] === null ? 'expired' : 'replaced';
  return key['replaced_by'] === null ? 'active' : 'active, being replaced';
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

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
