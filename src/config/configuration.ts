import type { EntityLimits } from '../effects/entity-store.ts';
import type { Agent, KeyKind } from '../effects/model/principal.ts';
import type { Receiver } from '../effects/model/notification.ts';
import type { Tool } from '../effects/model/tool.ts';
import type { ServerWords } from '../pins/compare.ts';
import type { Decoded } from './decode.ts';
import type { GatewayFile } from './schema.ts';
import type { HeaderSettings, UpstreamTls } from '../effects/upstream.ts';
import type { KeyCarriers, KeyProfile } from '../effects/model/key.ts';

/**
 * The content of `gateway.yaml` after reading, checking and resolving: defaults are filled in, names are known to
 * exist, durations are in ms, sizes in bytes, and `${…}` is expanded. Frozen; a reload makes a new one.
 */
export interface Configuration {
  readonly server: {
    readonly host: string;
    /** With 0 the system chooses a port. */
    readonly port: number;
    /** Without a trailing slash; `null` means the bound address. */
    readonly publicUrl: string | null;
    /** Host names (without port, lower case) that are accepted besides the bound address. */
    readonly allowedHosts: readonly string[];
    /** A second port that serves only health and metrics; `null`: the first port serves them. */
    readonly adminPort: number | null;
    /** TLS on the first port. */
    readonly tls: TlsPair | null;
  };
  readonly listeners: readonly ListenerSettings[];
  readonly store: StoreSettings;
  /** `keysMs`: `null` keeps keys and receipts forever. */
  readonly retention: Decoded<GatewayFile['retention']>;
  readonly resolve: Decoded<GatewayFile['resolve']>;
  readonly secrets: {
    readonly masterFile: string;
    /** Files of earlier master secrets. They still open what was sealed with them. */
    readonly previous: readonly string[];
  };
  readonly receipts: {
    readonly keysDir: string;
    /** `null` means `urn:svc-gateway:<install id>`. */
    readonly issuer: string | null;
    readonly params: 'together' | 'each';
  };
  readonly users: readonly User[];
  /** Every role that is declared, included or given to a user. */
  readonly roles: readonly string[];
  /** All roles of a user, with those that they include. A user without an entry has none. */
  readonly rolesOf: ReadonlyMap<string, readonly string[]>;
  readonly auth: {
    /** Whether a key may be sent as `?api_key=`. */
    readonly queryKey: 'allow' | 'refuse';
    /** How long a new key of a kind is valid by default; `null` means forever. */
    readonly defaultExpiryMs: Readonly<Record<KeyKind, number | null>>;
    readonly profiles: readonly KeyProfile[];
  };
  readonly workspaces: readonly Workspace[];
  readonly policies: {
    /** Existing files and folders. */
    readonly paths: readonly string[];
    readonly mode: 'enforce' | 'observe';
    /** Time between two decisions that json-rules-engine's own engine is asked about, ms; `null`: never. */
    readonly secondOpinionMs: number | null;
    /** Whether policies come in force only when a second person has confirmed them. */
    readonly isOfTwo: boolean;
  };
  readonly upstreams: readonly UpstreamSettings[];
  readonly tools: readonly Tool[];
  readonly routes: readonly Route[];
  readonly pools: readonly { readonly id: string; readonly units: number }[];
  readonly brain: {
    /** Existing files and folders of entities. `workspace`: the one that they belong to, which is configured. */
    readonly files: readonly { readonly path: string; readonly workspace: string }[];
    readonly limits: EntityLimits;
  };
  /** The limits that an operator can set; `docs/operating/limits.md` has all. */
  readonly limits: Decoded<GatewayFile['limits']>;
  readonly telemetry: Decoded<GatewayFile['telemetry']>;
  /** Who is told of what happens. */
  readonly webhooks: readonly Receiver[];
  /**
   * SHA-256 over the content after expansion, base64url. It covers secrets, so only people who may see them may see it.
   */
  readonly digest: string;
  /** The digest without the settings of a single gateway: where it listens, writes, and keeps its keys. */
  readonly sharedDigest: string;
}

/** A certificate with its chain, and its private key, as PEM. They were checked to belong together. */
export interface TlsPair {
  readonly cert: string;
  readonly key: string;
}

/** A listener that routes open besides the gateway's. */
export interface ListenerSettings {
  /** `host:port` as configured. Routes refer to the listener by it. */
  readonly at: string;
  readonly host: string;
  /** With 0 the system chooses a port. */
  readonly port: number;
  readonly tls: TlsPair | null;
}

/** Where effects, keys, budgets and receipts are kept. */
export type StoreSettings = EmbeddedStoreSettings | RedisStoreSettings;

export interface EmbeddedStoreSettings {
  readonly kind: 'embedded';
  /** Folder, relative to the working directory. */
  readonly path: string;
  /** Folder of the mark outside the store, relative to the working directory; `null`: the default. */
  readonly fence: string | null;
  /** Where what is older than `retention.effects` goes; `null`: it is removed. */
  readonly archive: ArchiveSettings | null;
  /** How old the last backup may be; `null`: nobody asks. */
  readonly backupEveryMs: number | null;
  /** How long a start waits while another process holds the store. */
  readonly lockWaitMs: number;
  /** How far the machine's clock may be ahead of the last known time. */
  readonly maxClockJumpMs: number;
}

