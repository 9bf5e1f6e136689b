import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { type Rig, type Seen, startRig } from './rig.ts';

/* Rules that are suggested where people approved the same time and again: who reads them, and what they are drawn from. */

const WS = '/v1/workspaces/demo';
let rig: Rig;
let count = 0;
beforeEach(async () => {
  rig = await startRig();
});
afterEach(async () => {
  vi.restoreAllMocks();
  await rig.close();
});

const suggestions = (key = rig.keys.account): Promise<Seen> => rig.send('GET', `${WS}/policies/suggestions`, { key });

/** Has a refund asked about. @returns the id of the request */
async function ask(params: object = {}): Promise<string> {
  count += 1;
  const { json } = await rig.send('POST', `${WS}/effects`, {
    key: rig.keys.agent,
    body: {
      action_type: 'mcp.tool_call',
      tool: 'payments.refund',
      params: { payment_id: `pay_${count}`, amount: 60_000 + count, currency: 'EUR', ...params },
      idempotency_key: `suggest-${count}`,
    },
  });
  return String(json['approval']?.['id']);
}

const decide = (id: string, verdict: 'approve' | 'reject', body: object = {}): Promise<Seen> =>
  rig.send('POST', `${WS}/approvals/${id}/${verdict}`, { key: rig.keys.approver, body });

async function approve(times: number, params: object = {}): Promise<readonly string[]> {
  const ids: string[] = [];
  for (let n = 0; n < times; n += 1) {
    const id = await ask(params);
    expect((await decide(id, 'approve')).status).toBe(200);
    ids.push(id);
  }
  return ids;
}

interface Drawn {
  readonly since: string;
  readonly until: string;
  /** The newest first. */
  readonly approvals: readonly { readonly at: string }[];
}

it('says nothing of four approvals, and of the fifth what it is drawn from', async () => {
  const version = rig.ports.policies().set.version;
  const first = await approve(4);
  expect((await suggestions()).json).toEqual({ version, suggestions: [] });
  const ids = [...first, ...(await approve(1))];
  const { status, json } = await suggestions();
  expect(status).toBe(200);
  expect(json).toMatchObject({
    version,
    suggestions: [
      {
        rule: 'rig/refund-large',
        tool: 'payments.refund',
        file: expect.stringMatching(/policy\.yaml$/),
        line: expect.any(Number),
        agents: ['bot'],
        people: ['maria'],
        since: expect.stringMatching(/Z$/),
        example: { agent_id: 'bot', params: { currency: 'EUR' } },
      },
    ],
  });
  expect(json['suggestions']?.[0]?.['text']).toContain('effect: allow');
  const [{ since, until, approvals }] = json['suggestions'] as unknown as readonly [Drawn];
  expect([since, until]).toEqual([approvals.at(-1)?.at, approvals[0]?.at]);
  const evidence = ids.toReversed().map((id) => ({ approval_id: id, agent_id: 'bot', by: ['maria'] }));
  expect(json).toMatchObject({ suggestions: [{ approvals: evidence }] });
  // It was said, and nothing else was done.
  expect(rig.ports.policies().set.version).toBe(version);
  expect(await rig.ports.store.policyProposals()).toEqual([]);
  const next = await rig.ports.store.approval('demo', await ask());
  expect(next?.status).toBe('pending');
});

it.each([
  ['one was rejected', async () => void (await decide(await ask(), 'reject'))],
  [
    'one was approved with changes',
    async () => void (await decide(await ask(), 'approve', { changes: { currency: 'USD' } })),
  ],
])('says nothing where %s: asking was of use', async (_, once) => {
  await approve(5);
  expect((await suggestions()).json['suggestions']).toHaveLength(1);
  await once();
  expect((await suggestions()).json['suggestions']).toEqual([]);
});

it('never tells a param that is redacted', async () => {
  await approve(5, { reason: 'a secret' });
  const { json, text } = await suggestions();
  expect(json['suggestions']).toEqual([]);
  expect(text).not.toContain('a secret');
});

