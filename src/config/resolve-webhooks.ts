import { createHash } from 'node:crypto';
import { isIPv4 } from 'node:net';
import { percentDecoded } from '../bytes/percent-decoded.ts';
import { type MailServer, NOTIFICATION_EVENTS, type Receiver } from '../effects/model/notification.ts';
import { at, type Judge } from './judge.ts';
import type { GatewayFile } from './schema.ts';
import { parseDuration } from './units.ts';

type Webhook = GatewayFile['webhooks'][number];

/** Each is served by itself. */
const MOST_WEBHOOKS = 20;
const MOST_RECIPIENTS = 50;

/** Who is told of what happens. Addresses and secrets are in no finding. */
export function resolveWebhooks(file: GatewayFile, judge: Judge): readonly Receiver[] {
  const [excess] = file.webhooks.slice(MOST_WEBHOOKS);
  if (excess !== undefined) judge.error('too_many', at(excess), `There are more than ${MOST_WEBHOOKS} webhooks`);
  const names = new Set<string>();
  return file.webhooks.flatMap((webhook) => {
    const receiver = resolveWebhook(webhook, judge);
    if (receiver === null) return [];
    if (names.has(receiver.name.toLowerCase()))
      judge.error('duplicate_webhook', at(webhook), [`There are two webhooks '${receiver.name}'`, 'give each a name']);
    names.add(receiver.name.toLowerCase());
    return [receiver];
  });
}

function resolveWebhook(webhook: Webhook, judge: Judge): Receiver | null {
  const { network, events, workspaces } = webhook;
  const name = webhook.name ?? (URL.canParse(webhook.url) ? new URL(webhook.url).hostname : '');
  const common = {
    id: createHash('sha256').update(name).digest('hex').slice(0, 16),
    name,
    network,
    events: events ?? NOTIFICATION_EVENTS,
    workspaces: workspaces ?? null,
    // The schema has checked the form.
    retryFirstMs: parseDuration(webhook.retry_first) ?? 0,
    retryForMs: parseDuration(webhook.retry_for) ?? 0,
  };
  if (webhook.format === 'mail') {
    const server = mailServerOf(webhook, judge);
    const { from, to } = webhook;
    if (from === undefined) judge.error('missing_field', at(webhook), "'from' is missing in a webhook for mail");
    if (to.length === 0 || to.length > MOST_RECIPIENTS)
      judge.error(
        'missing_field',
        at(webhook, 'to'),
        `A webhook for mail has 1 to ${MOST_RECIPIENTS} recipients in 'to'`,
      );
    return server === null || from === undefined ? null : { ...common, format: 'mail', server, from, to };
  }
  if (webhook.from !== undefined || webhook.to.length > 0)
    judge.error('unused_field', at(webhook), "'from' and 'to' are for webhooks with format: mail");
  const url = urlOf(webhook, judge);
  const secrets = secretsOf(webhook, judge);
  return url === null ? null : { ...common, format: webhook.format, url, secrets };
}

function urlOf(webhook: Webhook, judge: Judge): string | null {
  const url = URL.canParse(webhook.url) ? new URL(webhook.url) : null;
  if (url === null || !/^https?:$/.test(url.protocol) || url.username !== '' || url.password !== '') {
    judge.error(
      'bad_url',
      at(webhook, 'url'),
      'The url of a webhook has to be an https or http URL without user and password',
    );
    return null;
  }
  if (url.protocol === 'http:' && !isLoopback(url.hostname))
    judge.warn('plain_http', at(webhook, 'url'), ['Notifications go to this webhook in clear', 'use https']);
  return url.href;
}

function secretsOf(webhook: Webhook, judge: Judge): readonly string[] {
  const { secret, previous_secret: previous } = webhook;
  if (webhook.format === 'standard' && secret === undefined)
    judge.error('missing_field', at(webhook), ["'secret' is missing in a webhook", HOW_TO_MAKE]);
  if (secret === undefined && previous !== undefined)
    judge.error('missing_field', at(webhook), "'previous_secret' needs 'secret', which takes its place");
  return (['secret', 'previous_secret'] as const).flatMap((field) => {
    const value = webhook[field];
    if (value === undefined) return [];
    const text = value.replace(/^whsec_/, '');
    const bytes = Buffer.from(text, 'base64');
    const isBase64 = bytes.toString('base64').replace(/=+$/, '') === text.replace(/=+$/, '');
    if (!isBase64 || bytes.length < 24 || bytes.length > 64)
      judge.error('bad_secret', at(webhook, field), [
        'The secret of a webhook is 24 to 64 bytes as Base64',
        HOW_TO_MAKE,
      ]);
    return [bytes.toString('base64')];
  });
}

const HOW_TO_MAKE = 'make one with: echo "whsec_$(openssl rand -base64 32)"';

function mailServerOf(webhook: Webhook, judge: Judge): MailServer | null {
  const { secret, previous_secret: previous } = webhook;
  if (secret !== undefined || previous !== undefined)
    judge.error('unused_field', at(webhook), 'Mail is not signed with a secret');
  const url = URL.canParse(webhook.url) ? new URL(webhook.url) : null;
  const isPlain = url?.protocol === 'smtp:';
  if (url === null || (!isPlain && url.protocol !== 'smtps:') || url.hostname === '' || !/^\/?$/.test(url.pathname)) {
    judge.error(
      'bad_url',
      at(webhook, 'url'),
      'The url of a webhook for mail has to be smtps://… or smtp://…, without a path',
    );
    return null;
  }
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  const user = percentDecoded(url.username);
  const password = percentDecoded(url.password);
  if (user === null || password === null) {
    judge.error('bad_url', at(webhook, 'url'), 'User and password in the url of a webhook have to be percent-encoded');
    return null;
  }
  const tls = !isPlain ? 'implicit' : isLoopback(url.hostname) ? 'none' : 'required';
  return { host, port: url.port === '' ? (isPlain ? 587 : 465) : Number(url.port), tls, user, password };
}

export function isLoopback(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || (isIPv4(hostname) && hostname.startsWith('127.'));
}
