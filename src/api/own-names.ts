import { hostName } from './listeners.ts';
import type { ApiSettings } from './ports.ts';

/** To connect to no address at all is to connect to this machine. */
const LOOPBACK: readonly string[] = ['127.0.0.1', '::1', 'localhost', '0.0.0.0', '::'];
/** How often percent signs are taken away: addresses stand in the queries of others. */
const UNPACKED = 3;
/** Characters of the longest address that is looked at. */
export const LONGEST_ADDRESS = 4_096;

/**
 * Whether an address names this gateway, or could make a person believe so: as its host, within the host's name, as the
 * user before it, or anywhere else where the name has a dot. On loopback, where everything has the same name, the port
 * counts, too. What is too long to be looked at could.
 */
export function namesGateway(
  address: string,
  { publicUrl, allowedHosts }: Pick<ApiSettings, 'publicUrl' | 'allowedHosts'>,
): boolean {
  if (address.length > LONGEST_ADDRESS) return true;
  const own = URL.canParse(publicUrl) ? new URL(publicUrl) : null;
  const texts = unpacked(address);
  const url = URL.canParse(address.trim()) ? new URL(address.trim()) : null;
  const host = url === null ? '' : plainName(url.hostname);
  const names = [...(own === null ? [] : [own.hostname]), ...allowedHosts].map(plainName).filter(Boolean);
  return names.some((name) => {
    if (LOOPBACK.includes(name))
      return url !== null && LOOPBACK.includes(host) && own !== null && portOf(url) === portOf(own);
    if (host === name || host.endsWith(`.${name}`) || host.startsWith(`${name}.`)) return true;
    const user = url === null ? address : `${url.username}:${url.password}`;
    return name.includes('.')
      ? texts.some((text) => holdsName(text, name))
      : unpacked(user).some((text) => holdsName(text, name));
  });
}

function plainName(name: string): string {
  return (hostName(name) ?? name)
    .toLowerCase()
    .replace(/^\[|\]$/g, '')
    .replace(/\.$/, '');
}

function portOf({ port, protocol }: URL): string {
  return port === '' ? (protocol === 'https:' ? '443' : '80') : port;
}

/** A name that is not a part of another word. */
function holdsName(text: string, name: string): boolean {
  for (let at = text.indexOf(name); at !== -1; at = text.indexOf(name, at + 1)) {
    const [before = '', after = ''] = [text[at - 1], text[at + name.length]];
    if (!/[a-z0-9-]/.test(before) && !/[a-z0-9-]/.test(after)) return true;
  }
  return false;
}

function unpacked(address: string): readonly string[] {
  const texts = [folded(address)];
  for (let times = 0; times < UNPACKED; times += 1) {
    const last = texts.at(-1) ?? '';
    const next = last.replace(/(?:%[0-9a-f]{2})+/g, (found) =>
      folded(Buffer.from(found.replaceAll('%', ''), 'hex').toString('utf8')),
    );
    if (next === last) break;
    texts.push(next);
  }
  return texts;
}

/** In parts: marks that follow a letter are put in order, and of n in a row that takes n times n steps. */
function folded(text: string): string {
  return text.replace(/.{1,256}/gsu, (part) => part.normalize('NFKC')).toLowerCase();
}