it('draws on calls of the tool as it is now, without headers of their own, among the latest 1,000 requests of 30 days', async () => {
  await approve(5);
  const { ports } = rig;
  const said = async (): Promise<number> => {
    const found: unknown = (await suggestions()).json['suggestions'];
    vi.restoreAllMocks();
    return Array.isArray(found) ? found.length : 0;
  };
  expect(await said()).toBe(1);

  const { catalog, openParams } = ports;
  const tool = catalog().tool('payments.refund');
  vi.spyOn(ports, 'catalog').mockImplementation(() => ({
    ...catalog(),
    tool: () => tool && { ...tool, digest: 'another' },
  }));
  expect(await said(), 'the tool has changed').toBe(0);

  vi.spyOn(ports, 'openParams').mockImplementation((effect) => {
    const read = openParams(effect);
    return read && { ...read, headers: { bound: { 'x-account': 'acme' }, sent: {} } };
  });
  expect(await said(), 'a header decides too').toBe(0);

  const now = ports.store.now();
  const day = 86_400_000;
  for (const [days, found] of [
    [29, 1],
    [31, 0],
  ] as const) {
    vi.spyOn(ports.store, 'now').mockReturnValue(now + days * day);
    expect(await said(), `after ${days} days`).toBe(found);
  }

  const filter = { status: null, agentId: null, limit: 100, cursor: null };
  const { items } = await ports.store.approvals('demo', filter);
  const [newest] = items;
  if (newest === undefined) throw new Error('nothing was asked');
  for (const [others, found] of [
    [995, 1],
    [996, 0],
  ] as const) {
    const waiting = Array.from({ length: others }, (_, n) => ({
      ...newest,
      id: `apr_${n}`,
      status: 'pending' as const,
    }));
    vi.spyOn(ports.store, 'approvals').mockImplementation(async (_, { cursor }) => {
      const from = Number(cursor ?? 0);
      const all = [...waiting, ...items];
      // Pages may be short though others follow.
      const to = from + 60;
      return { items: all.slice(from, to), next: to < all.length ? String(to) : null };
    });
    expect(await said(), `${others} later ones wait`).toBe(found);
  }
});

it.each([
  [100_000, 1],
  [110_000, 0],
])('opens no more than 512 Ki characters of params for one answer: five of %i are %i rule', async (length, rules) => {
  await approve(5);
  const { ports } = rig;
  const { store, openParams } = ports;
  const read = store.effect.bind(store);
  vi.spyOn(store, 'effect').mockImplementation(async (...of) => {
    const effect = await read(...of);
    return effect?.sealed == null ? effect : { ...effect, sealed: effect.sealed.padEnd(length) };
  });
  vi.spyOn(ports, 'openParams').mockImplementation((effect) =>
    openParams({ ...effect, sealed: effect.sealed?.trimEnd() ?? null }),
  );
  expect((await suggestions()).json['suggestions']).toHaveLength(rules);
});

it('says so where no rule can be tried, and not that there is none', async () => {
  await rig.close();
  rig = await startRig({}, { suggestRules: async () => null });
  expect((await suggestions()).json['suggestions']).toEqual([]);
  await approve(5);
  expect(await suggestions()).toMatchObject({
    status: 409,
    json: { detail: expect.stringMatching(/^No rule can be tried now/) },
  });
});

it('is for keys of the workspace that may call the tool, and of no one agent', async () => {
  await approve(5);
  const { agent, admin, auditor, stranger } = rig.keys;
  for (const key of [agent, admin, auditor, stranger]) expect((await suggestions(key)).status).toBe(403);
  const narrow = await rig.send('POST', '/v1/beta/users/ops/keys', {
    key: admin,
    body: { name: 'narrow', kind: 'account', workspace: 'demo', allowed_tools: ['deploy.start'] },
  });
  const shown = await suggestions(String(narrow.json['key']));
  expect([shown.status, shown.json['suggestions']]).toEqual([200, []]);
});
