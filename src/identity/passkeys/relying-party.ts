/** For whom passkeys are: browsers use one only on pages of its origin. */
export interface RelyingParty {
  /** A domain. */
  readonly id: string;
  readonly origin: string;
}

const LOOPBACK = /^(?:127\.\d+\.\d+\.\d+|\[::1\]|localhost)$/;
const ADDRESS = /^(?:\d+\.\d+\.\d+\.\d+|\[.*\])$/;

/**
 * Whose passkeys are used on pages of this gateway: the host of its public address. Where that is on loopback, the host of
 * the request counts, which then has to be `localhost`: browsers have no passkeys for addresses.
 * @param host header of the request
 * @returns `null` where browsers would use none: for an address, and without TLS
 */
export function relyingPartyOf(publicUrl: string, host: string | undefined): RelyingParty | null {
  const { protocol, hostname, origin } = new URL(publicUrl);
  if (!LOOPBACK.test(hostname))
    return protocol === 'https:' && !ADDRESS.test(hostname) ? { id: hostname, origin } : null;
  const asked = `${protocol}//${host ?? ''}`;
  if (!/^localhost(?::\d{1,5})?$/i.test(host ?? '') || !URL.canParse(asked)) return null;
  return { id: 'localhost', origin: new URL(asked).origin };
}
