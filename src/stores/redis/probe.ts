import { openConnection } from './connection.ts';
import { checkServer } from './durability.ts';
import { keyOf, metaKey } from './names.ts';
import { accessOf, targetOf } from './addresses.ts';
import { INSTALL_FIELD, OTHER_FORMAT } from './fleet.ts';
import type { RedisRowsOptions } from './rows/open.ts';

/** Looks at the servers (for a cluster at one node) without creating or changing anything. */
export async function probeRedis(
  options: Pick<RedisRowsOptions, 'mode' | 'url' | 'nodes' | 'durability' | 'allowWeakDurability'>,
): Promise<
  /** The servers are fit, but have no installation. */
  | { readonly state: 'absent' }
  | { readonly state: 'unfit'; readonly message: string }
  /** Another version of the program has written the data. */
  | { readonly state: 'other_format'; readonly message: string }
  | { readonly state: 'ready'; readonly gateways: number }
> {
  const connection = openConnection(targetOf(options), accessOf(options.url), { name: 'svc:glance' });
  try {
    await connection.ready();
    await checkServer(connection, options.durability, options.allowWeakDurability, true);
    // The installation is on another node of the cluster; this node only has to be fit.
    if (options.mode === 'cluster') return { state: 'ready', gateways: 0 };
    const [epoch, install, gateways] = await connection.pipeline([
      ['HGET', metaKey(''), 'epoch'],
      ['HGET', metaKey(''), INSTALL_FIELD],
      ['HLEN', keyOf('', 'gw')],
    ]);
    if (epoch === null) return { state: 'absent' };
    return install === null
      ? { state: 'other_format', message: `${OTHER_FORMAT}.` }
      : { state: 'ready', gateways: Number(gateways) };
  } catch (error) {
    return { state: 'unfit', message: error instanceof Error ? error.message : String(error) };
  } finally {
    connection.close();
  }
}
