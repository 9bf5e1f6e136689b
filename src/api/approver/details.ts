import { type ApprovalRecord, escalatesAt } from '../../effects/model/approval.ts';
import { amountText, callName, currencyOfParam, moneyTaken, moneyText } from '../../effects/model/money.ts';
import type { EffectState } from '../../effects/model/effect.ts';
import { pinnedCall, type Tool } from '../../effects/model/tool.ts';
import { type ApprovalRequirement, type Approvers, limitName } from '../../effects/model/verdict.ts';
import { SHOWN } from '../../effects/run/shown-params.ts';
import { approvalsOf } from '../../effects/wire/approval.ts';
import { isJsonObject, type Json, type JsonObject } from '../../json/value.ts';
import { type Difference, type EarlierCall, paramsThatDiffer } from './earlier.ts';
import { type Html, html, lines } from './html.ts';
import { timeOf } from './layout.ts';
import type { ShownApproval } from './shown.ts';
import { beginning } from '../../effects/model/shortened.ts';

/* What stands below the card: for who wants to know more before deciding. */

/** Everything below the card of a request for approval. */
export function detailsOf(shown: ShownApproval): Html {
  return html`<div class="below">${paramsOf(shown)}${costsOf(shown)}${alikeOf(shown)}${onTargetOf(shown)}${whyOf(shown)}${votersOf(shown)}${actionOf(shown)}</div>`;
}

/** The currency that the params of the call name, if they do. */
export function namedCurrency({ params }: Pick<ShownApproval, 'params'>): Json | undefined {
  const { params: own } = params;
  return isJsonObject(own) ? own['currency'] : undefined;
}

/**
 * The amount as money, large, where a budget says in what it is counted. What a param is counted in, its name does not
 * say; the policy's summary may.
 */
export function amountTaken(shown: ShownApproval): string | null {
  return moneyTaken(shown.approval.costs, namedCurrency(shown))?.text ?? null;
}

/** Two columns of values that are not the same. */
export function differencesTable(of: readonly Difference[], before: string, now: string): Html {
  return html`<table class="differ"><tr><th scope="col">What</th><th scope="col">${before}</th><th scope="col">${now}</th></tr>${of.map(
    (one) => html`<tr><td>${one.name}</td><td>${differenceOf(one.before)}</td><td>${differenceOf(one.now)}</td></tr>`,
  )}</table>`;
}

/** The most characters of a value that stand in a cell at once. */
const MOST_SHOWN = 200;

function differenceOf(text: string): string | Html {
  return text.length <= MOST_SHOWN ? text : valueOf(text, MOST_SHOWN);
}

/** The most characters of a param that stand on the page at once. */
const MOST_AT_ONCE = 2_000;
/** The most earlier calls on the target that are listed. */
const MOST_EARLIER = 5;

function actionOf(shown: ShownApproval): Html {
  const { approval, action, tool, effect } = shown;
  const { requester } = approval;
  const word = (name: string): string => textOf(action[name]);
  const rows: readonly (readonly [string, string | Html])[] = [
    ['Tool', tool === null ? `${approval.tool} (not declared any more)` : `${tool.title} (${approval.tool})`],
    ['Acts on', approval.target],
    ['Is sent to', [word('upstream'), word('method'), word('path') || word('name')].filter(Boolean).join(' ')],
    ['Can it be undone?', tool === null ? '' : undoText(tool)],
    ['Risk', tool?.risk ?? ''],
    ['Asked by', `agent ${requester.agentId}`],
    ['Owner of the agent', requester.agentOwner ?? ''],
    ['User of the key', requester.user ?? ''],
    ['Asked at', timeOf(effect?.createdAt ?? approval.createdAt)],
    ['Asked anew at', effect === null || effect.createdAt >= approval.createdAt ? '' : timeOf(approval.createdAt)],
    ['On record as', recordOf(shown)],
  ];
  const said = rows.filter(([, value]) => value !== '');
  return html`<section><h2>The call</h2><dl class="pairs">${said.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl></section>`;
}

