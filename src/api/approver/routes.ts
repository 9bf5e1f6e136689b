import type { FastifyReply, FastifyRequest } from 'fastify';
import { wholeBody } from '../../bytes/gathered.ts';
import { MOST_COMMENT } from '../../effects/model/approval.ts';
import { type ApprovalCall, personOf } from '../../effects/run/decide-approval.ts';
import { approvalFor } from '../../effects/wire/withheld.ts';
import { ledgerActor } from '../../effects/model/principal.ts';
import type { Problem } from '../../effects/model/run-request.ts';
import { CODES } from '../../effects/model/codes.ts';
import { holdsKey } from '../../identity/key-format.ts';
import type { Assertion } from '../../identity/passkeys/credentials.ts';
import { relyingPartyOf } from '../../identity/passkeys/relying-party.ts';
import { permit } from '../../identity/permissions.ts';
import type { ApiApp } from '../app.ts';
import { ownerByPasskey, ownerOf } from '../caller.ts';
import type { ApiPorts } from '../ports.ts';
import { plainProblem, Refused, refuse, retryAfter, statusOf } from '../problem.ts';
import { WORKSPACE_ID } from '../schema.ts';
import { problemOf } from '../server.ts';
import { ALIKE_FIELDS, alikeIn } from './alike.ts';
import { namedCurrency } from './details.ts';
import { whatChanged, whyAnew } from './earlier.ts';
import { PAGE_HEADERS } from './layout.ts';
import { type Html, html } from './html.ts';
import { approvalPage, COMMENT, isOpen, keyPage, overtakenText, PASSKEY_FIELDS, plainPage } from './page.ts';
import { type Approver, approverOf, begin, digestShown, end, formOf, type SessionPorts } from './session.ts';
import { changesIn, type Entered, isFieldName, undecided } from './fields.ts';
import { type ShownApproval, shownTo } from './shown.ts';

/** Longest form, bytes: a comment of a thousand characters, each written as three bytes in percent signs. */
const MOST_FORM = 32 * 1024;

type Visit = FastifyRequest<{
  Params: { readonly ws: string; readonly id: string };
  Body: URLSearchParams;
  Querystring: Readonly<Record<string, string | readonly string[] | undefined>>;
}>;

/** Where a visit is, as its address says. Whether there is such a request is nobody's business without a key. */
interface Place {
  readonly workspace: string;
  readonly approvalId: string;
  readonly path: string;
}

const APPROVAL_ID = /^apr_[0-9a-z]{1,64}$/;
const NOT_HERE = 'There is no such request for approval here.';

/**
 * The approver's page, `/approve/{workspace}/{approval}`: one page that works without scripts. Its address alone shows nothing.
 * Whoever shows a key or a passkey of a person may look for some minutes, and votes by the same rules as over the API. Looking
 * never decides: programs that follow links look at everything.
 */
export function addApproverPage(app: ApiApp, ports: ApiPorts): void {
  readOnlyForms(app);
  app.setErrorHandler((error: Error, request, reply) => {
    const problem = problemOf(error);
    if (problem.code === 'internal') request.log.error({ err: error }, 'a page failed inside the gateway');
    return sendProblem(reply, problem, plainPage(CODES[problem.code].title, problem.detail));
  });

  const page = new ApproverPage(ports);
  const at = '/approve/:ws/:id';
  const own = { config: { page: true } } as const;
  app.get(at, own, (request: Visit, reply) => page.look(request, reply));
  app.post(`${at}/key`, own, (request: Visit, reply) => page.enterByKey(request, reply));
  app.post(`${at}/passkey`, own, (request: Visit, reply) => page.enterByPasskey(request, reply));
  app.post(`${at}/leave`, own, (request: Visit, reply) => page.leave(request, reply));
  app.post(at, own, (request: Visit, reply) => page.decide(request, reply));
}

function readOnlyForms(app: ApiApp): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/x-www-form-urlencoded', async (request: FastifyRequest) => {
    // Browsers say how long a form is. What comes in chunks is read from nobody who has not shown a key yet.
    if (request.headers['transfer-encoding'] !== undefined)
      throw refuse('invalid_request', 'A form comes with its length (Content-Length), not in chunks.');
    const bytes = await wholeBody(request.raw, MOST_FORM, refuse);
    return new URLSearchParams(bytes.toString());
  });
  app.addHook('preHandler', async (request) => {
    const { 'sec-fetch-site': from } = request.headers;
    // Where browsers say it, a form has to come from this page. What has no session yet is else not protected.
    if (request.method === 'POST' && from !== undefined && from !== 'same-origin')
      throw refuse('origin_not_allowed', 'This form does not come from this page. Nothing was decided.');
  });
}

