import { approvalUrl } from '../effects/run/render.ts';
import type { ApprovalRecord } from '../effects/model/approval.ts';
import type { EffectRecord } from '../effects/model/effect.ts';
import { INSTALLATION } from '../effects/model/ledger.ts';
import { amountText } from '../effects/model/money.ts';
import type { Notification, NotificationEvent } from '../effects/model/notification.ts';
import type { Json, JsonObject } from '../json/value.ts';
import { shortened } from '../effects/model/shortened.ts';

/** The most characters of what somebody wrote. */
const MOST_TEXT = 600;

/** What may be said of a notification: its own data, and of the call what approvers are shown in short. */
export interface Message {
  readonly id: string;
  readonly event: NotificationEvent;
  readonly at: number;
  /** One sentence, of words of the gateway alone. */
  readonly title: string;
  /** Names and texts that others chose, by what they are. */
  readonly facts: readonly (readonly [name: string, value: string])[];
  /** Where a person looks at it, and the words for that. It decides nothing by itself. */
  readonly link: { readonly url: string; readonly words: string };
  readonly body: JsonObject;
}

/** What is said of each event, and the screen of the console for it. `request`: the page of the request for approval. */
const EVENTS: Readonly<Record<NotificationEvent, readonly [title: string, screen: string]>> = {
  'approval.requested': ['A call waits for approval', 'request'],
  'approval.escalated': ['A call still waits for approval: others are asked as well', 'request'],
  'approval.granted': ['A call was approved', 'effects'],
  'approval.rejected': ['A call was rejected', 'effects'],
  'approval.expired': ['A request for approval has expired: nothing happened', 'effects'],
  'execution.lost': ['The outcome of a call is not known: somebody has to look', 'effects'],
  'pause.set': ['Calls are paused', 'pauses'],
  'pause.lifted': ['A pause was lifted: calls go on', 'pauses'],
  'budget.near_limit': ['A budget is near its limit', 'budgets'],
  'policy.rejected': [
    'Files of the configuration or the policies cannot be used; the last good version is in force',
    'health',
  ],
  'policy.proposed': ['Policies were proposed: they come in force when somebody else confirms them', 'policies'],
  'allowance.given': ['Somebody allowed the next calls alike: nobody is asked about them', 'inbox'],
  'tool.quarantined': ['An MCP server changed a tool: it is not called until somebody approves the change', 'servers'],
  'retention.stalled': ['Old effects stay, because what became of them is not known', 'unknown'],
};
const WORDS: Readonly<Record<string, string>> = {
  request: 'Open the request',
  effects: 'Open the call',
  pauses: 'Open the pauses',
  budgets: 'Open the budgets',
  inbox: 'Open the inbox',
};

/** Of an approval of what would not run any more. */
const VOID = 'An approval was not used: policy or the tool has changed since it was asked for';

/**
 * What is said of a notification. Of a call only its tool, its agent and the summary that its rule makes for approvers,
 * as long as the params that it is made of are kept: not the params, and not the target.
 */
export function messageOf(
  notification: Notification,
  of: { readonly effect: EffectRecord | null; readonly approval: ApprovalRecord | null },
  publicUrl: string,
): Message {
  const { id, event, workspace, at, effectId, data } = notification;
  const { effect, approval } = of;
  const summary = (effect?.sealed == null ? null : approval?.requirements[0]?.summary) ?? '';
  const call: JsonObject = {
    ...(effect === null ? {} : { tool: effect.action.tool, agent_id: effect.actor.agentId }),
    ...(summary === '' ? {} : { summary: shortened(summary, MOST_TEXT) }),
  };
  const [said, screen] = EVENTS[event];
  const [title, words] = [data['void'] === true ? VOID : said, WORDS[screen] ?? 'Open the console'];
  const base = `${publicUrl}/console`;
  const place = workspace === INSTALLATION ? base : `${base}/${encodeURIComponent(workspace)}`;
  const ofCall = effectId === null ? null : `${place}/effects/${encodeURIComponent(effectId)}`;
  const ofScreen = screen === 'effects' && ofCall !== null ? ofCall : `${place}/${screen}`;
  const ofRequest =
    approval === null
      ? { url: `${place}/inbox`, words: 'Open the inbox' }
      : { url: approvalUrl(approval, publicUrl), words };
  const link = screen === 'request' ? ofRequest : { url: workspace === INSTALLATION ? base : ofScreen, words };
  const shown: JsonObject = {
    ...(workspace === INSTALLATION ? {} : { workspace }),
    ...(effectId === null ? {} : { effect_id: effectId }),
    ...call,
    ...Object.fromEntries(Object.entries(data).map(([name, value]) => [name, cutJson(value)] as const)),
    ...(event === 'budget.near_limit' ? { summary: usedText(data) } : {}),
  };
  const links = { open: link.url, ...(ofCall === null ? {} : { effect: ofCall }) };
  return {
    id,
    event,
    at,
    title,
    facts: Object.entries(shown)
      .filter(([name]) => event !== 'budget.near_limit' || !COUNTED.has(name))
      .map(([name, value]) => [name, typeof value === 'string' ? value : JSON.stringify(value)]),
    link,
    body: { type: event, timestamp: new Date(at).toISOString(), data: { title, ...shown, links } },
  };
}

/** Figures of a budget, for programs: people read what {@link usedText} makes of them. */
const COUNTED: ReadonlySet<string> = new Set(['unit', 'currency', 'limit', 'spent', 'held']);

/** How far a budget is used: money as money where its currency is known. */
function usedText({ unit, currency, limit, spent, held }: Notification['data']): string {
  const text = (of: Json = null): string => amountText(Number(of), typeof unit === 'string' ? unit : '', currency);
  return `${text(spent)} spent and ${text(held)} set aside of ${text(limit)}`;
}

/** As Slack, and what takes its incoming webhooks, shows it. What others wrote is plain text: no markup, and no links. */
export function slackBody({ title, facts, link }: Message): JsonObject {
  const texts = facts.map(([name, value]) => `${name}: ${value}`).join('\n');
  return {
    text: escaped(title),
    unfurl_links: false,
    blocks: [
      { type: 'section', text: { type: 'mrkdwn', text: `*${escaped(title)}*\n<${escaped(link.url)}|${link.words}>` } },
      ...(texts === ''
        ? []
        : [{ type: 'section', text: { type: 'plain_text', text: texts.slice(0, 3000), emoji: false } }]),
    ],
  };
}

export function mailText({ title, facts, link, at }: Message): string {
  const lines = facts.map(([name, value]) => `${name}: ${value.replaceAll(/[\r\n]+/g, ' ')}`);
  return [
    `${title}.`,
    '',
    ...lines,
    `at: ${new Date(at).toISOString()}`,
    '',
    `${link.words}: ${link.url}`,
    '',
    'The link decides nothing by itself.',
    '',
  ].join('\n');
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}

function cutJson(value: Json): Json {
  return typeof value === 'string' ? shortened(value, MOST_TEXT) : value;
}
