import type { RedisAccess, RedisAddress, RedisTarget } from './connection.ts';

/** Where the servers are, as the configuration says. */
export interface RedisServers {
  readonly mode: 'standalone' | 'sentinel' | 'cluster';
  /**
   * `redis://[user:password@]host[:port][/database]`, or `rediss://` for TLS. For Sentinel the host is the name of the
   * primary. For a cluster with `nodes`, only user, password and TLS of it are used.
   */
  readonly url: string;
  /** `host:port` of the sentinels, or of some nodes of the cluster. */
  readonly nodes: readonly string[];
}

/** The user and password in the URL. */
export function accessOf(text: string): RedisAccess {
  const url = new URL(text);
  const database = /^\/(\d+)$/.exec(url.pathname)?.[1];
  return {
    username: url.username === '' ? null : decodeURIComponent(url.username),
    password: url.password === '' ? null : decodeURIComponent(url.password),
    database: database === undefined ? 0 : Number(database),
    tls: url.protocol === 'rediss:',
  };
}

/** The primary, or one of the nodes of a cluster. */
export function targetOf({ mode, url, nodes }: RedisServers): RedisTarget {
  const { hostname, port } = new URL(url);
  if (mode === 'sentinel') return { kind: 'sentinel', sentinels: nodes.map(addressOf), name: hostname };
  const [first = `${hostname}:${port || '6379'}`] = mode === 'cluster' ? nodes : [];
  return { kind: 'address', address: addressOf(first) };
}

/** The nodes of a cluster that are asked first. */
export function clusterNodes(options: RedisServers): readonly RedisAddress[] {
  if (options.nodes.length > 0) return options.nodes.map(addressOf);
  const target = targetOf(options);
  return target.kind === 'address' ? [target.address] : [];
}

/** @param text `host:port`, where an IPv6 address is in brackets */
function addressOf(text: string): RedisAddress {
  const colon = text.lastIndexOf(':');
  return { host: text.slice(0, colon).replace(/^\[(.*)\]$/, '$1'), port: Number(text.slice(colon + 1)) };
}
