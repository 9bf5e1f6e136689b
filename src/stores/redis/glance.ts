import { openConnection } from './connection.ts';
import { checkServer } from './durability.ts';
import { keyOf, metaKey } from './names.ts';
import { accessOf, targetOf } from './addresses.ts';
import type { RedisStoreOptions } from './open.ts';

/** A store as one finds it. */
export type RedisGlance =
  /** The servers are fit, and hold no installation. */
  | { readonly state: 'absent' }
  | { readonly state: 'unfit'; readonly message: string }
  | { readonly state: 'ready'; readonly gateways: number };

/** Looks at the servers (of a cluster at one node) without making or changing anything. */
export async function glanceAtRedis(
  options: Pick<RedisStoreOptions, 'mode' | 'url' | 'nodes' | 'durability' | 'allowWeakDurability'>,
): Promise<RedisGlance> {
  const connection = openConnection(targetOf(options), accessOf(options.url), { name: 'svc:glance' });
  try {
    await connection.ready();
    await checkServer(connection, options.durability, options.allowWeakDurability, true);
    // Another node of a cluster has the installation; that this one is fit is all that is asked of it.
    if (options.mode === 'cluster') return { state: 'ready', gateways: 0 };
    const [install, gateways] = await connection.pipeline([
      ['HGET', metaKey(''), 'install'],
      ['HLEN', keyOf('', 'gw')],
    ]);
    return install === null ? { state: 'absent' } : { state: 'ready', gateways: Number(gateways) };
  } catch (error) {
    return { state: 'unfit', message: error instanceof Error ? error.message : String(error) };
  } finally {
    connection.close();
  }
}
