import { isIPv6 } from 'node:net';

/**
 * The name in `name:port`, in lower case, without the brackets of IPv6 and without one dot at the end; `null` if it is
 * not one.
 */
export function hostName(host: string): string | null {
  const match = /^(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?$/i.exec(host);
  const [, v6, name] = match ?? [];
  if (v6 !== undefined) return isIPv6(v6) ? v6.toLowerCase() : null;
  return name?.toLowerCase().replace(/\.$/, '') ?? null;
}
