import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { makeApiKey } from './gateway.ts';
import { startWebhookReceiver, type WebhookReceiver } from './webhook-receiver.ts';
import { freshKey, startWorld, type World, worldFiles } from './world.ts';

/* A request for approval that nobody decides goes to others as well, at a real gateway, by the time of its store. */

const PATIENT = { timeout: 60_000, interval: 50 } as const;
const SECRET = `whsec_${Buffer.from('of the tests'.padEnd(32, '.')).toString('base64')}`;

const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: later
owner: team-test
rules:
  - id: soon
    effect: require_approval
    match: { tools: [notes.secret] }
    approval: { approvers: { users: [maria] }, escalate: { after: 1s, to: { roles: [finance], users: [olga] } }, summary: "Note \${params.text}" }
  - id: late
    effect: constrain
    match: { tools: [notes.secret] }
    when: { params.text: { eq: late } }
    approval: { approvers: { users: [maria] }, escalate: { after: 20h, to: { roles: [finance] } }, summary: "Late" }
  - id: night
    effect: require_approval
    match: { tools: [notes.add] }
    when: { params.text: { eq: night } }
    approval: { approvers: { users: [maria] }, escalate: { after: 20h, to: { roles: [finance] } }, summary: "Night" }
  - id: night-late
    effect: constrain
    match: { tools: [notes.add] }
    when: { params.text: { eq: night } }
    approval: { approvers: { users: [maria] }, escalate: { after: 23h, to: { roles: [finance] } }, summary: "Night, later" }
  - id: office
    effect: require_approval
    match: { tools: [notes.add] }
    when: { params.text: { eq: office } }
    approval: { approvers: { users: [maria] }, hours: office, expires: 2h, escalate: { after: 30m, to: { roles: [finance] } }, summary: "Office" }
`;

/** The office is open on one day of the week, three days from now. */
const OPEN = new Date(Date.now() + 3 * 86_400_000).getUTCDay();

const OFFICE = `
schedules: { office: { days: [${['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'][OPEN] ?? ''}], hours: ["09:00-10:00", "14:00-15:00"] } }
rules:`;

let world: World;
let receiver: WebhookReceiver;
beforeAll(async () => {
  receiver = await startWebhookReceiver(SECRET, () => false);
  world = await startWorld({
    files: (url) => {
      const files = worldFiles(url);
      const webhooks = `webhooks: [ { name: ops, url: "${receiver.url}", secret: "\${HOOK}", events: [approval.escalated], retry_first: 50ms } ]\n`;
      return {
        config: `${files.config}${webhooks}`,
        policies: { ...files.policies, 'later.yaml': POLICY.replace('\nrules:', OFFICE) },
      };
    },
    env: { HOOK: SECRET },
  });
});
afterAll(async () => {
  await world.close();
  await receiver.close();
});

const ask = async (text: string) => {
  const { body } = await world.run({ tool: 'notes.secret', params: { text }, idempotency_key: freshKey() });
  expect(body).toMatchObject({ decision: 'pending_approval' });
  return { id: String(body.approval.id), effect: String(body.effect_id) };
};
const approve = (id: string, key: string) => world.post(`/approvals/${id}/approve`, {}, key);

it('is decided by who it escalates to, from then on, and never by the owner of the agent that asked', async () => {
  const olga = await makeApiKey(world.gateway, 'olga', { kind: 'account', workspace: 'demo' });
  const { id, effect } = await ask('x');
  const shown = (await world.get(`/approvals/${id}`)).body;
  const [{ escalates }] = shown.requirements;
  expect(escalates.to).toEqual({ roles: ['finance'], users: ['olga'] });
  expect(Date.parse(escalates.at) - Date.parse(shown.created_at)).toBe(1_000);
  await vi.waitFor(() => expect(receiver.taken.map(({ data }) => data.approval_id)).toContain(id), PATIENT);
  expect(receiver.taken.find(({ data }) => data.approval_id === id)).toMatchObject({
    type: 'approval.escalated',
    data: { effect_id: effect, roles: ['finance'], users: ['olga'], summary: 'Note "x"' },
  });
  expect(receiver.unsigned).toEqual([]);
  expect((await approve(id, olga)).body).toMatchObject({ status: 403, code: 'own_request' });
  expect((await approve(id, world.keys.account)).body).toMatchObject({ became: { decision: 'committed' } });
  expect((await world.kinds(effect)).slice(0, 3)).toEqual([
    'approval.requested',
    'approval.escalated',
    'approval.granted',
  ]);
});

it('counts a vote for the rule that has escalated to the voter, and not for the one that will', async () => {
  const { id } = await ask('late');
  const [soon, late] = (await world.get(`/approvals/${id}`)).body.requirements;
  await vi.waitFor(() => expect(receiver.taken.map(({ data }) => data.approval_id)).toContain(id), PATIENT);
  // By the rule that has escalated tom decides, and not by the other one.
  expect((await approve(id, world.keys.account)).body).toMatchObject({
    status: 'pending',
    became: { what: 'waiting' },
  });
  expect((await world.get(`/approvals/${id}`)).body.requirements).toMatchObject([
    { rule: soon.rule, approvals: 1 },
    { rule: late.rule, approvals: 0 },
  ]);
  expect((await approve(id, world.keys.approver)).body).toMatchObject({ became: { decision: 'committed' } });
});

it('tells whoever it escalates to, and comes too early, from when on the vote would count', async () => {
  const { body } = await world.run({ tool: 'notes.add', params: { text: 'night' }, idempotency_key: freshKey() });
  const id = String(body.approval.id);
  const { requirements } = (await world.get(`/approvals/${id}`)).body;
  const [at] = requirements.map(({ escalates }: { escalates: { at: string } }) => escalates.at).toSorted();
  expect(requirements).toHaveLength(2);
  expect((await approve(id, world.keys.account)).body).toMatchObject({
    status: 403,
    code: 'not_an_approver',
    detail: `The policy asks maria to decide. You may from ${at} on, where nobody has by then.`,
  });
  expect((await approve(id, world.keys.approver)).body).toMatchObject({ became: { decision: 'committed' } });
});

it('counts only the hours of the schedule that the rule names', async () => {
  const { body } = await world.run({ tool: 'notes.add', params: { text: 'office' }, idempotency_key: freshKey() });
  const shown = (await world.get(`/approvals/${body.approval.id}`)).body;
  const [{ hours, escalates }] = shown.requirements;
  const day = new Date(Date.parse(shown.created_at) + 3 * 86_400_000).toISOString().slice(0, 10);
  expect([hours, escalates.at, shown.expires_at]).toEqual(['office', `${day}T09:30:00.000Z`, `${day}T15:00:00.000Z`]);
});
