import { createHash } from 'node:crypto';
import { type ApprovalRecord, MOST_COMMENT } from '../../effects/model/approval.ts';
import { pinnedCall, type Tool } from '../../effects/model/tool.ts';
import { approvalsOf } from '../../effects/wire/approval.ts';
import { timeToWire } from '../../effects/wire/time.ts';
import { isJsonObject, type Json, type JsonObject } from '../../json/value.ts';
import { type Html, html, htmlText, lines } from './html.ts';
import type { ShownApproval } from './shown.ts';

const STYLE = html`:root{color-scheme:light dark}*{box-sizing:border-box}
body{font:16px/1.5 system-ui,sans-serif;max-width:42rem;margin:0 auto;padding:1rem;overflow-wrap:anywhere}
h1{font-size:1.4rem;margin:.5rem 0}h2{font-size:1rem;margin:1.5rem 0 .25rem}
.card{border:1px solid color-mix(in srgb,currentColor 25%,transparent);border-radius:10px;padding:1rem}.card p{margin:0 0 .75rem}.what{font-size:1.25rem;font-weight:650;line-height:1.35}.amount{font-size:1.5rem;font-weight:650}.both{display:grid;grid-auto-flow:column;grid-auto-columns:1fr;gap:.75rem}.what,td,dd,pre,li,.notice{unicode-bidi:isolate}
.notice{border-left:4px solid;padding:.5rem .75rem;margin:.75rem 0}
dl{margin:.5rem 0}dt{opacity:.75;font-size:.875rem}dd{margin:0 0 .5rem}
table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.25rem .5rem .25rem 0;border-bottom:1px solid color-mix(in srgb,currentColor 20%,transparent)}th{font-weight:600}
pre{font:.9rem/1.4 ui-monospace,monospace;margin:0;white-space:pre-wrap}
label{display:block;margin:.75rem 0 .25rem}
input,textarea,button{font:inherit;width:100%;padding:.6rem;border:1px solid;border-radius:6px;background:transparent;color:inherit}
button{margin-top:.75rem;min-height:48px;font-weight:600;cursor:pointer}
button.yes{background:#0b5d2a;color:#fff}button.no{background:#8f1d1d;color:#fff}
:focus-visible{outline:3px solid #4c8dff;outline-offset:2px}footer{margin-top:2rem;font-size:.875rem}`;

/** Nothing runs on the page, and nothing comes from elsewhere: the one style is named by its digest. */
const CSP = [
  "default-src 'none'",
  `style-src 'sha256-${createHash('sha256').update(htmlText(STYLE)).digest('base64')}'`,
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
].join('; ');

/**
 * Headers of every answer below `/approve`. The address of the page goes to no other host. (Under `no-referrer` browsers
 * also leave out who sends a form, `Origin: null`, and the door refuses what comes from nowhere.)
 */
export const PAGE_HEADERS = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': CSP,
  'cache-control': 'no-store',
  'referrer-policy': 'same-origin',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'x-robots-tag': 'noindex',
} as const;

/** What stands on a page above everything else. */
export type Notice = string | null;

/** Asks for a key. It is the same for every request for approval, also for one that does not exist. */
export function keyPage(path: string, notice: Notice): string {
  return page(
    'Approval',
    html`${noticeOf(notice)}
<p>An agent waits for a person’s decision. Show your own key to see what it asks for.</p>
<form method="post" action="${path}/key">
<label for="key">Your API key</label>
<input id="key" name="key" type="password" required autocomplete="current-password" autocapitalize="none" spellcheck="false" maxlength="200">
<button>Go on</button>
</form>
<p>Did you show it here a moment ago? <a href="${path}">Open the page again</a>: browsers forget it once when they come from elsewhere.</p>`,
  );
}

/** A page that only says something. */
export function plainPage(title: string, text: string): string {
  return page(title, html`<p class="notice">${text}</p>`);
}

/** @param form proves, with the vote, what was shown to whom */
export function approvalPage(
  shown: ShownApproval,
  {
    user,
    form,
    path,
    notice,
  }: { readonly user: string; readonly form: string; readonly path: string; readonly notice: Notice },
): string {
  const { title, text } = standingOf(shown);
  return page(
    title,
    html`${noticeOf(notice)}${replaced(shown)}<section class="card"><p class="what">${shown.approval.requirements[0]?.summary ?? ''}</p>
${amountOf(shown)}<p>${whoAsks(shown)}</p>
<p>${text}${resultLink(shown)}</p>
${isOpen(shown) ? decisionOf(shown, user, form, path) : ''}</section>
${actionOf(shown)}${paramsOf(shown.params)}${costsOf(shown)}${whyOf(shown)}${votersOf(shown)}${votesOf(shown.approval)}
<footer><form method="post" action="${path}/leave">You are ${user}. <button>Leave</button></form></footer>`,
  );
}

function page(title: string, content: Html): string {
  return htmlText(html`<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>${title}</title>
<style>${STYLE}</style></head>
<body><main><h1>${title}</h1>
${content}
</main></body>
</html>
`);
}

