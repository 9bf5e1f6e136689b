import { describe, expect, it } from 'vitest';
import { INSTALLATION } from '../../src/effects/model/ledger.ts';
import {
  type Notification,
  NOTIFICATION_EVENTS,
  type NotificationEvent,
} from '../../src/effects/model/notification.ts';
import { mailText, type Message, messageOf, slackBody } from '../../src/notifications/message.ts';
import { createEffectStore } from '../../src/records/effect-store.ts';
import { RETENTION } from '../contract/fixture.ts';
import { admitRequest, approvalBy, permit, PERSON, voteRequest, WORKSPACE } from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import { ALONE, emptyRows, mapStore } from '../port/map-rows.ts';

const LOST: Notification = {
  id: 'msg_1',
  event: 'execution.lost',
  workspace: 'a/b',
  at: 0,
  effectId: 'eff_1',
  data: {},
};
const NOTHING = { effect: null, approval: null } as const;
const said = (of: Partial<Notification>): Message => messageOf({ ...LOST, ...of }, NOTHING, 'https://g.test');

describe('what is told', () => {
  it('is cut where somebody wrote much, and never within a character', () => {
    const reason = (text: string) => said({ data: { reason: text } }).body['data'];
    expect(reason('x'.repeat(600))).toMatchObject({ reason: 'x'.repeat(600) });
    expect(reason(`${'x'.repeat(599)}😀`)).toMatchObject({ reason: `${'x'.repeat(599)}…` });
  });

  it('leads to the call, to the screen of the workspace, or to the console', () => {
    const place = 'https://g.test/console/a%2Fb';
    expect(said({}).link.url).toBe(`${place}/effects/eff_1`);
    expect(said({ event: 'pause.set', effectId: null }).link.url).toBe(`${place}/pauses`);
    // Its record is gone: the page would say nothing.
    expect(said({ event: 'approval.requested' }).link.url).toBe(`${place}/inbox`);
    expect(said({ event: 'tool.quarantined', workspace: INSTALLATION, effectId: null }).link.url).toBe(
      'https://g.test/console',
    );
  });

  it('has the time at which it happened, not that of the attempt', () => {
    const message = said({ at: Date.UTC(2026, 0, 1) });
    expect(message.body['timestamp']).toBe('2026-01-01T00:00:00.000Z');
    expect(mailText(message)).toContain('at: 2026-01-01T00:00:00.000Z');
  });

  it('names the workspace, and none where it is of the installation', () => {
    expect(said({}).body['data']).toMatchObject({ workspace: 'a/b' });
    const of = said({ event: 'tool.quarantined', workspace: INSTALLATION, effectId: null });
    expect(of.body['data']).not.toHaveProperty('workspace');
    expect(of.facts.map(([name]) => name)).not.toContain('workspace');
  });

  it.each<readonly [NotificationEvent, place: string, words: string]>([
    ['approval.requested', 'inbox', 'Open the inbox'],
    ['approval.escalated', 'inbox', 'Open the inbox'],
    ['approval.granted', 'effects/eff_1', 'Open the call'],
    ['approval.rejected', 'effects/eff_1', 'Open the call'],
    ['approval.expired', 'effects/eff_1', 'Open the call'],
    ['execution.lost', 'effects/eff_1', 'Open the call'],
    ['pause.set', 'pauses', 'Open the pauses'],
    ['pause.lifted', 'pauses', 'Open the pauses'],
    ['budget.near_limit', 'budgets', 'Open the budgets'],
    ['policy.rejected', 'health', 'Open the console'],
    ['policy.proposed', 'policies', 'Open the console'],
    ['allowance.given', 'inbox', 'Open the inbox'],
    ['tool.quarantined', 'servers', 'Open the console'],
    ['retention.stalled', 'unknown', 'Open the console'],
  ])('of %s leads to %s', (event, place, words) => {
    const { link, body } = said({ event });
    expect(body['data']).toHaveProperty('effect_id', 'eff_1');
    expect(link).toEqual({ url: `https://g.test/console/a%2Fb/${place}`, words });
    const effect = 'https://g.test/console/a%2Fb/effects/eff_1';
    expect(body).toMatchObject({ type: event, data: { links: { open: link.url, effect } } });
    const without = said({ event, effectId: null }).body['data'];
    expect(without).not.toHaveProperty('links.effect');
    expect(without).not.toHaveProperty('effect_id');
  });

  it('says of an approval that was not used that it was not', () => {
    const titleOf = (data: Notification['data']) => said({ event: 'approval.granted', data }).title;
    expect(titleOf({ complete: true })).toBe('A call was approved');
    expect(titleOf({ complete: true, void: true })).toMatch(
      /^An approval was not used: policy or the tool has changed/,
    );
  });

  it('has the summary of the rule, unless the params that it is made of were erased meanwhile', async () => {
    const rows = { ...mapStore(emptyRows(), () => 1_750_000_000_000), ...ALONE };
    const store = createEffectStore(rows, { retention: RETENTION, keySeals: KEY_SEALS, maxFreezeMs: 0 });
    const asked = await store.admit(admitRequest({ verdict: permit([], [approvalBy({ summary: 'Refund €800.00' })]) }));
    if (asked.kind !== 'pending') throw new Error(asked.kind);
    const { effect, approval } = asked;
    const message = async () => {
      const [now, then] = [await store.effect(WORKSPACE, effect.id), await store.approval(WORKSPACE, approval.id)];
      return messageOf({ ...LOST, event: 'approval.rejected' }, { effect: now, approval: then }, 'https://g.test');
    };
    await store.vote(voteRequest(approval, { verdict: 'reject' }));
    const call = { tool: 'payments.refund', agent_id: 'support-bot' };
    expect((await message()).body['data']).toMatchObject({ ...call, summary: 'Refund €800.00' });
    const [first] = approval.requirements;
    if (first === undefined) throw new Error('nobody is asked');
    // Of several rules that ask, the first says it.
    const requirements = ['x'.repeat(601), 'of the second'].map((summary) => ({ ...first, summary }));
    const long = messageOf(LOST, { effect, approval: { ...approval, requirements } }, 'https://g.test');
    expect(long.body['data']).toMatchObject({ summary: `${'x'.repeat(600)}…` });
    expect(await store.erase({ workspace: WORKSPACE, effectId: effect.id, actor: PERSON })).toEqual({ kind: 'erased' });
    const said = await message();
    expect(said.body['data']).toMatchObject(call);
    for (const text of [JSON.stringify(said.body), mailText(said), JSON.stringify(slackBody(said))])
      expect(text).not.toContain('800');
    await store.close();
  });

  it('is a sentence of its own for each event', () => {
    const titles = NOTIFICATION_EVENTS.map((event) => said({ event }).title);
    expect(new Set(titles).size).toBe(NOTIFICATION_EVENTS.length);
    // Programs are told it as well.
    expect(NOTIFICATION_EVENTS.map((event) => said({ event }).body)).toMatchObject(
      titles.map((title) => ({ data: { title } })),
    );
  });

  it('is no markup for Slack, and no more than Slack takes', () => {
    const message = { ...said({}), title: 'a & <b>', link: { url: 'https://g.test/?a&b>', words: 'Open' } };
    const facts = Array.from({ length: 6 }, (_, n) => [`text ${n}`, 'x'.repeat(600)] as const);
    expect(slackBody({ ...message, facts })).toMatchObject({
      text: 'a &amp; &lt;b&gt;',
      unfurl_links: false,
      blocks: [
        { text: { text: '*a &amp; &lt;b&gt;*\n<https://g.test/?a&amp;b&gt;|Open>' } },
        // A `:word:` of others is no picture.
        { text: { type: 'plain_text', text: expect.stringMatching(/^[^]{3000}$/), emoji: false } },
      ],
    });
    // Slack takes no block without a text.
    expect(slackBody({ ...message, facts: [] })['blocks']).toHaveLength(1);
  });

  it('is money as money of a budget whose currency is known, and its figures as they are counted for programs', () => {
    const of = { budget: 'day', unit: 'cent', limit: 100_000, spent: 90_000, held: 350, resets_at: null };
    const near = (currency: { readonly currency?: string }): Message =>
      said({ event: 'budget.near_limit', effectId: null, data: { ...of, ...currency } });
    const money = '€900.00 spent and €3.50 set aside of €1,000.00';
    const euro = near({ currency: 'EUR' });
    expect(euro.body).toMatchObject({ data: { limit: 100_000, spent: 90_000, currency: 'EUR', summary: money } });
    for (const text of [JSON.stringify(slackBody(euro)), mailText(euro)]) {
      expect(text).toContain(`summary: ${money}`);
      expect(text).not.toMatch(/90000|unit|currency|EUR/);
    }
    expect(mailText(near({}))).toContain('summary: 90000 cent spent and 350 cent set aside of 100000 cent');
  });

  it('is a mail of plain lines, with the way to the call, which decides nothing', () => {
    expect(
      mailText(said({ data: { reason: 'look', scope: { tool: 'a.b' } } })),
    ).toBe(`The outcome of a call is not known: somebody has to look.

workspace: a/b
effect_id: eff_1
reason: look
scope: {"tool":"a.b"}
at: 1970-01-01T00:00:00.000Z

Open the call: https://g.test/console/a%2Fb/effects/eff_1

The link decides nothing by itself.
`);
  });

  it('adds no line to a mail', () => {
    const lines = mailText(said({ data: { reason: 'see below\r\nBcc: all@example.com' } })).split('\n');
    expect(lines).toContain('reason: see below Bcc: all@example.com');
  });
});