class ApproverPage {
  readonly #ports: ApiPorts;
  readonly #sessions: SessionPorts;

  constructor(ports: ApiPorts) {
    const { seals, stillValid, store } = ports;
    this.#ports = ports;
    this.#sessions = { seals, stillValid, store, now: () => store.now() };
  }

  async look(request: Visit, reply: FastifyReply): Promise<FastifyReply> {
    const place = placeOf(request);
    // Only a page that a person looks at is shown: not what a script, or a frame of another page, would read.
    const { 'sec-fetch-dest': dest = 'document' } = request.headers;
    const approver = dest === 'document' ? await this.#signedIn(request, place) : null;
    if (approver === null) return send(reply, 200, this.#askWho(request, place, null));
    const { instead_of: former } = request.query;
    const insteadOf = typeof former === 'string' && APPROVAL_ID.test(former) ? former : null;
    return this.#show(reply, place, approver, 200, { insteadOf });
  }

  async enterByKey(request: Visit, reply: FastifyReply): Promise<FastifyReply> {
    return this.#signIn(request, reply, placeOf(request), async () => {
      const { key = '' } = fieldsOf(request, ['key']);
      const given = { kind: 'key', key: key.trim() } as const;
      return { principal: await ownerOf(this.#ports, this.#ports.invalidKeys, given, request.ip), passkey: null };
    });
  }

  async enterByPasskey(request: Visit, reply: FastifyReply): Promise<FastifyReply> {
    const place = placeOf(request);
    return this.#signIn(request, reply, place, () => {
      const { ceremony = '', ...signed } = fieldsOf(request, ['ceremony', ...PASSKEY_FIELDS]);
      const party = this.#partyOf(request);
      if (party === null) throw refuse('conflict', 'Browsers have no passkeys for this address. Show your key.');
      const assertion = assertionIn(signed);
      return ownerByPasskey(
        this.#ports,
        { party, purpose: 'approve', of: place.path, ceremony, assertion },
        request.ip,
      );
    });
  }

  async leave(request: Visit, reply: FastifyReply): Promise<FastifyReply> {
    const { path, workspace } = placeOf(request);
    const cookie = await end(this.#sessions, workspace, request.headers.cookie, this.#isSecure());
    return reply.header('set-cookie', cookie).redirect(path, 303);
  }

  /** Counts a vote, or ends what was allowed ahead: both by whoever may decide, as over the API. */
  async decide(request: Visit, reply: FastifyReply): Promise<FastifyReply> {
    const place = placeOf(request);
    const { workspace, approvalId } = place;
    const approver = await this.#signedIn(request, place);
    if (approver === null) {
      const notice = 'Nothing was decided, and what you wrote is not kept. Show again who you are.';
      return send(reply, 401, this.#askWho(request, place, notice));
    }
    const asked = await shownTo(this.#ports, approver, workspace, approvalId);
    const fields = fieldsOf(request, ['form', 'verdict', 'comment', 'allowance', ...ALIKE_FIELDS]);
    const digest = digestShown(this.#sessions, workspace, approvalId, fields['form'] ?? '', approver);
    if (digest === null) return this.#show(reply, place, approver, statusOf(STRAY), { notice: STRAY.detail });
    const { principal, user, passkey } = approver;
    if (fields['allowance'] !== undefined) {
      const revoked = { workspace, id: fields['allowance'], by: user, actor: ledgerActor(principal) };
      await this.#ports.store.revokeAllowance(revoked);
      return reply.redirect(place.path, 303);
    }
    const again = (problem: Problem): Promise<FastifyReply> => {
      const faults = faultsIn(problem);
      const more = Object.values(faults).filter((fault = '') => !problem.detail.includes(fault));
      return this.#show(reply, place, approver, statusOf(problem), {
        notice: [problem.detail, ...more].join(' '),
        isLate: problem.code === 'conflict',
        entered: { digest, fields: withoutKeys(fields), faults },
      });
    };
    if (asked !== null && asked.approval.digest !== digest)
      return again(plainProblem('conflict', 'What is asked has changed since it was shown, so nothing was decided.'));
    let written: ReturnType<typeof voteIn>;
    try {
      written = voteIn(asked, fields);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      return again(error.problem);
    }
    const result = await this.#ports.decideApproval({ principal, passkey, workspace, approvalId, ...written, digest });
    if (result.kind === 'problem') return again(result.problem);
    const { became } = result;
    if (became.kind !== 'asked_anew') return reply.redirect(place.path, 303);
    return reply.redirect(`${pathOf(workspace, became.approvalId)}?instead_of=${approvalId}`, 303);
  }

  #isSecure(): boolean {
    return this.#ports.settings().publicUrl.startsWith('https:');
  }

  #partyOf({ headers: { host } }: Visit): ReturnType<typeof relyingPartyOf> {
    return relyingPartyOf(this.#ports.settings().publicUrl, host);
  }

  /** The page that asks who somebody is. Its challenge is for this address alone, and nothing is kept of it. */
  #askWho(request: Visit, { path }: Place, notice: string | null): string {
    const party = this.#partyOf(request);
    return keyPage(path, notice, party && { ...this.#ports.passkeys.challenge('approve', path), party: party.id });
  }

  /** Begins a session for whoever shows who they are, and goes on to the page. */
  async #signIn(
    request: Visit,
    reply: FastifyReply,
    place: Place,
    who: () => Promise<{ readonly principal: Approver['principal']; readonly passkey: string | null }>,
  ): Promise<FastifyReply> {
    try {
      const { principal, passkey } = await who();
      const { user } = this.#enter(request, principal, place);
      const of = { keyId: principal.keyId, user, passkey };
      return await reply
        .header('set-cookie', begin(this.#sessions, place.workspace, of, this.#isSecure()))
        .redirect(place.path, 303);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      const { problem } = error;
      return sendProblem(reply, problem, this.#askWho(request, place, problem.detail));
    }
  }

  /** The person behind a request; `null` where a key has to be shown first. */
  async #signedIn(request: Visit, place: Place): Promise<Approver | null> {
    const approver = await approverOf(this.#sessions, place.workspace, request.headers.cookie);
    if (approver !== null) this.#enter(request, approver.principal, place);
    return approver;
  }

  /**
   * Lets a person in who may look, and may vote at all: by the table that the API asks, and by its rule of who is one.
   * @throws Refused
   */
  #enter(request: Visit, principal: Approver['principal'], { workspace }: Place): { readonly user: string } {
    const read = permit(principal, 'approvals.read', workspace);
    if (!read.ok) throw refuse(read.code, read.detail);
    const decide = permit(principal, 'approvals.decide', workspace);
    if (!decide.ok) throw refuse(decide.code, decide.detail);
    const person = personOf(principal);
    if (person.kind === 'problem') throw new Refused(person.problem, {});
    request.caller = {
      principal,
      view: read.view,
      refusal: null,
      authenticatedAt: this.#ports.store.now(),
      authenticatedInMs: 0,
    };
    return person;
  }

  /**
   * Shows a request for approval; the one that took its place, where what was voted on has changed. What a person wrote
   * in fields stands in them again as long as the question is the one that they wrote it for; a comment always.
   */
  async #show(
    reply: FastifyReply,
    place: Place,
    approver: Approver,
    status: number,
    {
      notice = null,
      isLate = false,
      insteadOf = null,
      entered,
    }: {
      readonly notice?: string | null;
      /** Whether others may have decided, or changed something, since the person saw the question: who did is said. */
      readonly isLate?: boolean;
      /** The request whose place this one took, which the person has seen: what differs is shown. */
      readonly insteadOf?: string | null;
      readonly entered?: { readonly digest: string; readonly fields: Entered; readonly faults: Entered };
    },
  ): Promise<FastifyReply> {
    const { workspace, approvalId } = place;
    const asked = await shownTo(this.#ports, approver, workspace, approvalId);
    const renewed =
      notice === null || asked?.replacedBy == null
        ? null
        : await shownTo(this.#ports, approver, workspace, asked.replacedBy);
    const shown = renewed ?? asked;
    if (shown === null) return send(reply, 404, plainPage('Not found', NOT_HERE));
    const { approval } = shown;
    const before = insteadOf === null ? null : await this.#ports.store.approval(workspace, insteadOf);
    const former = renewed === null ? before && approvalFor(approver.principal, before) : asked?.approval;
    const late = isLate && asked !== null ? overtakenText(asked, approver.user) : null;
    const isSameQuestion = entered?.digest === approval.digest;
    const { comment = '' } = entered?.fields ?? {};
    const isOfSame = former != null && former.effectId === approval.effectId && former.id !== approval.id;
    const changed = isOfSame ? whatChanged(former, approval, namedCurrency(shown)) : [];
    const anew = isOfSame && isOpen(shown) ? whyAnew(former, approval, approver.user, changed.length > 0) : null;
    const said: string | Html | null = late ?? notice ?? anew;
    return send(
      reply,
      status,
      approvalPage(shown, {
        user: approver.user,
        form: formOf(this.#sessions, workspace, approval, approver),
        path: pathOf(workspace, approval.id),
        notice:
          entered === undefined || isSameQuestion || !isOpen(shown)
            ? said
            : html`${said ?? ''} What is asked now stands below: decide anew, and change again what you want changed.`,
        faults: isSameQuestion ? entered.faults : {},
        entered: isSameQuestion ? entered.fields : { comment },
        changed,
      }),
    );
  }
}

/** What is said where a form is not one that this page gave this person. */
const STRAY = plainProblem('origin_not_allowed', 'The form was not of this page. Nothing was decided: look again.');

/** What a form says of the vote. @throws Refused */
function voteIn(
  asked: ShownApproval | null,
  fields: Entered,
): Pick<ApprovalCall, 'verdict' | 'comment' | 'changes' | 'alike'> {
  const { verdict, comment: written = '', form: _proof, ...others } = fields;
  if (verdict !== 'approve' && verdict !== 'reject') throw undecided('The form has no decision.');
  // Browsers send the ends of lines as two characters, and count one.
  const comment = written.replaceAll('\r\n', '\n').trim();
  if (comment.length > MOST_COMMENT) throw undecided(`The comment is longer than ${MOST_COMMENT} characters.`);
  if ([comment, ...Object.values(others)].some((text) => text !== undefined && holdsKey(text)))
    throw undecided('What you wrote holds an API key, which would be kept and shown.');
  const changes = verdict === 'approve' && asked !== null ? changesIn(asked, fields) : null;
  const alike = verdict === 'approve' ? alikeIn(fields) : undefined;
  if (alike === null) throw undecided('How many of the next calls to let in is not said.');
  return { verdict, comment: comment === '' ? null : comment, changes, alike };
}

function send(reply: FastifyReply, status: number, text: string): FastifyReply {
  return reply.code(status).headers(PAGE_HEADERS).send(text);
}

function sendProblem(reply: FastifyReply, problem: Problem, text: string): FastifyReply {
  return send(reply.headers(retryAfter(problem)), statusOf(problem), text);
}

function pathOf(workspace: string, approvalId: string): string {
  return `/approve/${workspace}/${approvalId}`;
}

/** @throws Refused where the address cannot be that of a request for approval */
function placeOf(request: Visit): Place {
  const { ws: workspace, id: approvalId } = request.params;
  if (!new RegExp(WORKSPACE_ID).test(workspace) || !APPROVAL_ID.test(approvalId)) throw refuse('not_found', NOT_HERE);
  return { workspace, approvalId, path: pathOf(workspace, approvalId) };
}

const SIGNED_PART = /^[\w-]{1,4000}$/;

/** What a passkey signed, in the form in which browsers write it down. @throws Refused */
function assertionIn(fields: Readonly<Partial<Record<(typeof PASSKEY_FIELDS)[number], string>>>): Assertion {
  const { credential = '', client_data = '', authenticator_data = '', signature = '' } = fields;
  if (![credential, client_data, authenticator_data, signature].every((part) => SIGNED_PART.test(part)))
    throw undecided('The form has no passkey’s signature.');
  const response = { clientDataJSON: client_data, authenticatorData: authenticator_data, signature };
  return { id: credential, response };
}

/** What was written, to be shown again: but for what holds a key. */
function withoutKeys(fields: Entered): Entered {
  return Object.fromEntries(Object.entries(fields).filter(([, text]) => text !== undefined && !holdsKey(text)));
}

/** What is said of fields, by the names of their params. */
function faultsIn({ code, errors }: Problem): Entered {
  if (code === 'reason_required') return { [COMMENT]: 'Say here why you reject.' };
  const names = errors.map(({ path, message }) => [path.replace(/^\/(changes|params)\//, ''), message] as const);
  return Object.fromEntries(names.map(([name, message]) => [name, `${name} ${message}.`]));
}

/** The fields of a form, each at most once: these, and those of params. @throws Refused */
function fieldsOf({ body }: Visit, names: readonly string[]): Entered {
  // A form without a body is one without fields.
  const form: URLSearchParams | undefined = body;
  const found: Record<string, string> = {};
  for (const [name, value] of form ?? []) {
    const isKnown = names.includes(name) || isFieldName(name);
    if (!isKnown || Object.hasOwn(found, name)) throw undecided('The form has another shape than this page gives it.');
    found[name] = value;
  }
  return found;
}
