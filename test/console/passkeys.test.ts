import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type Keys, type Rig, type Seen, startRig } from '../api/rig.ts';
import { createAuthenticator } from './authenticator.ts';

let rig: Rig;
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.close());

/** The console on this machine, under the name that browsers have passkeys for. */
const OWN = { 'svc-console': '1', host: 'localhost:8080' };
type Headers = Record<string, string>;

async function signedIn(body: Record<string, unknown>): Promise<Headers> {
  const answer = await rig.send('POST', '/console/session', { key: null, body, headers: OWN });
  expect(answer.status, answer.text).toBe(204);
  return { ...OWN, cookie: String(answer.headers['set-cookie']).split(';')[0] ?? '' };
}
const byKey = (key: keyof Keys): Promise<Headers> => signedIn({ key: rig.keys[key] });

const as = (headers: Headers, method: 'GET' | 'POST' | 'DELETE', path: string, body?: unknown): Promise<Seen> =>
  rig.send(method, path, { key: null, headers, ...(body === undefined ? {} : { body }) });

const PASSKEYS = '/v1/beta/users/maria/passkeys';

async function begun(headers: Headers): Promise<{ readonly ceremony: string; readonly challenge: string }> {
  const { status, json, text } = await as(headers, 'POST', '/console/passkeys/options', {});
  expect(status, text).toBe(200);
  const { challenge } = JSON.parse(text).options;
  return { ceremony: String(json['ceremony']), challenge };
}

type Authenticator = ReturnType<typeof createAuthenticator>;
async function added(headers: Headers, authenticator: Authenticator, counter = 0): Promise<string> {
  const { ceremony, challenge } = await begun(headers);
  const credential = authenticator.make({ challenge, counter });
  const { status, json, text } = await as(headers, 'POST', '/console/passkeys', {
    name: 'Phone',
    ceremony,
    credential,
  });
  expect(status, text).toBe(201);
  return String(json['id']);
}

const REFUSED = { status: 403, json: { code: 'passkey_refused', did_it_happen: 'no' } };

let maria: Headers;
beforeEach(async () => {
  maria = await byKey('approver');
});
afterEach(async () => {
  for (const user of ['maria', 'ops'])
    for (const { id } of await rig.ports.store.passkeys(user))
      await rig.ports.store.removePasskey(user, id, { type: 'user', id: user });
});

