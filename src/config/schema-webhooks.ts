import { Type } from 'typebox';
import { NOTIFICATION_EVENTS } from '../effects/model/notification.ts';
import { duration, list, oneOf, record, slug, slugWords, text } from './schema-fields.ts';

const address = (description: string) =>
  text('^[^\\s<>,;"@\\u0000-\\u001f]+@[^\\s<>,;"@\\u0000-\\u001f]+$', 'a mail address', description);

/** Somebody who is told what happens; see [notifications.md](notifications.md). */
export const webhook = record(
  'a webhook',
  'Somebody who is told what happens; see [notifications.md](notifications.md).',
  {
    name: Type.Optional(
      text(
        slug,
        slugWords,
        'Names the receiver: what waits for it is kept by this name when its address or secret changes. Default: the host of the url.',
      ),
    ),
    format: oneOf(
      ['standard', 'slack', 'mail'],
      'standard: JSON, signed as Standard Webhooks. slack: what incoming webhooks of Slack, and those like them, take. mail: by SMTP.',
      'standard',
    ),
    // No patterns here: a message about one would show the value, which can hold a secret.
    url: Type.String({
      description:
        'Where it goes: an https or http URL; mail: `smtps://user:password@host:465`, or `smtp://user:password@host:587`, which is refused without STARTTLS except on this machine. Write secrets as ${NAME}.',
    }),
    secret: Type.Optional(
      Type.String({
        description: 'What signs: `whsec_` and 24 to 64 bytes as Base64. Required for standard; write it as ${NAME}.',
      }),
    ),
    previous_secret: Type.Optional(
      Type.String({ description: 'The one before, while receivers take up the new one: both sign.' }),
    ),
    events: Type.Optional(
      Type.Array(oneOf(NOTIFICATION_EVENTS, 'An event.'), { minItems: 1, description: 'Which events. Default: all.' }),
    ),
    workspaces: Type.Optional(
      Type.Array(text(slug, slugWords, 'A workspace.'), {
        minItems: 1,
        description: 'Of which workspaces. Default: of all, and of the installation.',
      }),
    ),
    network: oneOf(['any', 'public'], 'public: loopback and private addresses are refused.', 'any'),
    from: Type.Optional(address('mail: the sender.')),
    to: list('mail: who gets it.', address('A recipient.')),
    retry_first: duration(
      'The wait before the second attempt; each further one is twice as long, up to 6h.',
      { min: '50ms', max: '1h' },
      '5s',
    ),
    retry_for: duration('Attempts are made for this long.', { min: '1s', max: '30d' }, '3d'),
  },
);
