import { currencyOfParam } from '../../effects/model/money.ts';
import type { AskedAlike } from '../../effects/run/allow-alike.ts';
import { timeFromWire, timeToWire } from '../../effects/wire/time.ts';
import { isJsonObject } from '../../json/value.ts';
import { boundsText, type Entered } from './fields.ts';
import { type Html, html } from './html.ts';
import { timeOf } from './layout.ts';
import type { ShownApproval } from './shown.ts';

export const ALIKE_FIELDS = ['alike', 'alike_until'] as const;

/** How many of the next calls are offered, besides the most. */
const OFFERED = [1, 2, 3, 5, 10, 20, 50];

/** The choice below the answers, with what exactly is alike; nothing where this person cannot allow the next calls. */
export function alikeHtml({ alike, approval, now, params }: ShownApproval, entered: Entered): Html {
  if (alike === null) return html``;
  const { times, forMs, varies } = alike;
  const until = now + forMs;
  const counts = [...OFFERED.filter((count) => count < times), times];
  const own = isJsonObject(params.params) ? params.params : {};
  const may = Object.entries(varies).map(([name, bounds]) => {
    const currency = bounds.kind === 'range' ? currencyOfParam(name, own, approval.costs) : null;
    const within =
      bounds.kind === 'choice'
        ? bounds.of.map(String).join(' or ')
        : boundsText({ bounds, asked: undefined, currency });
    return `${name}: ${within}`;
  });
  const but = may.length === 0 ? 'all of them' : `but for ${may.join('; ')}`;
  return html`<div><label for="alike">If you approve: the next calls like it, until ${timeOf(until)}</label>
<input type="hidden" name="alike_until" value="${timeToWire(until)}">
<select id="alike" name="alike"><option value="">Ask about each of them</option>${counts.map(
    (count) =>
      html`<option value="${count}"${entered['alike'] === String(count) ? html` selected` : ''}>${count === 1 ? 'Let the next one in' : `Let the next ${count} in`} without asking</option>`,
  )}</select>
<p class="faint">Like it: ${approval.requester.agentId} calls ${approval.tool} on “${approval.target}” with the same headers and the same params, ${but}. Budgets, pauses and rules that deny apply to each. If policy or the tool changes, people are asked again.</p></div>`;
}

/** What was allowed ahead with the vote, where it was. */
export function allowedHtml({ allowed }: ShownApproval): Html {
  if (allowed === null) return html``;
  const { times, by, expiresAt } = allowed;
  return html`<p>${by.user} let the next ${times === 1 ? 'call' : `${times} calls`} like it in without asking, until ${timeOf(expiresAt)}.</p>`;
}

/** What this person has allowed ahead, each with its end. Who sees the page may decide, and so may revoke. */
export function allowancesHtml({ allowances }: ShownApproval, path: string, form: string): Html {
  if (allowances.length === 0) return html``;
  return html`<section class="card"><h2>Your allowances</h2>${allowances.map(
    ({ id, agentId, tool, target, used, times, expiresAt }) =>
      html`<form method="post" action="${path}"><input type="hidden" name="form" value="${form}">
<p id="${id}">${agentId} calls ${tool} on “${target}” without asking: ${used} of ${times} used, until ${timeOf(expiresAt)}.</p>
<button class="no" name="allowance" value="${id}" aria-describedby="${id}">Revoke</button></form>`,
  )}<p class="faint">What is revoked is asked about from the next call on. The console’s inbox lists those of others.</p></section>`;
}

/** The next calls that a form allows; `undefined`: none; `null`: it has another shape than the page gives it. */
export function alikeIn({
  alike: count = '',
  alike_until: end = '',
}: Readonly<Partial<Record<string, string>>>): AskedAlike | undefined | null {
  if (count === '') return undefined;
  const until = timeFromWire(end);
  return /^[1-9]\d{0,2}$/.test(count) && until !== null ? { times: Number(count), until } : null;
}
