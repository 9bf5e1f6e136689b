import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import type { Message } from '../../src/notifications/message.ts';
import { send } from '../../src/notifications/send.ts';
import { startMailServer } from '../system/mail-server.ts';
import { makeCa } from '../upstream/certificates.ts';

/* To a real SMTP server on this machine, which offers no encryption. */

const USER = { name: 'gateway', password: 'canary-password' };

let server: Awaited<ReturnType<typeof startMailServer>>;
beforeAll(async () => {
  server = await startMailServer(USER, 0);
});
afterAll(() => server.close());

const MESSAGE: Message = {
  id: 'msg_1',
  event: 'execution.lost',
  at: 0,
  title: 'The outcome of a call is not known',
  facts: [],
  link: { url: 'http://gateway.test/console', words: 'Look' },
  body: {},
};

const mailBy = (tls: 'required' | 'none', { port } = server, user = USER, network: 'any' | 'public' = 'any') =>
  send(
    {
      id: 'ops',
      name: 'ops',
      events: ['execution.lost'],
      workspaces: null,
      retryFirstMs: 1_000,
      retryForMs: 1_000,
      format: 'mail',
      server: { host: '127.0.0.1', port, tls, user: user.name, password: user.password },
      from: 'gateway@svc.test',
      to: ['ops@svc.test'],
      network,
    },
    MESSAGE,
    0,
  );

it('no mail and no password goes in clear, unless the configuration says so', async () => {
  expect(await mailBy('required')).toMatchObject({ kind: 'failed' });
  expect(server.mails).toEqual([]);
  expect(await mailBy('none')).toEqual({ kind: 'delivered' });
  expect(server.mails).toMatchObject([{ to: ['ops@svc.test'] }]);
});

it('no mail and no password goes to a server with a certificate that is not trusted', async () => {
  const foreign = makeCa('of others').issue('127.0.0.1', { ip: '127.0.0.1' });
  const asking = await startMailServer(USER, 0, { ...foreign, isAsked: true });
  onTestFinished(() => asking.close());
  expect(await mailBy('required', asking)).toMatchObject({ kind: 'failed', why: 'the connection failed (ESOCKET)' });
  expect(asking.mails).toEqual([]);
});

it('a mail that may go in clear goes so, whatever encryption a server offers', async () => {
  const foreign = makeCa('of others').issue('127.0.0.1', { ip: '127.0.0.1' });
  const offering = await startMailServer(null, 0, { ...foreign, isAsked: true });
  onTestFinished(() => offering.close());
  expect(await mailBy('none', offering, { name: '', password: '' })).toEqual({ kind: 'delivered' });
});

it('no mail goes to an address that is not public, where only those are allowed', async () => {
  const before = server.mails.length;
  const why = "the receiver's address is refused: it is a loopback address";
  expect(await mailBy('none', server, USER, 'public')).toEqual({ kind: 'failed', why, afterMs: 0 });
  expect(server.mails).toHaveLength(before);
});

it('a server that asks nobody gets no password', async () => {
  const open = await startMailServer(null, 0);
  onTestFinished(() => open.close());
  expect(await mailBy('none', open, { name: '', password: '' })).toEqual({ kind: 'delivered' });
  expect(open.mails).toHaveLength(1);
});

it('of what a server answers only the number is told', async () => {
  const later = await startMailServer(USER, 1);
  onTestFinished(() => later.close());
  expect(await mailBy('none', later)).toEqual({ kind: 'failed', why: 'it answered 451', afterMs: 0 });
  expect(await mailBy('none', later)).toEqual({ kind: 'delivered' });
});

it('a mail has the id of the notification and its time, and asks no machine for an answer', async () => {
  await mailBy('none');
  const head = (server.mails.at(-1)?.text ?? '').split('\r\n\r\n')[0]?.split('\r\n');
  expect(head?.map((line) => line.toLowerCase())).toEqual(
    expect.arrayContaining([
      'message-id: <msg_1@svc-gateway.invalid>',
      'webhook-id: msg_1',
      'date: thu, 01 jan 1970 00:00:00 +0000',
      'auto-submitted: auto-generated',
    ]),
  );
});