export type ArchiveSettings =
  | { readonly kind: 'folder'; readonly path: string }
  | {
      readonly kind: 'bucket';
      /** `https://host/bucket/prefix`, without a slash at its end. */
      readonly url: string;
      readonly region: string;
      readonly accessKey: string;
      readonly secretKey: string;
      readonly network: 'any' | 'public';
    };

export interface RedisStoreSettings {
  readonly kind: 'redis';
  /** Can contain a password, so it is never shown. With Sentinel, its host is the name of the primary. */
  readonly url: string;
  readonly mode: 'standalone' | 'sentinel' | 'cluster';
  /** `host:port` of the sentinels, or of some nodes of the cluster. */
  readonly nodes: readonly string[];
  readonly durability: 'local' | 'replica' | 'fsync';
  /** Folder of this gateway's journal, relative to the working directory. No other gateway uses it. */
  readonly journal: string;
  readonly maxFreezeMs: number;
  /** How far the clocks of the servers may be ahead of the last known time. */
  readonly maxClockJumpMs: number;
  readonly allowWeakDurability: boolean;
}

/** A person: owner of agents and keys, approver. `roles` are those declared for the user; `rolesOf` has all. */
export interface User {
  readonly id: string;
  readonly roles: readonly string[];
}

export interface Workspace {
  readonly id: string;
  /** The fact `env` of calls in the workspace, unless the upstream sets another. */
  readonly env: string;
  readonly agents: readonly Agent[];
}

export interface UpstreamSettings {
  readonly id: string;
  /** An http or https origin: no path, no trailing slash. */
  readonly url: string;
  readonly timeoutMs: number;
  readonly connections: number;
  /** `public` also refuses loopback and private addresses. */
  readonly network: 'any' | 'public';
  readonly env: string | null;
  /** A header that the gateway sets on every request; its name is in lower case. */
  readonly credentials: { readonly header: string; readonly value: string } | null;
  readonly headers: HeaderSettings;
  readonly tls: UpstreamTls | null;
  /** `null`: an HTTP API. */
  readonly mcp: McpSettings | null;
}

export interface McpSettings {
  /** Path and query of its one address. */
  readonly path: string;
  /** Methods of clients that pass in addition to those that the gateway knows. */
  readonly allow: readonly string[];
  /** What the server says of itself, by its lock file; absent where that could not be read. */
  readonly words?: ServerWords;
  /** The program that is the server; `null` where it is at an address. */
  readonly child: {
    readonly command: string;
    readonly args: readonly string[];
    readonly env: Readonly<Record<string, string>>;
    readonly cwd: string | null;
    readonly sessions: number;
    readonly idleMs: number;
  } | null;
  /** Where it speaks the transport of 2024-11-05, its sessions: a stream each; `null` for all other servers. */
  readonly sse: { readonly sessions: number; readonly idleMs: number } | null;
}

/**
 * Part of an address space that stands for an upstream. The address space is the gateway's, or that of a host name or
 * listener.
 */
export interface Route {
  readonly upstream: string;
  /** For example `/payments`, without a trailing slash. Empty where the route covers everything. */
  readonly prefix: string;
  /** The host name that the route belongs to, in lower case; `null`: the gateway's names. */
  readonly host: string | null;
  /** The listener that the route belongs to, by its `at`; `null`: the gateway's listener. */
  readonly listen: string | null;
  readonly undeclared: 'deny' | 'passthrough_reads';
  /** Whether `Set-Cookie` of the upstream's answers is passed on. */
  readonly setCookie: boolean;
  /** What becomes of addresses of other origins in `Location`, `Content-Location` and `Link`. */
  readonly foreignLinks: 'hide' | 'pass';
  /** Fields of JSON answers that hold addresses: names, of which `*` is any member or element. */
  readonly links: readonly (readonly string[])[];
  readonly headers: HeaderSettings;
  readonly keys: KeyCarriers;
  /** Status of the answer to a call that waits for approval. */
  readonly pendingStatus: number;
  /** The form of errors that client libraries of the upstream expect. */
  readonly errorFormat: 'problem' | 'stripe' | 'openai' | 'anthropic' | 'github' | 'slack' | 'graphql' | 'kubernetes';
  /** Status of final answers whose own status some libraries repeat; `null`: their own. */
  readonly finalStatus: 409 | 422 | null;
  /** What becomes of query params that a tool does not declare; `null`: as the tool says. */
  readonly undeclaredQuery: 'refuse' | 'pass' | null;
  readonly rules: readonly RouteRule[];
}

export interface RouteRule {
  /** Upper case. */
  readonly method: string;
  /**
   * For example `/v1/payments/:payment_id`: the path after the prefix, with literal segments and params that fill a
   * segment.
   */
  readonly path: string;
  readonly tool: string;
  /** Where the idempotency key of a proxied call comes from. */
  readonly idempotency:
    | { readonly kind: 'required' }
    | { readonly kind: 'none' }
    | { readonly kind: 'derive'; readonly windowMs: number };
  readonly onDuplicate: 'conflict' | 'replay';
  /** `ungoverned`: WebSocket upgrades are tunnelled after the checks of the handshake. */
  readonly frames: null | 'ungoverned';
}