function noticeOf(notice: Notice): Html {
  return notice === null ? html`` : html`<p class="notice" role="alert">${notice}</p>`;
}

/** Whether people can still vote. */
function isOpen({ approval, now }: ShownApproval): boolean {
  return approval.status === 'pending' && now < approval.expiresAt;
}

/** How the request stands. What expired was neither approved nor rejected, and never looks as if. */
function standingOf(shown: ShownApproval): { readonly title: string; readonly text: string } {
  const { approval, effect, now } = shown;
  const { status, stopped } = approval;
  const noReason = stopped === null ? '' : ` ${stopped.reason.message}`;
  switch (status) {
    case 'pending':
      return isOpen(shown)
        ? { title: 'Waits for a decision', text: `Nothing has happened yet. ${untilText(approval.expiresAt, now)}` }
        : OUT_OF_TIME;
    case 'granted':
      return {
        title: 'Approved, and not sent yet',
        text: `The gateway sends it as soon as it can, until ${timeText(approval.expiresAt)}.${noReason}`,
      };
    case 'rejected':
      return { title: 'Rejected', text: 'Nothing was sent, and the same action is refused for 24 hours.' };
    case 'expired':
      if (stopped !== null) return { title: 'Approved, and not sent', text: `Nothing was sent.${noReason}` };
      return (approval.decidedAt ?? 0) < approval.expiresAt
        ? {
            title: 'No longer asked',
            text: 'What is asked has changed, so this request is void. Nothing was sent by it.',
          }
        : OUT_OF_TIME;
    case 'used':
      return { title: 'Approved, and sent', text: outcomeText(effect) };
  }
}

const OUT_OF_TIME = {
  title: 'Its time is over',
  text: 'Not enough people decided in time. It was neither approved nor rejected, and nothing was sent.',
} as const;

function outcomeText(effect: ShownApproval['effect']): string {
  switch (effect?.life.state) {
    case 'executing':
      return 'It is running.';
    case 'committed':
      return 'It happened.';
    case 'failed':
      return 'It did not happen.';
    case 'unknown':
      return 'Nobody knows whether it happened. Somebody has to find out, and say so.';
    case 'denied':
      return `It was stopped before anything was sent. ${effect.life.reason.message}`;
    case 'pending_approval':
      return 'It waits for another decision.';
    case 'rejected':
      return 'Another request for it was rejected later.';
    case undefined:
      return 'Its record is gone.';
  }
}

/** The amount that the params name, as money, where they name its currency. */
function amountOf({ params }: ShownApproval): Html {
  const { params: own } = params;
  const { amount, currency } = isJsonObject(own) ? own : {};
  if (typeof amount !== 'number' || !Number.isSafeInteger(amount)) return html``;
  if (typeof currency !== 'string' || !/^[A-Z]{3}$/.test(currency)) return html``;
  const format = new Intl.NumberFormat('en', { style: 'currency', currency, currencyDisplay: 'code' });
  const digits = format.resolvedOptions().maximumFractionDigits ?? 2;
  const shown = format.format(amount / 10 ** digits).replaceAll('\u00a0', ' ');
  return html`<p class="amount">${shown}</p>`;
}

/** Who asks, and for what reason somebody is asked. */
function whoAsks({ approval, why }: ShownApproval): string {
  const { agentId, agentOwner } = approval.requester;
  const reason = why[0]?.description ?? why[0]?.rule ?? '';
  return `Agent ${agentId}${agentOwner === null ? '' : ` of ${agentOwner}`} asks.${reason === '' ? '' : ` Why you: ${reason}.`}`;
}

/** Where what became of it stands in full, and its receipt. */
function resultLink({ approval, effect }: ShownApproval): Html {
  if (approval.status !== 'used' || effect === null) return html``;
  return html` <a href="/console/${approval.workspace}/effects/${effect.id}">Look at it${effect.life.state === 'committed' ? ', and at its receipt' : ''}</a>.`;
}

function replaced({ approval, replacedBy }: ShownApproval): Html {
  return replacedBy === null
    ? html``
    : html`<p class="notice">People are asked anew: <a href="/approve/${approval.workspace}/${replacedBy}">see what is asked now</a>.</p>`;
}

function actionOf({ approval, action, tool, effect }: ShownApproval): Html {
  const { requester } = approval;
  const word = (name: string): string => textOf(action[name]);
  const rows: readonly (readonly [string, string])[] = [
    ['Tool', tool === null ? `${approval.tool} (not declared any more)` : `${tool.title} (${approval.tool})`],
    ['Acts on', approval.target],
    ['Is sent to', [word('upstream'), word('method'), word('path') || word('name')].filter(Boolean).join(' ')],
    ['Can it be undone?', tool === null ? '' : undoText(tool)],
    ['Risk', tool?.risk ?? ''],
    ['Asked by', `agent ${requester.agentId}`],
    ['Owner of the agent', requester.agentOwner ?? ''],
    ['User of the key', requester.user ?? ''],
    ['Asked at', timeText(approval.createdAt)],
    ['Effect', effect?.id ?? ''],
  ];
  const changed = action['tool_changed'] === true;
  return html`<dl>${rows.filter(([, value]) => value !== '').map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>
${changed ? noticeOf('The tool was declared anew since this was asked. An approval of what was is not used: people are asked anew.') : ''}`;
}

