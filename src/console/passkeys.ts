import type { FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { closed } from '../api/schema.ts';
import type { ApiApp } from '../api/app.ts';
import { passkeyToWire } from '../api/passkeys.ts';
import type { Visitor } from '../api/ports.ts';
import { refuse } from '../api/problem.ts';
import { MOST_PASSKEYS } from '../effects/model/passkey.ts';
import { ledgerActor } from '../effects/model/principal.ts';
import type { EffectStore } from '../effects/store.ts';
import { Assertion, NewCredential } from '../identity/passkeys/credentials.ts';
import type { Passkeys } from '../identity/passkeys/passkeys.ts';
import { type RelyingParty, relyingPartyOf } from '../identity/passkeys/relying-party.ts';
import { permit } from '../identity/permissions.ts';
import type { ConsoleSessions } from './sessions.ts';

/** An answer of an authenticator has some hundred bytes. */
const BODY_LIMIT = 16 * 1024;

/** What the library of the console gives, as it is: members that nobody needs are left where they are. */
const Add = closed({
  name: Type.String({ minLength: 1, maxLength: 100, pattern: '^[^\\p{Cc}\\p{Cf}]*\\S[^\\p{Cc}\\p{Cf}]*$' }),
  ceremony: Type.String({ maxLength: 1000 }),
  credential: NewCredential,
});

/** Signs in by a passkey: what the browser answers to a challenge. */
export const Signed = closed({ ceremony: Type.String({ maxLength: 1000 }), assertion: Assertion });

export interface PasskeyPorts {
  readonly sessions: ConsoleSessions;
  readonly passkeys: Passkeys;
  readonly store: Pick<EffectStore, 'passkeys'>;
  readonly settings: () => { readonly publicUrl: string };
}

/** Passkeys on the console's own pages: only there can a browser make one. They are listed and removed over the API. */
export function addPasskeys(app: ApiApp, ports: PasskeyPorts, fromOwnPage: (request: FastifyRequest) => Promise<void>) {
  const { sessions, passkeys, store } = ports;
  const own = { preHandler: fromOwnPage, bodyLimit: BODY_LIMIT } as const;

  // Whoever wants to sign in. Nothing is kept of it, so nobody fills the store.
  app.post('/console/passkeys/challenge', own, async (request, reply) => {
    const party = partyOf(ports, request);
    return noStore(reply).send({ ...passkeys.challenge('enter', ''), rp_id: party.id });
  });

  app.post('/console/passkeys/options', own, async (request, reply) => {
    const { visitor, user } = await ownerOf(sessions, request);
    const party = partyOf(ports, request);
    const { ceremony, challenge } = passkeys.challenge('add', visitor.session);
    const options = {
      rp: { id: party.id, name: 'svc-gateway' },
      user: { id: passkeys.handleOf(user), name: user, displayName: user },
      challenge,
      pubKeyCredParams: [-8, -7, -257].map((alg) => ({ type: 'public-key', alg })),
      timeout: 120_000,
      attestation: 'none',
      authenticatorSelection: { residentKey: 'required', requireResidentKey: true, userVerification: 'required' },
      excludeCredentials: (await store.passkeys(user)).map(({ credential: id, transports }) => ({
        id,
        type: 'public-key',
        transports,
      })),
    };
    return noStore(reply).send({ ceremony, options });
  });

  app.post('/console/passkeys', { ...own, schema: { body: Add } }, async (request, reply) => {
    const { visitor, user } = await ownerOf(sessions, request);
    const { principal, session } = visitor;
    const { name, ceremony, credential } = request.body;
    const made = await passkeys.add(
      { party: partyOf(ports, request), ceremony, of: session, credential },
      { user, keyId: principal.keyId, workspace: 'workspace' in principal ? principal.workspace : null, name },
      ledgerActor(principal),
    );
    if (made.kind === 'added') return noStore(reply).code(201).send(passkeyToWire(made.passkey));
    if (made.kind === 'too_many')
      throw refuse('conflict', `You have ${MOST_PASSKEYS} passkeys, and nobody has more. Remove one first.`);
    if (made.kind === 'taken') throw refuse('conflict', 'This passkey is there already. Nothing was added.');
    request.log.warn({ why: made.why }, 'a new passkey was refused');
    throw refuse('passkey_refused', 'The passkey could not be checked, or it took more than five minutes: try again.');
  });
}

/** For whom passkeys are on this page. @throws Refused */
export function partyOf(
  { settings }: Pick<PasskeyPorts, 'settings'>,
  { headers: { host } }: FastifyRequest,
): RelyingParty {
  const { publicUrl } = settings();
  const party = relyingPartyOf(publicUrl, host);
  if (party !== null) return party;
  const where = /^https?:\/\/(?:127\.|\[::1\]|localhost(?:[:/]|$))/.test(publicUrl)
    ? `Open the console as ${publicUrl.replace(/\/\/(?:\[::1\]|[^:/]+)/, '//localhost')}/console: browsers have no passkeys for addresses.`
    : 'Browsers have passkeys for names and over TLS alone: server.public_url has to be https:// and a name.';
  throw refuse('conflict', where);
}

/** Who adds a passkey: somebody who has shown a key, which has a user. @throws Refused */
async function ownerOf(
  sessions: ConsoleSessions,
  { headers }: FastifyRequest,
): Promise<{ readonly visitor: Visitor; readonly user: string }> {
  const visitor = await sessions.visitorOf(headers);
  if (visitor === null) throw refuse('missing_key', 'Nobody is signed in.');
  const { principal, hasShownKey, passkey } = visitor;
  const may = permit(principal, 'passkeys.write');
  if (!may.ok) throw refuse(may.code, may.detail);
  if (principal.user === null)
    throw refuse('wrong_key_kind', 'A passkey is a user’s, and the key of this session has none.');
  // Else whoever got hold of a link could stay for ever.
  if (!hasShownKey) throw refuse('step_up_required', 'This session was opened by a link. Show your own key once.');
  // Else whoever has a lost device could add another passkey, which stays when that of the device is removed.
  if (passkey !== null)
    throw refuse('step_up_required', 'A passkey adds no other one. Sign in with your key to add a passkey.');
  return { visitor, user: principal.user };
}

function noStore(reply: FastifyReply): FastifyReply {
  return reply.header('cache-control', 'no-store');
}
