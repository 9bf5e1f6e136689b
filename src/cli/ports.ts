import type { Configuration, McpSettings, UpstreamSettings } from '../config/configuration.ts';
import type { Difference } from '../effects/upkeep/fsck.ts';
import type { JsonObject } from '../json/value.ts';
import type { KeyKind } from '../effects/model/principal.ts';
import type { LiveServer } from '../pins/compare.ts';

/** What the commands need of the rest of the product. `main.ts` builds it. No command knows a store or a server. */
export interface CliPorts {
  /**
   * Starts a gateway in this process and resolves when it accepts requests. Throws `InvalidFiles` when the
   * configuration or a policy has errors, and `CommandFailure` for anything else that the user can fix (port taken,
   * store locked).
   */
  startGateway(options: GatewayOptions): Promise<RunningGateway>;
  /** Makes a key directly in the store, also while a gateway runs on it. Throws `CommandFailure` on bad combinations. */
  createKey(
    options: StoreOptions & {
      readonly kind: KeyKind;
      readonly workspace: string | null;
      readonly agent: string | null;
      readonly user: string | null;
      readonly profile: string | null;
      readonly name: string | null;
    },
  ): Promise<{
    /** The record in its wire form, without the key. */
    readonly record: JsonObject;
    /** The key in the clear; it is not kept anywhere. */
    readonly key: string;
    /** A warning for the person who made the key, if it can do less than they may expect. */
    readonly notice: string | null;
  }>;
  /** The records of all keys in the store, in their wire form. Throws `CommandFailure`. */
  listKeys(options: StoreOptions): Promise<readonly JsonObject[]>;
  /** Revokes a key directly in the store. @returns its record; `null` if no key has this id */
  revokeKey(options: StoreOptions, id: string): Promise<JsonObject | null>;
  /** Makes a successor of a key directly in the store; the old one stays valid for the overlap. `ended`: it is revoked, or has one. */
  rotateKey(
    options: StoreOptions,
    id: string,
    overlapMs: number,
  ): Promise<
    | { readonly kind: 'rotated'; readonly record: JsonObject; readonly key: string }
    | { readonly kind: 'absent' | 'ended' }
  >;
  /** Looks at the store of a configuration without changing it, even while a gateway runs on it. */
  inspectStore(options: StoreOptions): Promise<StoreInspection>;
  /** Asks an upstream for a sign of life, on a connection like those of calls, without credentials. */
  probeUpstream(
    upstream: Configuration['upstreams'][number],
    timeoutMs: number,
  ): Promise<
    | { readonly kind: 'answered'; readonly status: number; readonly date: number | null }
    | { readonly kind: 'silent'; readonly why: string }
  >;
  /**
   * What an MCP server says of itself and of its tools, read as a gateway reads it. A server that is a program is started
   * for it, and has ended afterwards.
   * @returns why it cannot be read, in its place
   */
  readMcpServer(
    server: Pick<UpstreamSettings, 'id' | 'url' | 'timeoutMs' | 'network' | 'credentials'> &
      Partial<Pick<UpstreamSettings, 'headers' | 'tls'>> & {
        readonly mcp: Pick<McpSettings, 'path' | 'allow'> & Partial<McpSettings>;
      },
  ): Promise<LiveServer | string>;
  /**
   * Continues with a store that was emptied or set back, only while this gateway is stopped; or acknowledges what a restore
   * could not bring over, also while it runs. Throws `CommandFailure`.
   */
  acceptLoss(options: StoreOptions): Promise<readonly string[]>;
  /**
   * Accepts the clock of this machine, or of the Redis servers, as right, even while gateways run. Throws
   * `CommandFailure`, also if the store's time is not behind that clock.
   */
  acceptClock(options: StoreOptions): Promise<{ readonly before: number; readonly time: number }>;
  /** Declares that a gateway's journal is lost. Only on Redis. Throws `CommandFailure`. */
  recoverLost(options: StoreOptions, gateway: string): Promise<void>;
  /** The differences between the store's records and its ledger. Throws `CommandFailure` when it cannot be read. */
  checkStore(options: StoreOptions): Promise<readonly StoreDifference[]>;
  /**
   * Writes a backup of the embedded store into a folder, also while a gateway runs on it. Throws `CommandFailure`.
   * `warning`: why it is not on record beside the store; `null`: it is.
   */
  backUpStore(
    options: StoreOptions,
    to: string,
  ): Promise<{ readonly madeAt: number; readonly transactions: number; readonly warning: string | null }>;
  /**
   * Puts a backup in the place of the embedded store, while no gateway runs on it. Throws `CommandFailure`.
   * @param replace a store that is there is put aside
   */
  restoreStore(options: StoreOptions, from: string, replace: boolean): Promise<Restored>;
  /** What format the store has, and what a start would do. Changes nothing. Throws `CommandFailure`. */
  checkFormat(options: StoreOptions): Promise<FormatReport>;
}

