import { MOST_COMMENT } from '../../effects/model/approval.ts';
import type { Challenge } from '../../identity/passkeys/passkeys.ts';
import { countToText, foreseenText } from '../../effects/wire/approval.ts';
import { sentence } from '../../effects/wire/effect.ts';
import { isJsonObject } from '../../json/value.ts';
import { callName, currencyOfParam, lastName } from '../../effects/model/money.ts';
import { amountTaken, beyondOf, detailsOf, differencesTable } from './details.ts';
import { alikeHtml, allowancesHtml, allowedHtml } from './alike.ts';
import { type Difference, paramsThatDiffer, repeatText } from './earlier.ts';
import { type Entered, faultAt, fieldsHtml, isFieldName } from './fields.ts';
import { type Html, html, lines } from './html.ts';
import { page, passkeyForm, spanText, timeOf, withTimes } from './layout.ts';
import { shortened } from '../../effects/model/shortened.ts';
import { REDACTED } from '../../effects/run/shown-params.ts';
import type { ShownApproval } from './shown.ts';

/**
 * Asks for a key, or a passkey. It is the same for every request for approval, also for one that does not exist.
 * @param notice stands above everything else
 * @param passkey what one is asked to sign, for whom, and what proves that it was asked here; `null` where browsers have none
 */
export function keyPage(
  path: string,
  notice: string | null,
  passkey: (Challenge & { readonly party: string }) | null,
): string {
  return page(
    'Approval',
    html`${noticeOf(notice)}<section class="card plain"><div><h1>Approval</h1></div>
<p>An agent waits for a person’s decision. Show who you are to see what it asks for.</p>
${passkey === null ? '' : passkeyOf(path, passkey)}<form method="post" action="${path}/key">
<div><label for="key">Your API key</label>
<input id="key" name="key" type="password" required autocomplete="current-password" autocapitalize="none" spellcheck="false" maxlength="200"></div>
<button>Go on</button>
</form>
<p class="faint">Did you show it here a moment ago? <a href="${path}">Open the page again</a>: browsers forget it once when they come from elsewhere.</p></section>`,
  );
}

function passkeyOf(path: string, { ceremony, challenge, party }: NonNullable<Parameters<typeof keyPage>[2]>): Html {
  const signed = PASSKEY_FIELDS.map((name) => html`<input type="hidden" name="${name}">`);
  return passkeyForm(
    `${path}/passkey`,
    challenge,
    party,
    html`<input type="hidden" name="ceremony" value="${ceremony}">${signed}
<button type="button" class="yes">Use a passkey</button>
<p class="faint" role="alert"></p>`,
  );
}

/** What a passkey signed, as the form sends it. */
export const PASSKEY_FIELDS = ['credential', 'client_data', 'authenticator_data', 'signature'] as const;

/** A page that only says something. */
export function plainPage(title: string, text: string): string {
  return page(title, html`<section class="card stop"><div><h1>${title}</h1></div><p>${text}</p></section>`);
}

/** What a page of a request for approval has besides the request. */
interface PageOf {
  readonly user: string;
  /** Proves, with the vote, what was shown to whom. */
  readonly form: string;
  readonly path: string;
  readonly notice: string | Html | null;
  /** What is not as it was when this person saw the question last. */
  readonly changed?: readonly Difference[];
  /** What this person wrote in the form, which decided nothing. */
  readonly entered?: Entered;
  /** What is wrong with that, by the names of params; of the comment, by {@link COMMENT}. */
  readonly faults?: Entered;
}

