import { createHmac } from 'node:crypto';
import type { Socket } from 'node:net';
import type { Attempted, MailServer, Receiver } from '../effects/model/notification.ts';
import { ConnectFailed } from '../upstreams/http/connect.ts';
import { connectTo, postOnce } from '../upstreams/http/request-once.ts';
import { VERSION } from '../version.ts';
import { mailText, type Message, slackBody } from './message.ts';

/** An attempt that takes longer has failed, ms. */
export const SEND_TIMEOUT_MS = 10_000;

const FAILED = (why: string, afterMs = 0): Attempted => ({ kind: 'failed', why, afterMs });

/** Makes one attempt. It never rejects. @param now ms, for the time that is signed */
export async function send(receiver: Receiver, message: Message, now: number): Promise<Attempted> {
  try {
    switch (receiver.format) {
      case 'standard':
        return await post(receiver, message.id, JSON.stringify(message.body), now);
      case 'slack':
        return await post(receiver, message.id, JSON.stringify(slackBody(message)), now);
      case 'mail':
        return await mail(receiver, message);
    }
  } catch (error) {
    return FAILED(reasonOf(error));
  }
}

async function post(
  { url, secrets, network }: Extract<Receiver, { readonly url: string }>,
  id: string,
  body: string,
  now: number,
): Promise<Attempted> {
  const headers = {
    'content-type': 'application/json; charset=utf-8',
    'user-agent': `svc-gateway/${VERSION}`,
    ...signatureHeaders(id, Math.floor(now / 1000), body, secrets),
  };
  const request = { method: 'POST', url, headers, body, network, timeoutMs: SEND_TIMEOUT_MS } as const;
  const { status, retryAfterMs } = await postOnce(request);
  if (status >= 200 && status < 300) return { kind: 'delivered' };
  if (status === 410) return { kind: 'refused', why: 'it answered 410: it takes nothing more' };
  if (status >= 300 && status < 400) return FAILED(`it answered ${status}: redirects are not followed`);
  return FAILED(`it answered ${status}`, retryAfterMs);
}

async function mail(
  { server, from, to, network }: Extract<Receiver, { readonly format: 'mail' }>,
  message: Message,
): Promise<Attempted> {
  const { host, port } = server;
  const signal = AbortSignal.timeout(SEND_TIMEOUT_MS);
  const connection = await connectTo(host, port, network);
  try {
    const transport = await transportBy(connection, server);
    await transport.sendMail({
      from,
      to: [...to],
      subject: `[svc] ${message.title}`,
      text: mailText(message),
      // The same at every attempt: what comes twice is known.
      messageId: `<${message.id}@svc-gateway.invalid>`,
      date: new Date(message.at),
      headers: { 'webhook-id': message.id, 'auto-submitted': 'auto-generated' },
      disableFileAccess: true,
      disableUrlAccess: true,
      signal,
    });
    return { kind: 'delivered' };
  } finally {
    connection.destroy();
  }
}

/** Of the libraries only this one is read when the first mail is sent. */
async function transportBy(connection: Socket, { host, port, tls, user, password }: MailServer) {
  const { createTransport } = await import('nodemailer');
  return createTransport({
    host,
    port,
    connection,
    secure: tls === 'implicit',
    requireTLS: tls === 'required',
    ignoreTLS: tls === 'none',
    tls: { rejectUnauthorized: true, minVersion: 'TLSv1.2' },
    ...(user === '' ? {} : { auth: { user, pass: password } }),
    greetingTimeout: SEND_TIMEOUT_MS,
    socketTimeout: SEND_TIMEOUT_MS,
  });
}

/** What went wrong, without addresses, texts of the other side, or anything else that could hold a secret. */
function reasonOf(error: unknown): string {
  if (error instanceof ConnectFailed) return error.message.replaceAll('the upstream', 'the receiver');
  if (!(error instanceof Error)) return 'it failed';
  if (error.name === 'TimeoutError' || error.name === 'AbortError')
    return `it did not answer within ${SEND_TIMEOUT_MS / 1000} s`;
  const said =
    'responseCode' in error && typeof error.responseCode === 'number' ? `it answered ${error.responseCode}` : null;
  const code = 'code' in error && typeof error.code === 'string' ? error.code : null;
  return said ?? (code === null ? 'the connection ended before an answer' : `the connection failed (${code})`);
}

/**
 * The headers of Standard Webhooks (https://www.standardwebhooks.com): the id, the time, and a signature by each secret,
 * so that receivers may know either while one takes the place of the other. None without a secret.
 * @param at seconds since the epoch
 * @param secrets as Base64
 */
function signatureHeaders(
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
