import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { SMTPServer } from 'smtp-server';

/** A mail as the server got it. */
export interface Mail {
  readonly from: string;
  readonly to: readonly string[];
  readonly text: string;
}

/** A real SMTP server on this machine, which knows one user. `fails`: the first so many mails are refused for now. `tls`: from the first byte on. */
export async function startMailServer(
  user: { readonly name: string; readonly password: string },
  fails: number,
  tls: { readonly cert: string; readonly key: string } | null = null,
): Promise<{ readonly port: number; readonly mails: readonly Mail[]; close(): Promise<void> }> {
  const mails: Mail[] = [];
  let refused = 0;
  const server = new SMTPServer({
    ...(tls === null ? {} : { ...tls, secure: true }),
    authMethods: ['PLAIN', 'LOGIN'],
    allowInsecureAuth: true,
    disabledCommands: ['STARTTLS'],
    onAuth({ username, password }, _session, callback) {
      if (username === user.name && password === user.password) callback(null, { user: username });
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
