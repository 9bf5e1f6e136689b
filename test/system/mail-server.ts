import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { SMTPServer } from 'smtp-server';

/** A mail as the server got it. */
export interface Mail {
  readonly from: string;
  readonly to: readonly string[];
  readonly text: string;
}

/**
 * A real SMTP server on this machine, which knows one user, or asks for none. `fails`: the first so many mails are refused
 * for now. `tls`: from the first byte on, or from the word STARTTLS on, and then with TLS 1.2.
 */
export async function startMailServer(
  user: { readonly name: string; readonly password: string } | null,
  fails: number,
  tls: { readonly cert: string; readonly key: string; readonly isAsked?: boolean } | null = null,
): Promise<{ readonly port: number; readonly mails: readonly Mail[]; close(): Promise<void> }> {
  const mails: Mail[] = [];
  let refused = 0;
  const isAsked = tls?.isAsked === true;
  const server = new SMTPServer({
    ...(tls === null ? {} : { cert: tls.cert, key: tls.key, secure: !isAsked }),
    ...(isAsked ? { maxVersion: 'TLSv1.2' } : { disabledCommands: ['STARTTLS'] }),
    authMethods: ['PLAIN', 'LOGIN'],
    authOptional: user === null,
    // No password is taken before the encryption that is offered.
    allowInsecureAuth: !isAsked,
    onAuth({ username, password }, _session, callback) {
      if (user !== null && username === user.name && password === user.password) callback(null, { user: username });
      else callback(new Error('no'));
    },
    onData(stream, { envelope }, callback) {
      void (async () => {
        const mail = await text(stream);
        refused += 1;
        if (refused <= fails) {
          callback(Object.assign(new Error('later'), { responseCode: 451 }));
          return;
        }
        mails.push({
          from: envelope.mailFrom === false ? '' : envelope.mailFrom.address,
          to: envelope.rcptTo.map(({ address }) => address),
          text: mail,
        });
        callback();
      })();
    },
  });
  // Of clients that leave because they do not trust it.
  server.on('error', () => undefined);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()));
  const { port } = server.server.address() as AddressInfo;
  return { port, mails, close: () => new Promise((resolve) => server.close(resolve)) };
}
