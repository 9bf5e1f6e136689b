import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { type Keys, type Rig, type Seen, startRig } from '../api/rig.ts';
import { INVALID_KEY_LIMIT } from '../../src/api/invalid-key-limiter.ts';
import { createPasskeys } from '../../src/identity/passkeys/passkeys.ts';
import { createVerifier } from '../../src/identity/passkeys/verifier.ts';
import { createAuthenticator, type Signed } from './authenticator.ts';

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

const OF_MARIA = {
  user: 'maria',
  madeBy: null,
  name: 'For a while',
  kind: 'account',
  profile: null,
  workspace: 'demo',
  agentId: null,
  scopes: null,
  allowedTools: null,
  expiresInMs: null,
} as const;

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

  it('by a device that is asked for what signs in without a name, and for no certificate; no cache keeps the challenge', async () => {
    const id = await added(maria, createAuthenticator());
    const { headers, text } = await as(maria, 'POST', '/console/passkeys/options', {});
    expect(headers['cache-control']).toBe('no-store');
    const { credential = '' } = (await rig.ports.store.passkey(id)) ?? {};
    // What devices and lists know them by says nothing of whose they are, and which credential it is.
    const handle = Buffer.from(JSON.parse(text).options.user.id, 'base64url').toString('latin1');
    expect(handle).toHaveLength(32);
    expect(id).not.toContain(credential.slice(0, 8));
    expect(JSON.parse(text).options).toMatchObject({
      user: { name: 'maria' },
      attestation: 'none',
      authenticatorSelection: { residentKey: 'required', requireResidentKey: true, userVerification: 'required' },
      excludeCredentials: [{ id: credential, type: 'public-key', transports: ['internal'] }],
    });
  });

  it('for no key without a user: nobody could be told whose it is', async () => {
    const made = rig.ports.keys.create({ ...OF_MARIA, user: null });
    if (made.kind === 'refused') throw new Error('the key is good');
    await rig.ports.store.putKey(made.record, { type: 'key', id: made.record.id });
    const nobody = await signedIn({ key: made.key });
    expect(await as(nobody, 'POST', '/console/passkeys/options', {})).toMatchObject({
      status: 403,
      json: { code: 'wrong_key_kind' },
    });
    // It is shown once more by itself, though it is nobody's.
    const again = await as(nobody, 'POST', '/console/session', { key: made.key, step_up: true });
    expect(again.status).toBe(204);
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

  it('ten times at most by one person, who is told to remove one', async () => {
    for (let count = 0; count < 10; count += 1) await added(maria, createAuthenticator());
    const { ceremony, challenge } = await begun(maria);
    const eleventh = { name: 'Phone', ceremony, credential: createAuthenticator().make({ challenge }) };
    expect(await as(maria, 'POST', '/console/passkeys', eleventh)).toMatchObject({
      status: 409,
      json: { code: 'conflict', detail: 'You have 10 passkeys, and nobody has more. Remove one first.' },
    });
  });

  it('in vain where it proves something else: the log says why, the answer does not', async () => {
    const { ceremony, challenge } = await begun(maria);
    const credential = createAuthenticator().make({ challenge, origin: 'https://evil.example' });
    const before = rig.logs().length;
    const { text } = await as(maria, 'POST', '/console/passkeys', { name: 'Phone', ceremony, credential });
    const line = rig
      .logs()
      .slice(before)
      .split('\n')
      .find((one) => one.includes('a new passkey was refused'));
    const { why } = JSON.parse(line ?? '{}') as { readonly why?: string };
    expect(why).toMatch(/origin/i);
    expect(text).not.toContain(why);
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
    const renamed = { ...credential, id: createAuthenticator().id };
    expect(await as(maria, 'POST', '/console/passkeys', { name: 'A', ceremony, credential: renamed })).toMatchObject(
      REFUSED,
    );
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

describe('signing in with a passkey', () => {
  type Change = Omit<Partial<Signed>, 'challenge'>;
  /** What a browser sends after it was asked to sign in. */
  async function attempt(authenticator: Authenticator, change: Change = {}) {
    const { status, text } = await as(OWN, 'POST', '/console/passkeys/challenge', {});
    expect(status, text).toBe(200);
    const { ceremony, challenge, rp_id: rpId } = JSON.parse(text);
    expect(rpId).toBe('localhost');
    return { passkey: { ceremony, assertion: authenticator.get({ challenge, ...change }) } };
  }
  const enter = (body: unknown): Promise<Seen> => as(OWN, 'POST', '/console/session', body);

  it('opens a session of the key that it stands for, which has shown who is there', async () => {
    const authenticator = createAuthenticator();
    const id = await added(maria, authenticator);
    const headers = await signedIn(await attempt(authenticator));
    const { json } = await as(headers, 'GET', '/console/session');
    expect(json).toMatchObject({ user: 'maria', kind: 'account', workspaces: ['demo'], has_shown_key: true });
    expect(await rig.ports.store.passkey(id)).toMatchObject({ lastUsedAt: expect.any(Number) });
    // Whoever found the device would keep a passkey that stays when this one is removed.
    const more = await as(headers, 'POST', '/console/passkeys/options', {});
    expect(more).toMatchObject({ status: 403, json: { code: 'step_up_required' } });
  });

  it('asks for a finger or a PIN, and is kept on a device once', async () => {
    const id = await added(maria, createAuthenticator());
    const { text } = await as(maria, 'POST', '/console/passkeys/options', {});
    const { authenticatorSelection, excludeCredentials } = JSON.parse(text).options;
    expect(authenticatorSelection).toEqual({
      residentKey: 'required',
      requireResidentKey: true,
      userVerification: 'required',
    });
    const { credential } = (await rig.ports.store.passkey(id)) ?? {};
    expect(excludeCredentials).toContainEqual({ id: credential, type: 'public-key', transports: expect.any(Array) });
  });

  it('says whether it is on several devices, and whether a copy is kept, as its device said last', async () => {
    const authenticator = createAuthenticator();
    const { ceremony, challenge } = await begun(maria);
    const credential = authenticator.make({ challenge, isSynced: true, isBackedUp: true });
    const made = await as(maria, 'POST', '/console/passkeys', { name: 'Phone', ceremony, credential });
    const id = String(made.json['id']);
    expect(await rig.ports.store.passkey(id)).toMatchObject({ isSynced: true, isBackedUp: true });
    for (const isBackedUp of [false, true]) {
      await signedIn(await attempt(authenticator, { isSynced: true, isBackedUp }));
      expect(await rig.ports.store.passkey(id)).toMatchObject({ isSynced: true, isBackedUp });
    }
    const alone = await added(maria, createAuthenticator());
    expect(await rig.ports.store.passkey(alone)).toMatchObject({ isSynced: false, isBackedUp: false });
  });

  it('is over with the passkey, for every session that it opened', async () => {
    const authenticator = createAuthenticator();
    const id = await added(maria, authenticator);
    const headers = await signedIn(await attempt(authenticator));
    expect(await rig.send('DELETE', `${PASSKEYS}/${id}`, { key: rig.keys.admin })).toMatchObject({ status: 200 });
    expect(await as(headers, 'GET', '/console/session')).toMatchObject({ status: 401 });
    expect(await as(maria, 'GET', '/console/session')).toMatchObject({ status: 200 });
    expect(await enter(await attempt(authenticator))).toMatchObject(REFUSED);
  });

  it('shows in a session that a link opened who is there; not in one of somebody else', async () => {
    const [mine, others] = [createAuthenticator(), createAuthenticator()];
    await added(maria, mine);
    await added(await byKey('account'), others);
    const { json } = await rig.send('POST', '/v1/beta/console/links', { key: rig.keys.approver });
    const linked = await signedIn({ link: String(json['url']).split('#link=')[1] });
    const asOther = { ...(await attempt(others)), step_up: true };
    expect(await as(linked, 'POST', '/console/session', asOther)).toMatchObject({
      status: 403,
      json: { code: 'wrong_key_kind' },
    });
    expect(await as(linked, 'GET', '/console/session')).toMatchObject({ json: { has_shown_key: false } });
    const answer = await as(linked, 'POST', '/console/session', { ...(await attempt(mine)), step_up: true });
    expect(answer.status).toBe(204);
    const shown = { ...OWN, cookie: String(answer.headers['set-cookie']).split(';')[0] ?? '' };
    expect(await as(shown, 'GET', '/console/session')).toMatchObject({ json: { user: 'maria', has_shown_key: true } });
    expect(await as(linked, 'GET', '/console/session')).toMatchObject({ status: 401 });
  });

  it('is refused a second time: what was signed opens one session', async () => {
    const authenticator = createAuthenticator();
    await added(maria, authenticator);
    const body = await attempt(authenticator);
    const answers = await Promise.all([enter(body), enter(body), enter(body)]);
    expect(answers.map(({ status }) => status).toSorted((one, other) => one - other)).toEqual([204, 403, 403]);
    expect(await enter(body)).toMatchObject(REFUSED);
  });

  it.each<readonly [string, Change]>([
    ['on a page of another origin', { origin: 'https://evil.example' }],
    ['for another host', { rpId: 'evil.example' }],
    ['by a device that asked for nothing', { isVerified: false }],
    ['by a copy, whose counter is behind', { counter: 4 }],
  ])('is refused %s', async (_, change) => {
    const authenticator = createAuthenticator();
    await added(maria, authenticator, 5);
    expect(await enter(await attempt(authenticator, { counter: 6, ...change }))).toMatchObject(REFUSED);
    expect(await enter(await attempt(authenticator, { counter: 7 }))).toMatchObject({ status: 204 });
  });

  it('is refused with a challenge that is not ours, was for adding one, or is another passkey’s answer', async () => {
    const [mine, others] = [createAuthenticator(), createAuthenticator()];
    await added(maria, mine);
    await added(await byKey('account'), others);
    const { passkey } = await attempt(mine);
    const forged = { ...passkey, ceremony: `${passkey.ceremony.slice(0, -4)}AAAA` };
    expect(await enter({ passkey: forged })).toMatchObject(REFUSED);
    const adding = await begun(maria);
    const assertion = mine.get({ challenge: adding.challenge });
    expect(await enter({ passkey: { ceremony: adding.ceremony, assertion } })).toMatchObject(REFUSED);
    expect(await enter({ passkey: { ...passkey, assertion: { ...passkey.assertion, id: others.id } } })).toMatchObject(
      REFUSED,
    );
    expect(await enter({ passkey: (await attempt(createAuthenticator())).passkey })).toMatchObject(REFUSED);
  });

  it('is refused after five minutes', async () => {
    let later = 0;
    const { store, seals } = rig.ports;
    const verifier = createVerifier();
    const begun = store.now();
    const passkeys = createPasskeys({ store: { ...store, now: () => begun + later }, seals, verifier });
    const authenticator = createAuthenticator();
    await added(maria, authenticator);
    const party = { id: 'localhost', origin: 'http://localhost:8080' };
    const answer = async (ms: number) => {
      const { ceremony, challenge } = passkeys.challenge('enter', '');
      later = ms;
      const assertion = authenticator.get({ challenge });
      const signed = await passkeys.signed({ party, purpose: 'enter', of: '', ceremony, assertion });
      later = 0;
      return signed;
    };
    expect(await answer(5 * 60_000)).toBeNull();
    expect(await answer(5 * 60_000 - 1)).toMatchObject({ user: 'maria' });
  });

  it('signs for one purpose and one matter: what was asked for something else is no answer', async () => {
    const { store, seals } = rig.ports;
    const passkeys = createPasskeys({ store, seals, verifier: createVerifier() });
    const authenticator = createAuthenticator();
    await added(maria, authenticator);
    const party = { id: 'localhost', origin: 'http://localhost:8080' };
    const answer = (purpose: 'enter' | 'approve', of: string) => {
      const { ceremony, challenge } = passkeys.challenge('approve', 'apr_1');
      return passkeys.signed({ party, purpose, of, ceremony, assertion: authenticator.get({ challenge }) });
    };
    expect([await answer('enter', 'apr_1'), await answer('approve', 'apr_2')]).toEqual([null, null]);
    expect(await answer('approve', 'apr_1')).toMatchObject({ user: 'maria' });
  });

  it('follows a key to its successor, and ends with the key', async () => {
    const authenticator = createAuthenticator();
    const made = rig.ports.keys.create(OF_MARIA);
    if (made.kind === 'refused') throw new Error('the key is good');
    const actor = { type: 'user', id: 'maria' } as const;
    await rig.ports.store.putKey(made.record, actor);
    await added(await signedIn({ key: made.key }), authenticator);
    // More than once: each has a successor of its own.
    let { id } = made.record;
    for (let rotations = 0; rotations < 3; rotations += 1) {
      const rotate = `/v1/beta/keys/${id}/rotate`;
      const { json } = await rig.send('POST', rotate, { key: rig.keys.admin, body: { overlap: 0 } });
      id = String(json['id']);
    }
    const headers = await signedIn(await attempt(authenticator));
    expect(await as(headers, 'GET', '/console/session')).toMatchObject({ json: { key_id: id } });
    await rig.send('DELETE', `/v1/beta/keys/${id}`, { key: rig.keys.admin });
    expect(await as(headers, 'GET', '/console/session')).toMatchObject({ status: 401 });
    expect(await enter(await attempt(authenticator))).toMatchObject(REFUSED);
  });

  it('that nobody has added is tried by one address so many times, and then it has to wait', async () => {
    const body = await attempt(createAuthenticator());
    // On a busy machine as many would become free again while they are made.
    const clock = vi.spyOn(performance, 'now').mockReturnValue(performance.now());
    let last = await enter(body);
    for (let count = 0; count < 2 * INVALID_KEY_LIMIT.burst && last.status === 403; count += 100) {
      const tried = await Promise.all(Array.from({ length: 100 }, () => enter(body)));
      last = tried.find(({ status }) => status !== 403) ?? last;
    }
    clock.mockRestore();
    expect(last).toMatchObject({ status: 429, json: { code: 'too_many_requests' } });
  });
});
