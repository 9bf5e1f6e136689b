import type { Agent, KeyKind, Scope } from '../effects/model/principal.ts';
import type { Tool } from '../effects/model/tool.ts';

/**
 * What `gateway.yaml` says, read, checked and resolved: every default filled in, names known to exist, durations in
 * ms, sizes in bytes, `${…}` expanded. Frozen; a reload makes a new one.
 */
export interface Configuration {
  readonly server: ServerSettings;
  readonly listeners: readonly ListenerSettings[];
  readonly store: StoreSettings;
  readonly retention: RetentionSettings;
  /** `allowForce`: a second user may say `not_happened` before an effect is quiet. */
  readonly resolve: { readonly allowForce: boolean };
  readonly secrets: SecretsSettings;
  readonly receipts: ReceiptsSettings;
  readonly users: readonly User[];
  /** Every role that is declared, included or given to a user. */
  readonly roles: readonly string[];
  /** All roles of a user, with those that they include. Users without an entry have none. */
  readonly rolesOf: ReadonlyMap<string, readonly string[]>;
  readonly auth: AuthSettings;
  readonly workspaces: readonly Workspace[];
  readonly policies: PolicySettings;
  readonly upstreams: readonly UpstreamSettings[];
  readonly tools: readonly Tool[];
  readonly routes: readonly Route[];
  readonly pools: readonly Pool[];
  readonly limits: ConfiguredLimits;
  readonly telemetry: TelemetrySettings;
  /** SHA-256 over what the file says after expansion, base64url. Shown to nobody who may not see secrets: it covers them. */
  readonly digest: string;
  /** The same without what is a gateway's own: where it listens, writes and keeps its keys. */
  readonly sharedDigest: string;
}

export interface ServerSettings {
  readonly host: string;
  /** 0 lets the system choose. */
  readonly port: number;
  /** Without a trailing slash; `null` takes the bound address. */
  readonly publicUrl: string | null;
  /** Host names (without port, lower case) that are accepted beside the bound address. */
  readonly allowedHosts: readonly string[];
  /** A second port on which alone health and metrics answer; `null`: they are on the first. */
  readonly adminPort: number | null;
  /** TLS on the first port. */
  readonly tls: TlsPair | null;
}

/** A certificate with those that lead to its root, and its private key: PEM, which has been found to belong together. */
export interface TlsPair {
  readonly cert: string;
  readonly key: string;
}

/** A listener of routes' own, beside the gateway's. */
export interface ListenerSettings {
  /** `host:port` as configured: routes name it by this. */
  readonly at: string;
  readonly host: string;
  /** 0 lets the system choose. */
  readonly port: number;
  readonly tls: TlsPair | null;
}

/** Where effects, keys, budgets and receipts are kept. */
export type StoreSettings = EmbeddedStoreSettings | RedisStoreSettings;

interface EmbeddedStoreSettings {
  readonly kind: 'embedded';
  /** Folder, relative to the working directory. */
  readonly path: string;
  /** How long a start waits for another process to let go of the store. */
  readonly lockWaitMs: number;
  /** How far the machine's clock may be ahead of the last time that is known. */
  readonly maxClockJumpMs: number;
}

export interface RedisStoreSettings {
  readonly kind: 'redis';
  /** May hold a password: shown to nobody. With Sentinel its host is the name of the primary. */
  readonly url: string;
  readonly mode: 'standalone' | 'sentinel' | 'cluster';
  /** `host:port` of the sentinels, or of some nodes of the cluster. */
  readonly nodes: readonly string[];
  readonly durability: 'local' | 'replica' | 'fsync';
  /** Folder of this gateway's own journal, relative to the working directory. */
  readonly journal: string;
  readonly maxFreezeMs: number;
  /** How far the servers' clocks may be ahead of the last time that is known. */
  readonly maxClockJumpMs: number;
  readonly allowWeakDurability: boolean;
}

interface RetentionSettings {
  /** Keys and receipts; `null` keeps them for ever. */
  readonly keysMs: number | null;
  readonly effectsMs: number;
  readonly denialsMs: number;
}

interface SecretsSettings {
  readonly masterFile: string;
  /** Files of earlier master secrets, which still open what they sealed. */
  readonly previous: readonly string[];
}

interface ReceiptsSettings {
  readonly keysDir: string;
  /** `null` takes `urn:svc-gateway:<install id>`. */
  readonly issuer: string | null;
}

/** A person: owner of agents and keys, approver. `roles` as declared; see `rolesOf` for all. */
export interface User {
  readonly id: string;
  readonly roles: readonly string[];
}

export interface AuthSettings {
  /** Whether a key may come as `?api_key=`. */
  readonly queryKey: 'allow' | 'refuse';
  /** How long a new key of a kind is valid when nobody says; `null` for ever. */
  readonly defaultExpiryMs: Readonly<Record<KeyKind, number | null>>;
  /** Profiles beside the shipped ones. */
  readonly profiles: readonly Profile[];
}