/** What a tool says about coming back. Only tools of MCP servers say something. */
function undoText(tool: Tool): string {
  const annotations = pinnedCall(tool)?.pinned['annotations'];
  if (!isJsonObject(annotations)) return '';
  const { destructiveHint, readOnlyHint } = annotations;
  if (readOnlyHint === true) return 'The tool says that it changes nothing.';
  if (destructiveHint === false) return 'The tool says that it only adds, and destroys nothing.';
  return destructiveHint === true ? 'The tool says that it may destroy or overwrite something.' : '';
}

/** Every param on a line of its own. A part is never shown as if it were the whole. */
function paramsOf(params: JsonObject): Html {
  const { params: own, headers } = params;
  if (!isJsonObject(own))
    return html`<h2>Params</h2><p class="notice">They are not shown: ${textOf(params['params_omitted'])}.</p>`;
  const cut = params['params_truncated'] === true;
  return html`<h2>Params</h2>${valuesOf(own)}${isJsonObject(headers) ? html`<h2>Headers</h2>${valuesOf(headers)}` : ''}
${cut ? noticeOf('Some are cut: they are longer than is shown here.') : ''}`;
}

function valuesOf(of: JsonObject): Html {
  const rows = Object.entries(of);
  if (rows.length === 0) return html`<p>None.</p>`;
  return html`<dl>${rows.map(
    ([name, value]) => html`<dt>${name}</dt>
<dd><pre>${lines(JSON.stringify(value, null, 2))}</pre></dd>`,
  )}</dl>`;
}

function costsOf({ costs }: ShownApproval): Html {
  if (costs.length === 0) return html``;
  return html`<h2>What it costs</h2><table><tr><th>Budget</th><th>Takes</th><th>Left of it now</th></tr>${costs.map(
    ({ cost: { budget, unit, amount, limit }, row }) => {
      const left = Math.max(0, (row?.limit ?? limit) - (row?.spent ?? 0) - (row?.held ?? 0));
      return html`<tr><td>${budget}</td><td>${amount ?? '?'} ${unit}</td><td>${left} of ${row?.limit ?? limit}</td></tr>`;
    },
  )}</table>`;
}

function whyOf({ why }: ShownApproval): Html {
  return html`<h2>Why somebody is asked</h2><ul>${why.map(
    ({ rule, description, unknown }) =>
      html`<li>${rule}${description === null ? '' : `: ${description}`}${
        unknown.length === 0 ? '' : ` (could not judge: ${unknown.join(', ')})`
      }</li>`,
  )}</ul>`;
}

function votersOf({ approval }: ShownApproval): Html {
  return html`<h2>Who may decide</h2><ul>${approval.requirements.map(({ rule, approvers, quorum }, index) => {
    const named = [...approvers.roles.map((role) => `role ${role}`), ...approvers.users].join(', ');
    return html`<li>${approvalsOf(approval, index)} of ${quorum} for ${rule}: ${named}</li>`;
  })}</ul>`;
}

function votesOf({ votes }: ApprovalRecord): Html {
  if (votes.length === 0) return html``;
  return html`<h2>Votes</h2><ul>${votes.map(
    ({ user, verdict, at, comment }) =>
      html`<li>${user} ${verdict === 'approve' ? 'approved' : 'rejected'} at ${timeText(at)}${comment === null ? '' : html`<pre>${lines(comment)}</pre>`}</li>`,
  )}</ul>`;
}

/** Both buttons, first of all; why there are none, for who does not decide. */
function decisionOf({ approval: { votes }, obstacle }: ShownApproval, user: string, form: string, path: string): Html {
  if (obstacle !== null) return html`<p class="notice">${obstacle}</p>`;
  const hasApproved = votes.some((vote) => vote.user === user && vote.verdict === 'approve');
  return html`<form method="post" action="${path}">
<input type="hidden" name="form" value="${form}">
${hasApproved ? html`<p>You have approved it. It waits for others.</p>` : ''}<div class="both">${
    hasApproved ? '' : html`<button class="yes" name="verdict" value="approve">Approve</button>`
  }<button class="no" name="verdict" value="reject">Reject</button></div>
<label for="comment">Comment, if you like: it is kept with the vote</label>
<textarea id="comment" name="comment" rows="2" maxlength="${MOST_COMMENT}"></textarea>
</form>`;
}

function untilText(expiresAt: number, now: number): string {
  const minutes = Math.ceil((expiresAt - now) / 60_000);
  const left = minutes < 120 ? `${minutes} min` : `${Math.floor(minutes / 60)} h`;
  return `Without a decision it ends by itself in ${left}, at ${timeText(expiresAt)}, and nothing is sent.`;
}

function timeText(ms: number): string {
  return `${timeToWire(ms).slice(0, 19).replace('T', ' ')} UTC`;
}

function textOf(value: Json | undefined): string {
  return typeof value === 'string' ? value : '';
}
