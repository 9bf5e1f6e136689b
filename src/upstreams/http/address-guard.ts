import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';

type Address = ReturnType<typeof ipaddr.parse>;

/** Addresses at which clouds hand out credentials. */
const METADATA = ['fd00:ec2::254', 'fd20:ce::254', '100.100.100.200', '192.0.0.192'].map((text) => ipaddr.parse(text));

/** Never an upstream, whatever the configuration says. */
const NEVER: ReadonlySet<string> = new Set(['unspecified', 'linkLocal', 'multicast', 'broadcast']);

/**
 * Why a connection to an address is refused; `null` if it is allowed. Every address that the text stands for is judged:
 * the whole, and any IPv4 address inside IPv6 (mapped, compatible, translated, NAT64, 6to4, Teredo, ISATAP).
 * @param network `any` allows loopback and private addresses, `public` only public ones
 */
export function refusedAddress(address: string, network: 'any' | 'public'): string | null {
  const text = address.replace(/%.*$/, '').replace(/^\[(.*)\]$/, '$1');
  if (isIP(text) === 0) return 'it is not an IP address';
  for (const each of meanings(ipaddr.parse(text))) {
    const range = each.range();
    if (NEVER.has(range)) return `it is a ${range} address`;
    if (METADATA.some((metadata) => metadata.toNormalizedString() === each.toNormalizedString())) {
      return 'it is a metadata address';
    }
    if (network === 'public' && range !== 'unicast' && !CARRIERS.has(range)) return `it is a ${range} address`;
  }
  return null;
}

/** IPv6 forms that contain an IPv4 address, which is judged too. */
const CARRIERS: ReadonlySet<string> = new Set(['ipv4Mapped', 'rfc6145', 'rfc6052', '6to4', 'teredo']);

/** The address itself, and the IPv4 addresses inside it. */
function meanings(address: Address): readonly Address[] {
  if (address.kind() === 'ipv4') return [address];
  const bytes = address.toByteArray();
  const range = address.range();
  const found: Address[] = [address];
  const tail = bytes.slice(12);
  if (range === 'ipv4Mapped' || range === 'rfc6145' || range === 'rfc6052') found.push(ipv4(tail));
  // NAT64 for local use (RFC 8215) leaves the prefix length open; RFC 6052 derives the places of the four bytes from it
  // and leaves out byte 8.
  if (startsWith(bytes, [0x00, 0x64, 0xff, 0x9b, 0x00, 0x01])) {
    for (const from of [6, 7, 8]) found.push(ipv4([...bytes.slice(from, 8), ...bytes.slice(9, from + 5)]));
  }
  // IPv4-compatible (RFC 4291); `::` and `::1` are judged as what they are.
  if (bytes.slice(0, 12).every((byte) => byte === 0) && (bytes[12] ?? 0) !== 0) found.push(ipv4(tail));
  if (range === '6to4') found.push(ipv4(bytes.slice(2, 6)));
  if (range === 'teredo') found.push(ipv4(bytes.slice(4, 8)), ipv4(tail.map((byte) => byte ^ 0xff)));
  // ISATAP: …:0:5efe:a.b.c.d and …:200:5efe:a.b.c.d
  if (bytes[9] === 0 && bytes[10] === 0x5e && bytes[11] === 0xfe) found.push(ipv4(tail));
  return found;
}

function ipv4(bytes: readonly number[]): Address {
  return ipaddr.fromByteArray([...bytes]);
}

function startsWith(bytes: readonly number[], prefix: readonly number[]): boolean {
  return prefix.every((byte, index) => bytes[index] === byte);
}
