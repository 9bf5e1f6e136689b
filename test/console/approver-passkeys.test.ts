import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { refund, type Rig, type Seen, startRig } from '../api/rig.ts';
import { parseKey } from '../../src/identity/key-format.ts';
import { createAuthenticator } from './authenticator.ts';

/* Passkeys on the approver's page: what a passkey opens there, and what it does not. */

const WS = '/v1/workspaces/demo';
const HOST = { host: 'localhost:8080' };
const CONSOLE = { ...HOST, 'svc-console': '1' };

let rig: Rig;
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.close());
afterEach(async () => {
  for (const user of ['maria', 'ops', 'olga'])
    for (const { id } of await rig.ports.store.passkeys(user))
      await rig.ports.store.removePasskey(user, id, { type: 'user', id: user });
});

type Authenticator = ReturnType<typeof createAuthenticator>;
type Headers = Record<string, string>;

/** Adds a passkey on the console, as a person does who has shown a key there. */
async function added(key: string, authenticator: Authenticator): Promise<string> {
  const entered = await rig.send('POST', '/console/session', { key: null, body: { key }, headers: CONSOLE });
  expect(entered.status, entered.text).toBe(204);
  const headers = { ...CONSOLE, cookie: String(entered.headers['set-cookie']).split(';')[0] ?? '' };
  const begun = await rig.send('POST', '/console/passkeys/options', { key: null, headers, body: {} });
  const { ceremony, options } = JSON.parse(begun.text);
  const credential = authenticator.make({ challenge: options.challenge });
  const body = { name: 'Phone', ceremony, credential };
  const made = await rig.send('POST', '/console/passkeys', { key: null, headers, body });
  expect(made.status, made.text).toBe(201);
  return String(made.json['id']);
}

let unique = 0;
/** A refund that waits, and the path of its page. */
async function waiting() {
  unique += 1;
  const body = refund({ params: { payment_id: 'pay_1', amount: 60_000 + unique, currency: 'EUR' } });
  const run = await rig.send('POST', `${WS}/effects`, { body, key: rig.keys.account });
  const { url } = run.json['approval'] as unknown as { url: string };
  return { path: new URL(url).pathname, effect: String(run.json['effect_id']) };
}

const look = (path: string, headers: Headers = {}): Promise<Seen> =>
  rig.send('GET', path, { key: null, headers: { ...HOST, ...headers } });
const post = (path: string, fields: Record<string, string>, headers: Headers = {}): Promise<Seen> =>
  rig.send('POST', path, {
    key: null,
    raw: new URLSearchParams(fields).toString(),
    headers: {
      'content-type': 'application/x-www-form-urlencoded',
      origin: 'http://localhost:8080',
      ...HOST,
      ...headers,
    },
  });

/** What the page asks a passkey to sign. */
function askedOf({ text }: Seen): { readonly ceremony: string; readonly challenge: string; readonly party: string } {
  const found = (pattern: RegExp): string => pattern.exec(text)?.[1] ?? '';
  return {
    ceremony: found(/name="ceremony" value="([^"]+)"/),
    challenge: found(/data-challenge="([^"]+)"/),
    party: found(/data-party="([^"]+)"/),
  };
}

/** The fields of the form, as the page's script fills them. */
function signedBy(
  authenticator: Authenticator,
  { ceremony, challenge }: { readonly ceremony: string; readonly challenge: string },
  more: { readonly origin?: string; readonly isVerified?: boolean } = {},
): Record<string, string> {
  const { id, response } = authenticator.get({ challenge, counter: 0, ...more });
  const { clientDataJSON: client_data, authenticatorData: authenticator_data, signature } = response;
  return { ceremony, credential: id, client_data, authenticator_data, signature };
}

const cookieOf = ({ headers }: Seen): Headers => ({ cookie: String(headers['set-cookie']).split(';')[0] ?? '' });
const formIn = ({ text }: Seen): string => /name="form" value="([^"]+)"/.exec(text)?.[1] ?? '';
const stateOf = async (effect: string) => (await rig.send('GET', `${WS}/effects/${effect}`)).json['effect'];