/** The page of a request for approval: one card with the question and both answers, and what else is known below. */
export function approvalPage(shown: ShownApproval, of: PageOf): string {
  const { title, text, tone } = standingOf(shown);
  const { user, path, notice, form, changed = [] } = of;
  const amount = amountTaken(shown);
  const summary = shown.approval.requirements[0]?.summary ?? '';
  const foreseen = foreseenText(shown.approval, shown.standing);
  const before = changed.length === 0 ? '' : differencesTable(changed, 'You saw', 'Now');
  const news =
    notice === null && before === ''
      ? ''
      : html`<div class="notice" role="alert">${notice ?? 'What is asked has changed since you saw it.'}${before}</div>`;
  return page(
    summary === '' ? title : `${title}: ${summary}`,
    html`${news}${replaced(shown)}<section class="card ${tone}"><div><h1>${title}</h1></div>
<p class="what">${summary}</p>
${amount === null ? '' : html`<p class="amount">${amount}</p>`}${isOpen(shown) ? beyondOf(shown) : ''}${changedOf(shown)}<p class="who">${whoAsks(shown)}</p>
<p class="${isOpen(shown) ? 'faint' : 'said'}">${text}</p>${allowedHtml(shown)}${becameOf(shown)}
${isOpen(shown) ? html`${foreseen === '' ? '' : html`<p class="notice repeat">${withTimes(foreseen)}</p>`}${decisionOf(shown, of)}` : ''}</section>
${detailsOf(shown)}${allowancesHtml(shown, path, form)}
${elsewhere(shown, user)}<footer><span>You are ${user}.</span><form method="post" action="${path}/leave"><button>Leave</button></form></footer>`,
    'two',
  );
}

/** Where a person finds the other requests, and what became of those of before. */
function elsewhere({ approval: { workspace }, mayReadEffects }: ShownApproval, user: string): Html {
  const console = `/console/${workspace}`;
  const decided = html` <a href="${console}/effects?approver=${encodeURIComponent(user)}">What you decided</a>`;
  return html`<nav><a href="${console}/inbox">What waits</a>${mayReadEffects ? decided : ''} <span class="faint">on the console, where you sign in first</span></nav>`;
}

function noticeOf(notice: string | null): Html {
  return notice === null ? html`` : html`<p class="notice" role="alert">${notice}</p>`;
}

export function isOpen({ approval, now }: ShownApproval): boolean {
  return approval.status === 'pending' && now < approval.expiresAt;
}

interface Standing {
  readonly title: string;
  readonly text: string | Html;
  /** What the colour of a page says. */
  readonly tone: 'wait' | 'yes' | 'stop' | 'bad' | 'plain';
}

/** How the request stands. What expired was neither approved nor rejected, and never looks as if. */
function standingOf(shown: ShownApproval): Standing {
  const { approval, effect, now } = shown;
  const { status, stopped } = approval;
  const noReason = stopped === null ? '' : ` ${stopped.reason.message}`;
  switch (status) {
    case 'pending':
      return isOpen(shown)
        ? { title: 'Waits for a decision', text: untilText(approval.expiresAt, now), tone: 'wait' }
        : OUT_OF_TIME;
    case 'granted':
      return {
        title: 'Approved, and not sent yet',
        text: html`The gateway sends it as soon as it can, until ${timeOf(approval.expiresAt)}.${noReason}`,
        tone: 'wait',
      };
    case 'rejected':
      return {
        title: 'Rejected',
        text: html`${rejectedBy(approval)}Nothing was sent, and the same action is refused for 24 hours.`,
        tone: 'stop',
      };
    case 'expired':
      if (stopped !== null) return { title: NOT_SENT, text: `Nothing was sent.${noReason}`, tone: 'stop' };
      return (approval.decidedAt ?? 0) < approval.expiresAt
        ? {
            title: 'No longer asked',
            text: 'What is asked has changed, so this request is void. Nothing was sent by it.',
            tone: 'stop',
          }
        : OUT_OF_TIME;
    case 'used':
      return outcomeOf(effect);
  }
}

/** By whom, when and why. */
function rejectedBy({ votes }: ShownApproval['approval']): Html {
  const vote = votes.find(({ verdict }) => verdict === 'reject');
  if (vote === undefined) return html``;
  return html`${vote.user} rejected it at ${timeOf(vote.at)}${vote.comment === null ? '' : `: “${vote.comment}”`}. `;
}

const OUT_OF_TIME: Standing = {
  title: 'Its time is over',
  text: 'Not enough people decided in time. It was neither approved nor rejected, and nothing was sent.',
  tone: 'stop',
};

