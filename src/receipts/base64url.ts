/**
 * Strict base64url (RFC 4648, section 5, without padding). Node's decoder also accepts other letters, padding, line
 * ends and unused bits at the end. Each of these would be a second spelling of the same JWS.
 * @returns `null` unless the text is exactly what encoding gives
 */
export function decodeBase64url(text: string): Buffer | null {
  const bytes = Buffer.from(text, 'base64url');
  return bytes.toString('base64url') === text ? bytes : null;
}