describe('a passkey on the page of a request', () => {
  it('opens it without a key, and the vote runs the call', async () => {
    const authenticator = createAuthenticator();
    const id = await added(rig.keys.approver, authenticator);
    const { path, effect } = await waiting();
    const first = await look(path);
    expect(askedOf(first).party).toBe('localhost');
    const entered = await post(`${path}/passkey`, signedBy(authenticator, askedOf(first)));
    expect([entered.status, entered.headers['location']], entered.text).toEqual([303, path]);
    const page = await look(path, cookieOf(entered));
    expect(page.text).toContain('You are maria');
    const voted = await post(path, { form: formIn(page), verdict: 'approve' }, cookieOf(entered));
    expect(voted.status, voted.text).toBe(303);
    expect(await stateOf(effect)).toMatchObject({ state: 'committed' });
    const { ledger } = (await rig.send('GET', `${WS}/effects/${effect}`)).json as unknown as {
      readonly ledger: readonly { readonly kind: string; readonly data: object }[];
    };
    expect(ledger.find(({ kind }) => kind === 'approval.granted')?.data).toMatchObject({
      user: 'maria',
      key_id: `key_${parseKey(rig.keys.approver)?.handle}`,
      passkey_id: id,
    });
  });

  it('is asked for nothing where browsers have none: there is the key', async () => {
    const { path } = await waiting();
    const elsewhere = await look(path, { host: '127.0.0.1:8080' });
    expect(elsewhere.text).not.toContain('passkey"');
    expect(elsewhere.text).toContain('Your API key');
    const sent = await post(
      `${path}/passkey`,
      { ceremony: 'a', credential: 'a', client_data: 'a', authenticator_data: 'a', signature: 'a' },
      { host: '127.0.0.1:8080', origin: 'http://127.0.0.1:8080' },
    );
    expect([sent.status, sent.headers['set-cookie']]).toEqual([409, undefined]);
  });

  it('opens nothing with what was signed for another request, for the console, or a second time', async () => {
    const authenticator = createAuthenticator();
    await added(rig.keys.approver, authenticator);
    const [one, other] = [await waiting(), await waiting()];
    const refused = async (fields: Record<string, string>): Promise<void> => {
      const answer = await post(`${one.path}/passkey`, fields);
      expect([answer.status, answer.headers['set-cookie']], answer.text).toEqual([403, undefined]);
      expect(answer.text).toContain('This passkey is not known here');
      expect(answer.text).toContain('name="ceremony"');
    };
    await refused(signedBy(authenticator, askedOf(await look(other.path))));
    const { ceremony, challenge } = (
      await rig.send('POST', '/console/passkeys/challenge', { key: null, headers: CONSOLE, body: {} })
    ).json as unknown as { ceremony: string; challenge: string };
    await refused(signedBy(authenticator, { ceremony, challenge }));
    const good = signedBy(authenticator, askedOf(await look(one.path)));
    expect((await post(`${one.path}/passkey`, good)).status).toBe(303);
    await refused(good);
    const onConsole = await rig.send('POST', '/console/session', {
      key: null,
      headers: CONSOLE,
      body: {
        passkey: (({ ceremony: sealed, challenge: asked }) => ({
          ceremony: sealed,
          assertion: authenticator.get({ challenge: asked, counter: 0 }),
        }))(askedOf(await look(one.path))),
      },
    });
    expect(onConsole.status, onConsole.text).toBe(403);
  });

  it.each([
    ['a page of another origin', { origin: 'https://evil.example' }],
    ['a device that asked for neither finger nor PIN', { isVerified: false }],
  ])('opens nothing from %s', async (_, more) => {
    const authenticator = createAuthenticator();
    await added(rig.keys.approver, authenticator);
    const { path } = await waiting();
    const answer = await post(`${path}/passkey`, signedBy(authenticator, askedOf(await look(path)), more));
    expect([answer.status, answer.headers['set-cookie']]).toEqual([403, undefined]);
  });

  it('of somebody who may not decide here, or of nobody, opens nothing', async () => {
    const { path } = await waiting();
    const stranger = await post(`${path}/passkey`, signedBy(createAuthenticator(), askedOf(await look(path))));
    expect([stranger.status, stranger.headers['set-cookie']]).toEqual([403, undefined]);
    const empty = await post(`${path}/passkey`, { ceremony: askedOf(await look(path)).ceremony });
    expect([empty.status, empty.headers['set-cookie']]).toEqual([400, undefined]);
    const elsewhere = createAuthenticator();
    await added(rig.keys.approver, elsewhere);
    const foreign = await waiting();
    const other = foreign.path.replace('/demo/', '/other/');
    const answer = await post(`${other}/passkey`, signedBy(elsewhere, askedOf(await look(other))));
    expect([answer.status, answer.headers['set-cookie']], answer.text).toEqual([403, undefined]);
  });

  it('ends the session that it began when it is removed, and a vote of that session decides nothing', async () => {
    const authenticator = createAuthenticator();
    const id = await added(rig.keys.approver, authenticator);
    const { path, effect } = await waiting();
    const entered = cookieOf(await post(`${path}/passkey`, signedBy(authenticator, askedOf(await look(path)))));
    const form = formIn(await look(path, entered));
    await rig.ports.store.removePasskey('maria', id, { type: 'user', id: 'maria' });
    const vote = await post(path, { form, verdict: 'approve' }, entered);
    expect(vote.status, vote.text).toBe(401);
    expect(await stateOf(effect)).toMatchObject({ state: 'pending_approval' });
  });
});