describe('a passkey is added', () => {
  it('by who has shown a key, and is listed, and removed, by its owner and an administrator', async () => {
    const id = await added(maria, createAuthenticator());
    const own = await rig.send('GET', PASSKEYS, { key: rig.keys.approver });
    expect(own.json).toMatchObject({
      passkeys: [{ id, name: 'Phone', user_id: 'maria', workspace: 'demo', synced: false, last_used_at: null }],
    });
    expect(own.text).not.toMatch(/public|credential|counter/i);
    expect(await rig.ports.store.passkey(id)).toMatchObject({ transports: ['internal'] });
    expect(await rig.send('GET', PASSKEYS, { key: rig.keys.account })).toMatchObject({ status: 403 });
    expect(await rig.send('DELETE', `${PASSKEYS}/${id}`, { key: rig.keys.account })).toMatchObject({ status: 403 });
    expect(await rig.send('GET', PASSKEYS, { key: rig.keys.agent })).toMatchObject({ status: 403 });
    expect((await rig.send('GET', PASSKEYS, { key: rig.keys.admin })).json['passkeys']).toHaveLength(1);
    expect(await as(maria, 'DELETE', `${PASSKEYS}/${id}`)).toMatchObject({ status: 200, json: { id } });
    expect(await rig.send('DELETE', `${PASSKEYS}/${id}`, { key: rig.keys.admin })).toMatchObject({ status: 404 });
  });

  it('by nobody whom a link brought, and not for a key without a user', async () => {
    const { json } = await rig.send('POST', '/v1/beta/console/links', { key: rig.keys.approver });
    const linked = await signedIn({ link: String(json['url']).split('#link=')[1] });
    const refused = { status: 403, json: { code: 'step_up_required' } };
    expect(await as(linked, 'POST', '/console/passkeys/options', {})).toMatchObject(refused);
    const id = await added(maria, createAuthenticator());
    expect(await as(linked, 'DELETE', `${PASSKEYS}/${id}`)).toMatchObject(refused);
    const auditor = await byKey('auditor');
    expect(await as(auditor, 'POST', '/console/passkeys/options', {})).toMatchObject({ status: 403 });
    const { 'svc-console': _, ...elsewhere } = maria;
    expect(await as(elsewhere, 'POST', '/console/passkeys/options', {})).toMatchObject({
      status: 403,
      json: { code: 'origin_not_allowed' },
    });
  });

  it('once: not with a challenge that was answered, and not by two', async () => {
    const authenticator = createAuthenticator();
    const { ceremony, challenge } = await begun(maria);
    const credential = authenticator.make({ challenge });
    const body = { name: 'Phone', ceremony, credential };
    expect(await as(maria, 'POST', '/console/passkeys', body)).toMatchObject({ status: 201 });
    expect(await as(maria, 'POST', '/console/passkeys', body)).toMatchObject({ status: 409 });
    const other = createAuthenticator().make({ challenge });
    expect(await as(maria, 'POST', '/console/passkeys', { ...body, credential: other })).toMatchObject({ status: 409 });
    const ops = await byKey('account');
    const again = await begun(ops);
    const same = authenticator.make({ challenge: again.challenge });
    const taken = { name: 'Mine', ceremony: again.ceremony, credential: same };
    expect(await as(ops, 'POST', '/console/passkeys', taken)).toMatchObject({ status: 409 });
  });

  it.each([
    ['another challenge', { challenge: 'AAAA' }],
    ['a page of another origin', { origin: 'https://evil.example' }],
    ['a passkey of another host', { rpId: 'evil.example' }],
    ['a device that asked for nothing', { isVerified: false }],
  ])('never with %s', async (_, wrong) => {
    const { ceremony, challenge } = await begun(maria);
    const credential = createAuthenticator().make({ challenge, ...wrong });
    expect(await as(maria, 'POST', '/console/passkeys', { name: 'Phone', ceremony, credential })).toMatchObject(
      REFUSED,
    );
    expect(await rig.ports.store.passkeys('maria')).toEqual([]);
  });

  it('never with a certificate that nobody asked for, another session’s challenge, or what is none', async () => {
    const { ceremony, challenge } = await begun(maria);
    const credential = createAuthenticator().make({ challenge });
    const certified = createAuthenticator().make({ challenge }, 'packed');
    expect(await as(maria, 'POST', '/console/passkeys', { name: 'A', ceremony, credential: certified })).toMatchObject(
      REFUSED,
    );
    const another = await byKey('approver');
    expect(await as(another, 'POST', '/console/passkeys', { name: 'A', ceremony, credential })).toMatchObject(REFUSED);
    for (const change of [{ attestationObject: 'o2' }, { clientDataJSON: 'e30' }]) {
      const broken = { ...credential, response: { ...credential.response, ...change } };
      expect(await as(maria, 'POST', '/console/passkeys', { name: 'A', ceremony, credential: broken })).toMatchObject(
        REFUSED,
      );
    }
    expect(await as(maria, 'POST', '/console/passkeys', { name: ' ', ceremony, credential })).toMatchObject({
      status: 400,
    });
    expect(rig.logs()).toContain('an attestation that nobody asked for');
  });

  it('only where browsers have passkeys: the answer says where that is', async () => {
    const refused = await as({ ...maria, host: '127.0.0.1:8080' }, 'POST', '/console/passkeys/options', {});
    expect(refused).toMatchObject({ status: 409 });
    expect(refused.json['detail']).toContain('http://localhost:8080/console');
  });
});