interface Profile {
  readonly name: string;
  readonly description: string;
  readonly scopes: readonly Scope[];
  /** `null` is no limit. */
  readonly allowedTools: readonly string[] | null;
  readonly readOnly: boolean;
}

export interface Workspace {
  readonly id: string;
  /** The fact `env` of calls in it, unless the upstream says otherwise. */
  readonly env: string;
  readonly agents: readonly Agent[];
}

export interface PolicySettings {
  /** Files and folders, which exist. */
  readonly paths: readonly string[];
  readonly mode: 'enforce' | 'observe';
}

export interface UpstreamSettings {
  readonly id: string;
  /** An http or https origin: no path, no trailing slash. */
  readonly url: string;
  readonly timeoutMs: number;
  readonly connections: number;
  /** `public` refuses loopback and private addresses as well. */
  readonly network: 'any' | 'public';
  readonly env: string | null;
  /** A header that the gateway sets on every request; name in lower case. */
  readonly credentials: { readonly header: string; readonly value: string } | null;
  readonly headers: HeaderSettings;
}

/** What becomes of the headers of requests. Names are in lower case; one that ends with `*` stands for all that begin so. */
export interface HeaderSettings {
  /** Go on, though the gateway keeps them back unless asked. */
  readonly forward: readonly string[];
  /** Do not go on. */
  readonly drop: readonly string[];
  /** Are no part of the fingerprint. */
  readonly volatile: readonly string[];
  /** Set by the gateway, instead of what the caller sends. */
  readonly set: Readonly<Record<string, string>>;
}

/** A part of the gateway's own address space that stands for an upstream, or of a host name's or a listener's. */
export interface Route {
  readonly upstream: string;
  /** `/payments`: without a trailing slash. Empty where everything is the route. */
  readonly prefix: string;
  /** The one host name, in lower case, under which it is; `null`: under the gateway's. */
  readonly host: string | null;
  /** The listener at which it is, by its `at`; `null`: at the gateway's own. */
  readonly listen: string | null;
  readonly undeclared: 'deny' | 'passthrough_reads';
  /** Whether `Set-Cookie` of the upstream's answers is passed on. */
  readonly setCookie: boolean;
  /** What becomes of addresses of other origins in `Location`, `Content-Location` and `Link`. */
  readonly foreignLinks: 'hide' | 'pass';
  readonly headers: HeaderSettings;
  readonly keys: RouteKeys;
  /** Status of the answer that a call waits for approval. */
  readonly pendingStatus: number;
  /** The form of errors that client libraries of the upstream know. */
  readonly errorFormat: 'problem' | 'stripe' | 'openai' | 'github';
  readonly rules: readonly RouteRule[];
}

/** Where callers of a route carry their key. */
export interface RouteKeys {
  /** Headers that hold it alone, in lower case. */
  readonly headers: readonly string[];
  /** Schemes of `Authorization`. */
  readonly schemes: readonly ('bearer' | 'token' | 'basic')[];
  /** Query parameters. */
  readonly query: readonly string[];
}

export interface RouteRule {
  /** Upper case. */
  readonly method: string;
  /** `/v1/payments/:payment_id`: after the prefix, literal segments and whole-segment params. */
  readonly path: string;
  readonly tool: string;
  readonly idempotency: RouteIdempotency;
  readonly onDuplicate: 'conflict' | 'replay';
  /** `ungoverned`: WebSocket upgrades are tunnelled after the checks of the handshake. */
  readonly frames: null | 'ungoverned';
}

/** Where the idempotency key of a proxied call comes from. */
export type RouteIdempotency =
  | { readonly kind: 'required' }
  | { readonly kind: 'none' }
  | { readonly kind: 'derive'; readonly windowMs: number };

interface Pool {
  readonly id: string;
  readonly units: number;
}

/** The limits that an operator may set; all others are in `limits.ts` too. */
interface ConfiguredLimits {
  /** Body of a request, bytes. */
  readonly bodyBytes: number;
  /** Body of a request with files, and one of its files, bytes. */
  readonly uploadBytes: number;
  readonly uploadFileBytes: number;
  /** Files of all requests at once, bytes. */
  readonly spoolBytes: number;
  readonly paramsDepth: number;
  readonly paramsValues: number;
  /** Part of an upstream's answer that is kept for duplicates, bytes. */
  readonly responseKeptBytes: number;
  /** Answer of an upstream that is read at all, bytes. */
  readonly responseBytes: number;
  /** Connections of callers at once. */
  readonly connections: number;
}

interface TelemetrySettings {
  readonly logLevel: 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal' | 'silent';
  /** Whether each request through the proxy is a line of the log. */
  readonly accessLog: boolean;
}