function outcomeOf(effect: ShownApproval['effect']): Standing {
  const sent = (text: Standing['text'], tone: Standing['tone'], title = SENT): Standing => ({ title, text, tone });
  switch (effect?.life.state) {
    case 'executing':
      return sent('It is running. Open the page again in a moment.', 'wait');
    case 'committed':
      return sent(html`It happened. The gateway recorded it at ${timeOf(effect.life.at)}.`, 'yes');
    case 'failed':
      return sent(sentence(effect.life.evidence.message), 'bad', 'Approved, but it did not happen');
    case 'unknown':
      return sent('Nobody knows whether it happened. Somebody has to find out, and say so.', 'bad');
    case 'denied':
      return sent(`It was stopped before anything was sent. ${effect.life.reason.message}`, 'stop', NOT_SENT);
    case 'pending_approval':
      return sent('It did not happen, and waits for another decision.', 'wait');
    case 'rejected':
      return sent('It did not happen, and another request for it was rejected later.', 'stop');
    case undefined:
      return sent('Its record is gone.', 'stop');
  }
}

const SENT = 'Approved, and sent';
const NOT_SENT = 'Approved, and not sent';

/** Who was faster, with what, and when, for whose answer came too late; `null` where nobody was. */
export function overtakenText({ approval, replacedBy }: ShownApproval, user: string): Html | null {
  const { status, votes, changed, decidedAt, expiresAt } = approval;
  const before = 'before your answer came. It does not count.';
  if (replacedBy !== null) return html`Policy or the tool was changed, and people are asked anew, ${before}`;
  if (status === 'expired' && (decidedAt ?? expiresAt) >= expiresAt)
    return html`The time to decide was over at ${timeOf(expiresAt)}, ${before}`;
  const late = (by: string, what: string, at: number): Html =>
    html`${by === user ? 'You' : by} ${what} at ${timeOf(at)}, ${before}`;
  const last = votes.at(-1);
  if (status === 'pending')
    return changed === undefined ? null : late(changed.by, `changed ${changed.params.join(', ')}`, changed.at);
  return last === undefined
    ? null
    : late(last.user, last.verdict === 'approve' ? 'approved it' : 'rejected it', last.at);
}

/** What an approver has changed of what the agent asked. Of what did not run, only the params that were asked are kept. */
function changedOf({ approval: { changed, costs, status }, params }: ShownApproval): Html {
  if (changed === undefined) return html``;
  const { params: own, asked_params: before } = params;
  const isKept = changed.sealed !== null || status === 'used';
  const what = `${changed.by} changed ${changed.params.join(', ')} of what the agent asked.${isKept ? '' : ' That did not run: what stands above is as it was changed, and the params below are as the agent asked.'}`;
  if (!isJsonObject(own) || !isJsonObject(before)) return html`<p class="notice">${what}</p>`;
  const differences = paramsThatDiffer(before, own, (name) => currencyOfParam(name, own, costs));
  return html`<div class="notice">${what}${differencesTable(differences, 'Asked', 'Now')}</div>`;
}

/** The most characters of an agent's own reason beside the question; all of it stands among the params. */
const MOST_REASON = 200;

/** Who asks, with the reason that the agent gives, and why somebody is asked. */
function whoAsks({ approval, why, params }: ShownApproval): string {
  const { agentId, agentOwner } = approval.requester;
  const reason = why[0]?.description ?? why[0]?.rule ?? '';
  const asks = `Agent ${agentId}${agentOwner === null ? '' : ` of ${agentOwner}`} asks.`;
  const { params: own } = params;
  const said = isJsonObject(own) && typeof own['reason'] === 'string' ? own['reason'].trim() : '';
  const its = said === '' || said === REDACTED ? '' : ` Its reason: “${shortened(said, MOST_REASON)}”.`;
  return `${asks}${its}${reason === '' ? '' : ` Why you: ${sentence(reason)}`}`;
}