export interface Restored {
  /** When the backup was made, ms. */
  readonly madeAt: number;
  /** The folder to which the store that was there was put aside; `null`: there was none. */
  readonly replaced: string | null;
  /** Calls that ran since may be missing, and nobody has acknowledged that yet. */
  readonly hasLoss: boolean;
  /** Transactions in the backup, and how many are known to have been; `null`: an interrupted restore was finished. */
  readonly transactions: number;
  readonly transactionsKnown: number | null;
  /** What the store that was replaced shows to have run since; `null`: there was none. */
  readonly carried: { readonly unknown: number; readonly receipts: number; readonly fault: string | null } | null;
  /** Why the mark outside could not be written; `null`: it was. */
  readonly warning: string | null;
}

export interface StoreOptions {
  readonly configFile: string;
  /** Takes precedence over the environment when `${NAME}` is expanded in the configuration. */
  readonly environment: Readonly<Record<string, string>>;
}

export interface GatewayOptions extends StoreOptions {
  /** Overrides `server.port`; 0 lets the system choose. */
  readonly port: number | null;
  /**
   * What of the log goes to standard error: the configured lines (JSON), only warnings and errors, as JSON or as text for
   * people (the demo), or nothing.
   */
  readonly log: 'stderr' | 'warnings' | 'text' | 'none';
  /**
   * Where the first administrative key of a fresh store goes: `shown`, the caller prints it on a terminal;
   * `file`, it is written with mode 0600 next to the store.
   */
  readonly firstKey: 'shown' | 'file';
}

export interface RunningGateway {
  /** Base URL with the actual port, no trailing slash. */
  readonly url: string;
  /** Stops accepting requests, waits for running ones, and closes files. */
  close(): Promise<void>;
  /**
   * The first administrative key if this start made one (`key`, with `firstKey: 'shown'`), or the file in which this or
   * an earlier start left it; `null` if there is neither.
   */
  readonly administrativeKey: { readonly key: string } | { readonly file: string } | null;
  /** Why it listens but takes no work yet: the store cannot be reached, or was set back. `null` if it takes work. */
  hindrance(): { readonly code: string; readonly message: string } | null;
  /** Resolves when it takes work. */
  readonly ready: Promise<void>;
  /** Resolves, with the reason, when this process can only end. The next process continues from what is on the disk. */
  readonly lost: Promise<string>;
}

export interface StoreInspection {
  /** `absent`: nothing was ever started here. */
  readonly state: 'absent' | 'ready' | 'broken';
  /** What is wrong and how to fix it; `null` unless the store is broken. */
  readonly problem: { readonly message: string; readonly remedy: string } | null;
  /** Durability in force, e.g. `fsync`. */
  readonly durability: string | null;
  /** A gateway holds the lock. `null`: it cannot be told. */
  readonly inUse: boolean | null;
  /** Keys that are neither revoked nor expired, by kind. */
  readonly keys: Readonly<Record<KeyKind, number>> | null;
}

/** What `svc migrate` reports. */
export interface FormatReport {
  readonly store: 'embedded' | 'redis';
  /** Of the store; `null` if there is none, or it cannot be determined. */
  readonly format: number | null;
  /** Of this program; `null` on Redis. */
  readonly current: number | null;
  /** What a start would do with the store. `none`: there is no migration. */
  readonly start: 'makes' | 'opens' | 'refuses' | 'none';
  readonly records: Readonly<Record<string, number>> | null;
  /** Sentences for people. */
  readonly explanation: readonly string[];
}

/** What `svc fsck` finds. */
export interface StoreDifference extends Difference {
  readonly workspace: string;
}

/** One line of `svc doctor`. */
export interface Check {
  readonly name: string;
  readonly status: 'ok' | 'warning' | 'failed' | 'skipped';
  readonly detail: string;
  /** What to do about it; present unless `ok` or `skipped`. */
  readonly remedy: string | null;
}

/** A command cannot do what was asked. The message is for people and says what to do. */
export class CommandFailure extends Error {
  override readonly name: string = 'CommandFailure';
}

/** Why a request came to nothing. What `fetch` could not do stands in the cause of its error. */
export function fetchFailure(error: unknown): string {
  const { message, cause } = error instanceof Error ? error : new Error(String(error));
  return cause instanceof Error ? `${message} (${cause.message || cause.name})` : message;
}

/** What the command line says does not go together. Nothing was tried. */
export class WrongUsage extends CommandFailure {
  override readonly name = 'WrongUsage';
}
