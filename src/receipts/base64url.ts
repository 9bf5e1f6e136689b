/**
 * Strict base64url (RFC 4648, section 5, without padding). Node's decoder forgives other letters, padding, line ends
 * and unused bits at the end. Each of these would be another spelling of the same JWS.
 * @returns `null` for every text but the one that encoding gives
 */
export function decodeBase64url(text: string): Buffer | null {
  const bytes = Buffer.from(text, 'base64url');
  return bytes.toString('base64url') === text ? bytes : null;
}
