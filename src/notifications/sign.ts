import { createHmac } from 'node:crypto';

/**
 * The headers of Standard Webhooks (https://www.standardwebhooks.com): the id, the time, and a signature by each secret,
 * so that receivers may know either while one takes the place of the other. None without a secret.
 * @param at seconds since the epoch
 * @param secrets as Base64
 */
export function signatureHeaders(
  id: string,
  at: number,
  body: string,
  secrets: readonly string[],
): Readonly<Record<string, string>> {
  const signed = `${id}.${at}.${body}`;
  const signatures = secrets.map(
    (secret) => `v1,${createHmac('sha256', Buffer.from(secret, 'base64')).update(signed, 'utf8').digest('base64')}`,
  );
  return {
    'webhook-id': id,
    'webhook-timestamp': String(at),
    ...(signatures.length === 0 ? {} : { 'webhook-signature': signatures.join(' ') }),
  };
}
