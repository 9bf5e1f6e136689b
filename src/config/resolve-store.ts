import { dirname } from 'node:path';
import type { ArchiveSettings, RedisStoreSettings, StoreSettings } from './configuration.ts';
import { at, type Judge } from './judge.ts';
import type { GatewayFile } from './schema.ts';
import { percentDecoded } from '../bytes/percent-decoded.ts';
import { parseDuration } from './units.ts';

type StoreFile = GatewayFile['store'];

/** Fields for only one kind of store. With the other kind they would be ignored, and no field is ever ignored. */
const FIELDS_OF = {
  embedded: ['path', 'fence', 'archive', 'backup_every', 'lock_wait'],
  redis: ['url', 'mode', 'nodes', 'durability', 'journal', 'max_freeze', 'allow_weak_durability'],
} as const;

/**
 * Resolves the section `store` and reports every fault. No message shows the URL, because it can contain a password.
 */
export function resolveStore({ store }: GatewayFile, judge: Judge): StoreSettings {
  const other = store.kind === 'redis' ? 'embedded' : 'redis';
  for (const field of FIELDS_OF[other])
    if (store[field] !== undefined)
      judge.error('other_store', at(store, field), [
        `store.${field} belongs to the ${other} store, and store.kind is ${store.kind}`,
        `remove it, or write kind: ${other}`,
      ]);
  return store.kind === 'redis'
    ? resolveRedis(store, judge)
    : {
        kind: 'embedded',
        path: store.path ?? './data',
        fence: store.fence ?? null,
        archive: store.archive === undefined ? null : resolveArchive(store.archive, store, judge),
        backupEveryMs: store.backup_every === undefined ? null : milliseconds(store.backup_every),
        lockWaitMs: milliseconds(store.lock_wait ?? '10s'),
        maxClockJumpMs: milliseconds(store.max_clock_jump ?? '7d'),
      };
}

/**
 * The folder for the data of this gateway: that of the store, or the parent of the journal. Keys are in it by default.
 */
export function storeFolder(store: StoreSettings): string {
  switch (store.kind) {
    case 'embedded':
      return store.path;
    case 'redis':
      return dirname(store.journal);
  }
}

function resolveArchive(archive: NonNullable<StoreFile['archive']>, store: StoreFile, judge: Judge): ArchiveSettings {
  if (typeof archive === 'string') return { kind: 'folder', path: archive };
  const { region = 'us-east-1', access_key: accessKey, secret_key: secretKey, network = 'any' } = archive;
  const url = URL.canParse(archive.url) ? new URL(archive.url) : null;
  const isBare = url !== null && `${url.username}${url.password}${url.search}${url.hash}` === '';
  if (!isBare || !/^https?:$/.test(url.protocol) || !/^\/[a-z0-9.-]{3,63}(\/[\w.-]+)*\/?$/.test(url.pathname))
    judge.error('bad_url', at(store, 'archive', 'url'), [
      'The URL of an archive names a bucket, and what keys in it begin with; credentials and a query have no place in it',
      'url: "https://s3.eu-central-1.amazonaws.com/my-bucket/svc"',
    ]);
  else if (url.protocol === 'http:' && !/^(localhost|127\.[\d.]+|\[::1\])$/.test(url.hostname))
    judge.warn('plain_archive', at(store, 'archive', 'url'), [
      'The archive is written over plain HTTP: whoever is on the way reads what agents did',
      'https://…',
    ]);
  for (const field of ['access_key', 'secret_key'] as const)
    if (archive[field] === '')
      judge.error('empty_field', at(store, 'archive', field), `store.archive.${field} is empty`);
  return { kind: 'bucket', url: archive.url.replace(/\/$/, ''), region, accessKey, secretKey, network };
}

function resolveRedis(store: StoreFile, judge: Judge): RedisStoreSettings {
  const { mode = 'standalone', nodes = [], allow_weak_durability: allowWeakDurability = false } = store;
  const durability = store.durability ?? (mode === 'standalone' ? 'fsync' : 'replica');
  if (store.url === undefined)
    judge.error('missing_field', at(store), [`'url' is missing in the store`, 'url: "redis://127.0.0.1:6379"']);
  else checkUrl(store.url, mode, store, judge);
  if (mode === 'sentinel' && nodes.length === 0)
    judge.error('no_nodes', at(store, ...(store.nodes === undefined ? [] : ['nodes'])), [
      'With mode: sentinel, store.nodes has to name the sentinels',
      'nodes: ["10.0.0.1:26379", "10.0.0.2:26379", "10.0.0.3:26379"]',
    ]);
  for (const [index, node] of nodes.entries()) {
    const port = Number(/[0-9]+$/.exec(node)?.[0]);
    if (port < 1 || port > 65_535)
      judge.error('bad_url', at(store, 'nodes', index), `store.nodes[${index}] has to have a port from 1 to 65535`);
  }
  if (mode === 'standalone' && nodes.length > 0)
    judge.error('nodes_unused', at(store, 'nodes'), [
      'A standalone server has no nodes: store.url names it',
      'remove nodes, or write mode: sentinel or mode: cluster',
    ]);
  if (durability === 'local' && !allowWeakDurability)
    judge.error('weak_durability', at(store, 'durability'), [
      'durability: local can lose answered steps when the server stops',
      'choose fsync or replica, or write allow_weak_durability: true to accept that',
    ]);
  return {
    kind: 'redis',
    url: store.url ?? '',
    mode,
    nodes,
    durability,
    journal: store.journal ?? './data/journal',
    maxFreezeMs: milliseconds(store.max_freeze ?? '10m'),
    maxClockJumpMs: milliseconds(store.max_clock_jump ?? '7d'),
    allowWeakDurability,
  };
}

function checkUrl(text: string, mode: RedisStoreSettings['mode'], store: StoreFile, judge: Judge): void {
  const fault = (message: string, hint: string | null = null): void =>
    judge.error('bad_url', at(store, 'url'), [message, hint]);
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || !/^rediss?:$/.test(url.protocol) || url.hostname === '')
    return fault('store.url has to be a redis:// or rediss:// URL', 'redis://127.0.0.1:6379');
  if (percentDecoded(url.username) === null || percentDecoded(url.password) === null)
    return fault('User and password in store.url have to be percent-encoded', 'write %25 for a % in a password');
  if (url.hostname.includes('%') || url.port === '0')
    return fault('store.url has to name a host, and a port from 1 to 65535', 'redis://127.0.0.1:6379');
  if (url.search !== '' || url.hash !== '') return fault('store.url has no query and no fragment');
  if (!/^(\/[0-9]{0,5})?$/.test(url.pathname))
    return fault('The path of store.url is the number of a database', 'redis://127.0.0.1:6379/0');
  if (mode === 'cluster' && /[1-9]/.test(url.pathname)) return fault('A cluster has database 0 alone');
  if (mode === 'sentinel' && url.port !== '')
    return fault(
      'With mode: sentinel the host of store.url is the name of the primary, and has no port',
      'url: "redis://mymaster", and the addresses of the sentinels in nodes',
    );
}

/** The schema has checked the form, so the `0` is never used. */
export function milliseconds(text: string): number {
  return parseDuration(text) ?? 0;
}