/** What became of the call: its receipt, and where everything about it stands. */
function becameOf({ approval, effect, mayReadEffects }: ShownApproval): Html {
  if (approval.status !== 'used' || effect === null) return html``;
  const { life, id } = effect;
  const link = html`<p><a href="/console/${approval.workspace}/effects/${id}">Everything about this call</a></p>`;
  if (life.state !== 'committed' || !mayReadEffects) return link;
  const { id: receipt, jws } = life.receipt;
  return html`<dl><dt>Receipt</dt><dd>${receipt}</dd></dl>
<details><summary>The signed receipt, for svc verify</summary><pre>${jws}</pre></details>${link}`;
}

function replaced({ approval, replacedBy }: ShownApproval): Html {
  return replacedBy === null
    ? html``
    : html`<p class="notice">People are asked anew: <a href="/approve/${approval.workspace}/${replacedBy}?instead_of=${approval.id}">see what is asked now</a>.</p>`;
}

/** The field that is none of a param, among what is wrong. */
export const COMMENT = '/comment';

/** Both buttons; why there are none, for who does not decide. */
function decisionOf(shown: ShownApproval, { user, form, path, entered = {}, faults = {} }: PageOf): Html {
  const { approval, obstacle, earlier, params, now } = shown;
  const { votes, requirements, tool } = approval;
  const wantsReason = requirements.some(({ requireReason }) => requireReason === true);
  if (obstacle !== null) return html`<p class="notice">${obstacle}</p>`;
  // What is changed, or allowed ahead, of a stale question is refused.
  const isStale = shown.standing?.kind === 'stale';
  const isEditable = !isStale && Object.keys(shown.mayChange).length > 0;
  const isOfSeveral = requirements.length > 1 || requirements.some(({ quorum }) => quorum > 1);
  const hasApproved = votes.some((vote) => vote.user === user && vote.verdict === 'approve');
  const repeat = repeatText(tool, earlier?.onTarget ?? [], params['params'], now);
  const asked = `Approve ${callName(tool, amountTaken(shown))}`;
  const isUntouched = !Object.keys(entered).some(isFieldName);
  const approve = isEditable
    ? html`${isUntouched ? html` data-asked="${asked}"` : ''}>Approve ${lastName(tool)} as written above`
    : html`>${asked}`;
  const comment = faultAt('comment', faults[COMMENT]);
  const why = html`<div><label for="comment">${wantsReason ? 'Why you reject: needed for that, and told to the agent' : 'Comment, if you like: it is kept with the vote, and tells the agent why you reject'}</label>
<textarea id="comment" name="comment" rows="2" maxlength="${MOST_COMMENT}"${wantsReason ? html` required` : ''}${comment.attributes}>${lines((entered['comment'] ?? '').replaceAll('\r\n', '\n'))}</textarea>${comment.text}</div>`;
  return html`<form method="post" action="${path}" data-left="${approval.expiresAt - now}">
<input type="hidden" name="form" value="${form}"><button disabled hidden></button>
${isEditable ? fieldsHtml(shown, entered, faults) : ''}${isOfSeveral ? html`<p>So far ${countToText(approval)}; nothing is sent before.</p>` : ''}${hasApproved ? html`<p>You have approved it. It waits for others.</p>` : ''}${repeat === '' ? '' : html`<p class="notice repeat">${repeat}</p>`}${wantsReason ? why : ''}<div class="both">${
    hasApproved && !isEditable
      ? ''
      : html`<button class="yes" name="verdict" value="approve"${wantsReason ? html` formnovalidate` : ''}${approve}</button>`
  }<button class="no" name="verdict" value="reject">Reject</button></div>
${isStale ? '' : alikeHtml(shown, entered)}${wantsReason ? '' : why}
</form><p class="notice" role="alert" hidden>The time to decide is over. Open the page again to see how it stands.</p>`;
}

function untilText(expiresAt: number, now: number): Html {
  return html`Nothing has happened yet. Without a decision it ends by itself in ${spanText(expiresAt - now)}, at ${timeOf(expiresAt)}, and nothing is sent.`;
}