/** What a call is called, with a way to its record for who may read that; its id is for who asks for help. */
function recordOf(shown: ShownApproval): Html {
  const { approval, effect, mayReadEffects } = shown;
  if (effect === null) return html`nothing any more`;
  const name = html`${callName(approval.tool, amountTaken(shown))}`;
  return html`${mayReadEffects ? linkTo(approval.workspace, effect, name) : name} <span class="faint">${effect.id}</span>`;
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
function paramsOf({ params, approval: { costs } }: ShownApproval): Html {
  const { params: own, headers } = params;
  if (!isJsonObject(own))
    return html`<section><h2>Params</h2><p class="notice">They are not shown: ${textOf(params['params_omitted'])}.</p></section>`;
  const cut = params['params_truncated'] === true;
  const money = (name: string): string => moneyText(own[name], currencyOfParam(name, own, costs)) ?? '';
  return html`<section><h2>Params</h2>${valuesOf(own, money)}${isJsonObject(headers) ? html`<h2>Headers</h2>${valuesOf(headers)}` : ''}
${cut ? html`<p class="notice" role="alert">Some are cut where they say so: of a text, ${SHOWN.page.text.toLocaleString('en')} characters are shown.</p>` : ''}</section>`;
}

/** @param money what a value is as money; empty where that is not known */
function valuesOf(of: JsonObject, money: (name: string) => string = () => ''): Html {
  const rows = Object.entries(of);
  if (rows.length === 0) return html`<p>None.</p>`;
  return html`<dl class="pairs">${rows.map(([name, value]) => {
    const amount = money(name);
    const text = JSON.stringify(value, null, 2);
    const shown = amount === '' ? valueOf(text) : html`${amount} <span class="faint">sent as ${text}</span>`;
    return html`<dt>${name}</dt>
<dd>${shown}</dd>`;
  })}</dl>`;
}

/** A long value begins, and goes on for who asks for the rest. */
function valueOf(text: string, most = MOST_AT_ONCE): Html {
  if (text.length <= most) return html`<pre>${lines(text)}</pre>`;
  const start = beginning(text, most);
  const rest = text.slice(start.length);
  return html`<pre>${lines(start)}…</pre><details><summary>Show all: ${rest.length.toLocaleString('en')} more characters</summary><pre>${lines(rest)}</pre></details>`;
}

/** Each limit that the call would go beyond, with what is left of it. */
export function beyondOf(shown: ShownApproval): Html {
  const limits = shown.approval.requirements.flatMap(({ beyond }) => (beyond === undefined ? [] : [beyond]));
  if (limits.length === 0) return html``;
  return html`<div class="notice">${limits.map((limit) => html`<p>${beyondText(shown, limit)}</p>`)}</div>`;
}

function beyondText(shown: ShownApproval, limit: string): string {
  const found = shown.costs.find(({ cost }) => limitName({ kind: 'budget', budget: cost.budget }) === limit);
  if (found === undefined) return `Beyond a limit: ${limit.replace(':', ' ')} is used up.`;
  const { budget, unit, amount } = found.cost;
  const text = (of: number): string => amountText(of, unit, namedCurrency(shown));
  const { left, limit: whole } = leftOf(found);
  return `Beyond a limit: budget ${budget} has ${text(left)} left of ${text(whole)}, and this takes ${amount === null ? 'an amount that is not known' : text(amount)}.`;
}

function leftOf({ cost, row }: ShownApproval['costs'][number]): { readonly left: number; readonly limit: number } {
  const limit = row?.limit ?? cost.limit;
  return { left: Math.max(0, limit - (row?.spent ?? 0) - (row?.held ?? 0)), limit };
}

/** Of a call that was approved and sent: where it takes, or may have taken, something. */
const TAKEN: ReadonlySet<EffectState> = new Set(['executing', 'committed', 'unknown']);

function costsOf(shown: ShownApproval): Html {
  const { costs } = shown;
  if (costs.length === 0) return html``;
  const currency = namedCurrency(shown);
  const { status } = shown.approval;
  const isOver = status === 'rejected' || status === 'expired';
  const { state = 'committed' } = shown.effect?.life ?? {};
  const takes = isOver || (status === 'used' && !TAKEN.has(state)) ? 'Would have taken' : 'Takes';
  return html`<section><h2>What it costs</h2><table><tr><th scope="col">Budget</th><th scope="col">${takes}</th><th scope="col">${status === 'pending' ? 'Left before this' : 'Left now'}</th></tr>${costs.map(
    (one) => {
      const { budget, unit, amount } = one.cost;
      const { left, limit } = leftOf(one);
      const text = (of: number): string => amountText(of, unit, currency);
      return html`<tr><td>${budget}</td><td class="num">${amount === null ? `? ${unit}` : text(amount)}</td><td>${text(left)} of ${text(limit)}</td></tr>`;
    },
  )}</table></section>`;
}

/** What differs from the last call of the agent like this one. */
function alikeOf({ earlier, params, approval }: ShownApproval): Html {
  if (earlier === null) return html``;
  const head = html`<h2>Its last call like this</h2>`;
  const { alike } = earlier;
  if (alike === null)
    return html`<section>${head}<p>No earlier one of this tool is on record that happened.</p></section>`;
  const { params: own } = params;
  const when = html`<p>${linkTo(approval.workspace, alike, html`It happened at ${timeOf(alike.at)}`)}.</p>`;
  if (alike.params === null || !isJsonObject(own))
    return html`<section>${head}${when}<p>Its params are not shown.</p></section>`;
  const { params: then, costs } = alike;
  const differences = paramsThatDiffer(
    then,
    own,
    (name) => currencyOfParam(name, own, approval.costs),
    (name) => currencyOfParam(name, then, costs),
  );
  return html`<section>${head}${when}${
    differences.length === 0
      ? html`<p>Nothing differs in what is shown of both.</p>`
      : differencesTable(differences, 'Then', 'Now')
  }</section>`;
}

function onTargetOf({ earlier, approval }: ShownApproval): Html {
  if (earlier === null) return html``;
  const onTarget = earlier.onTarget.slice(0, MOST_EARLIER);
  if (onTarget.length === 0)
    return html`<section><h2>Before on this target</h2><p>Nothing of this agent is on record.</p></section>`;
  return html`<section><h2>Before on this target</h2><ul>${onTarget.map(
    (call) =>
      html`<li>${linkTo(approval.workspace, call, timeOf(call.at))}: ${call.tool}, ${WORDS[call.decision] ?? call.decision}</li>`,
  )}</ul></section>`;
}

/** What people call a decision. */
const WORDS: Readonly<Partial<Record<EarlierCall['decision'], string>>> = {
  committed: 'happened',
  failed: 'failed',
  unknown_effect: 'outcome unknown',
  in_progress: 'running',
  pending_approval: 'waits for approval',
};

function linkTo(workspace: string, { id }: Pick<EarlierCall, 'id'>, text: Html): Html {
  return html`<a href="/console/${workspace}/effects/${id}">${text}</a>`;
}

function whyOf({ why }: ShownApproval): Html {
  return html`<section><h2>Why somebody is asked</h2><ul>${why.map(
    ({ rule, description, unknown }) =>
      html`<li>${rule}${description === null ? '' : `: ${description}`}${
        unknown.length === 0 ? '' : ` (could not judge: ${unknown.join(', ')})`
      }</li>`,
  )}</ul></section>`;
}

function votersOf({ approval }: ShownApproval): Html {
  return html`<section><h2>Who may decide</h2><ul>${approval.requirements.map((requirement, index) => {
    const { rule, approvers, quorum } = requirement;
    const named = namesOf(approvers);
    return html`<li>${approvalsOf(approval, index)} of ${quorum} for ${rule}: ${named}${othersOf(approval, requirement)}</li>`;
  })}</ul>${votesOf(approval)}</section>`;
}

function namesOf({ roles, users }: Approvers): string {
  return [...roles.map((role) => `role ${role}`), ...users].join(', ');
}

function othersOf(approval: ApprovalRecord, requirement: ApprovalRequirement): Html {
  const { escalate } = requirement;
  return escalate === undefined
    ? html``
    : html`; from ${timeOf(escalatesAt(approval, requirement))} on also ${namesOf(escalate.to)}`;
}

function votesOf({ votes }: ApprovalRecord): Html {
  if (votes.length === 0) return html``;
  return html`<h2>Votes</h2><ul>${votes.map(
    ({ user, verdict, at, comment }) =>
      html`<li>${user} ${verdict === 'approve' ? 'approved' : 'rejected'} at ${timeOf(at)}${comment === null ? '' : html`<pre>${lines(comment)}</pre>`}</li>`,
  )}</ul>`;
}

function textOf(value: Json | undefined): string {
  return typeof value === 'string' ? value : '';
}
