import { expect, it } from 'vitest';
import { compilePolicies } from '../../src/policy/load.ts';
import type { PolicyText } from '../../src/policy/policy-texts.ts';
import { evaluatePolicies, type CompiledPolicies } from '../../src/policy/evaluate.ts';
import { type ApprovedCall, type SuggestedRule, suggestRules } from '../../src/policy/suggest.ts';
import type { Tool } from '../../src/effects/model/tool.ts';
import type { JsonObject } from '../../src/json/value.ts';
import { BOT, call, HEAD, outcome, REFUND, tool } from './fixtures.ts';

/* Rules that are suggested where people approved the same time and again: what they let through, and what not. */

const TYPED: Tool = {
  ...REFUND,
  target: 'payment:{payment_id}',
  paramsSchema: {
    type: 'object',
    properties: {
      payment_id: { type: 'string' },
      amount: { type: 'integer' },
      currency: { type: 'string' },
      note: { type: 'string' },
      lines: { type: 'array' },
    },
    additionalProperties: false,
  },
};
const ASKS = `${HEAD}budgets: { day: { unit: cent, by: [agent.id], per: day, limit: 100000 } }
rules:
  # Somebody looks at what is large.
  - id: large
    effect: require_approval
    match: { tools: ["payments.*"], agents: { team: [support] } }
    when: { params.amount: { gt: 100 } }
    obligations: [{ budget: { use: day, amount: params.amount } }]
    approval: { approvers: { roles: [finance-lead] } }
  - { id: mail, effect: allow, match: { tools: [mail.send] } }
`;

function surroundings(tools: readonly Tool[]) {
  return {
    tools,
    upstreams: ['payments', 'mail'],
    pools: new Map<string, number>(),
    roles: ['finance-lead'],
    rolesOf: new Map([['ada', ['finance-lead']]]),
  };
}

const targetOf = ({ payment_id: id }: JsonObject): string => `payment:${typeof id === 'string' ? id : ''}`;

function approved(params: JsonObject, over: Parameters<typeof call>[0] = {}): ApprovedCall {
  const { tool: _, ...input } = call({ params, target: targetOf(params), ...over });
  const approvalId = `apr_${JSON.stringify(params)}`;
  return { approvalId, effectId: approvalId, by: ['ada'], at: 0, input };
}

/** Five refunds that were approved, each with other params. */
function five(of: (n: number) => JsonObject = () => ({})): readonly ApprovedCall[] {
  return [1, 2, 3, 4, 5].map((n) =>
    approved({ payment_id: `pay_${n}`, amount: 100 + n * 100, currency: n > 3 ? 'EUR' : 'USD', ...of(n) }),
  );
}

function suggested(
  calls: readonly ApprovedCall[],
  text = ASKS,
  tools: readonly Tool[] = [TYPED, tool('mail.send')],
): SuggestedRule | null {
  const group = { rule: 's/large', tool: 'payments.refund', workspace: 'demo', calls };
  return suggestRules([group], [fileOf(text)], surroundings(tools))[0] ?? null;
}

const fileOf = (text: string): PolicyText => ({ file: 'p.yaml', text, lists: new Map() });

/** The policies with the text in the place of the rule `large`, as a person puts it there. */
function inForce(text: string | undefined, before = ASKS): CompiledPolicies {
  if (text === undefined) throw new Error('nothing is suggested');
  const whole = before.replace(/ {2}- id: large\n(?: {4}.*\n)+/, () => text);
  expect(whole).not.toBe(before);
  const tools = [TYPED, tool('mail.send')];
  return compilePolicies([fileOf(whole)], surroundings(tools)).set;
}

const judged = (set: CompiledPolicies, params: JsonObject, over: Parameters<typeof call>[0] = {}): string =>
  outcome(evaluatePolicies(set, call({ tool: TYPED, params, target: targetOf(params), ...over })));

const WITHIN = { payment_id: 'pay_7', amount: 300, currency: 'EUR' };

it('lets through what was approved, and nothing beyond what was seen', () => {
  const found = suggested(five());
  expect(found).toMatchObject({ rule: 's/large', tool: 'payments.refund', file: 'p.yaml' });
  expect(found?.calls).toHaveLength(5);
  expect(found?.text).toMatchInlineSnapshot(`
    "  - id: large
        effect: require_approval
        match:
          tools: [ payments.* ]
          agents:
            team: [ support ]
          except:
            - tools: [ payments.refund ]
              workspaces: [ demo ]
              agents:
                id: [ support-bot ]
        when: { params.amount: { gt: 100 } }
        obligations: [ { budget: { use: day, amount: params.amount } } ]
        approval: { approvers: { roles: [ finance-lead ] } }
      - id: large-demo
        effect: require_approval
        match:
          tools: [ payments.refund ]
          agents:
            team: [ support ]
            id: [ support-bot ]
          workspaces: [ demo ]
        when: { params.amount: { gt: 100 } }
        obligations: [ { budget: { use: day, amount: params.amount } } ]
        approval: { approvers: { roles: [ finance-lead ] } }
        unless:
          all:
            - params.amount: { gt: 100 }
            - tool.name: { eq: "payments.refund" }
              agent.id:
                in: [ "support-bot" ]
              params.payment_id: { regex: "pay_[0-9]{1}", if_absent: false }
              params.amount: { gte: 200, lte: 600, if_absent: false }
              params.currency:
                in: [ "EUR", "USD" ]
                if_absent: false
              params.note: { exists: false }
              params.lines: { exists: false }
      - id: large-approved
        description: What people approved each time that large asked
        effect: allow
        match:
          tools: [ payments.refund ]
          agents:
            team: [ support ]
            id: [ support-bot ]
          workspaces: [ demo ]
        when:
          all:
            - params.amount: { gt: 100 }
            - params.payment_id: { regex: "pay_[0-9]{1}", if_absent: false }
              params.amount: { gte: 200, lte: 600, if_absent: false }
              params.currency:
                in: [ "EUR", "USD" ]
                if_absent: false
              params.note: { exists: false }
              params.lines: { exists: false }
        obligations:
          - budget: { use: day, amount: params.amount }
    "
  `);
  const set = inForce(found?.text);
  for (const { input } of five()) expect(judged(set, input.params)).toBe('permit');
  expect(judged(set, WITHIN)).toBe('permit');
  const beyond: Readonly<Record<string, JsonObject>> = {
    'one more': { ...WITHIN, amount: 601 },
    'one less': { ...WITHIN, amount: 199 },
    'another currency': { ...WITHIN, currency: 'GBP' },
    'a param that none had': { ...WITHIN, note: 'x' },
    'a list that none had': { ...WITHIN, lines: [] },
    'a target of another kind': { ...WITHIN, payment_id: 'card_7' },
    'a longer target': { ...WITHIN, payment_id: 'pay_77' },
    'a way out': { ...WITHIN, payment_id: 'pay_/' },
    'a text in the place of a number': { ...WITHIN, amount: '300' },
    'no currency': { payment_id: 'pay_7', amount: 300 },
    null: { ...WITHIN, currency: null },
  };
  const before = compilePolicies([fileOf(ASKS)], surroundings([TYPED, tool('mail.send')])).set;
  for (const [what, params] of Object.entries(beyond)) {
    expect([what, judged(set, params)]).not.toEqual([what, 'permit']);
    expect([what, judged(set, params)]).toEqual([what, judged(before, params)]);
  }
  expect(judged(set, WITHIN, { agent: { ...BOT, id: 'other' } })).toBe('approval');
  expect(judged(set, WITHIN, { workspace: 'elsewhere' })).toBe('approval');
  expect(judged(set, WITHIN, { agent: { ...BOT, team: 'sales' } })).toBe('denied_policy');
  expect(judged(set, { ...WITHIN, amount: 100 })).toBe('denied_policy');
});

it.each(['pay_', 'pay:', 'pay-', 'acct_1:pay-'])(
  'lets an id through that begins as all did, %j, with one word as long as those seen: neither shorter nor longer',
  (start) => {
    const words = ['12', '345', '34', '4567', '98'];
    const set = inForce(suggested(five((n) => ({ payment_id: `${start}${words[n - 1]}` })))?.text);
    const answers = ['00', '0000', '0', '00000', '', '0a', '0_0'].map((word) =>
      judged(set, { ...WITHIN, payment_id: `${start}${word}` }),
    );
    expect(answers).toEqual(['permit', 'permit', ...Array.from({ length: 5 }, () => 'approval')]);
    expect(judged(set, { ...WITHIN, payment_id: `x${start}00` })).toBe('approval');
  },
);

it('demands what the rule demanded that asked', () => {
  const set = inForce(suggested(five())?.text);
  const verdict = evaluatePolicies(set, call({ tool: TYPED, params: WITHIN }));
  expect(verdict).toMatchObject({ kind: 'permit', obligations: [{ kind: 'budget', budget: 's/day', amount: 300 }] });
});

it.each(['from: 2026-01-01', 'until: 2036-01-01', 'from: 2026-01-01\n    until: 2036-01-01'])(
  'holds as long as the rule that asked: %j',
  (times) => {
    const before = ASKS.replace('when:', `${times}\n    when:`);
    const found = suggested(five(), before);
    const [rules = '', ...more] = found?.text.split(/^ {2}- /m) ?? [];
    expect([rules, more.length]).toEqual(['', 3]);
    for (const rule of more) for (const time of times.split(/\n +/)) expect(rule).toContain(time);
    expect(judged(inForce(found?.text, before), WITHIN)).toBe('permit');
  },
);

it('leaves out what the rule left out that asked, also within what was seen', () => {
  const before = ASKS.replace('when:', 'unless: { params.amount: 350 }\n    when:');
  const set = inForce(suggested(five(), before)?.text, before);
  expect(judged(set, { ...WITHIN, amount: 349 })).toBe('permit');
  expect(judged(set, { ...WITHIN, amount: 350 })).toBe('denied_policy');
});

it('asks nowhere about what the rule that asked left out elsewhere', () => {
  const before = ASKS.replace('match: {', 'match: { except: [{ workspaces: [lab] }],');
  const set = inForce(suggested(five(), before)?.text, before);
  expect(judged(set, WITHIN)).toBe('permit');
  expect(judged(set, WITHIN, { workspace: 'elsewhere' })).toBe('approval');
  expect(judged(set, WITHIN, { workspace: 'lab' })).toBe('denied_policy');
});

it('leaves a rule of this workspace alone as it is, and joins what it did not ask about', () => {
  const before = ASKS.replace('match: {', 'match: { workspaces: [demo],').replace(
    'when:',
    'unless: { params.currency: CHF }\n    when:',
  );
  const found = suggested(five(), before);
  expect(found?.text.match(/- id:/g)).toHaveLength(2);
  const set = inForce(found?.text, before);
  expect(judged(set, WITHIN)).toBe('permit');
  expect(judged(set, { ...WITHIN, amount: 601 })).toBe('approval');
  expect(judged(set, { ...WITHIN, currency: 'CHF' })).toBe('denied_policy');
});

it('takes names that no rule of the file has, also where the name of the workspace is long', () => {
  const named = (before: string, workspace = 'demo') => {
    const calls = five().map((one) => ({ ...one, input: { ...one.input, workspace } }));
    const group = { rule: 's/large', tool: 'payments.refund', workspace, calls };
    const [found] = suggestRules([group], [fileOf(before)], surroundings([TYPED, tool('mail.send')]));
    return found?.text.match(/(?<=- id: ).*/g);
  };
  const taken = ['large-demo', 'large-approved', 'large-approved-2'].map(
    (id) => `  - { id: ${id}, effect: allow, match: { tools: [mail.send] } }\n`,
  );
  expect(named(`${ASKS}${taken.join('')}`)).toEqual(['large', 'large-demo-2', 'large-approved-3']);
  expect(named(ASKS, `eu-${'x'.repeat(40)}`)).toEqual(['large', `large-eu-${'x'.repeat(13)}`, 'large-approved']);
});

it('lifts the approval of a rule that grants nothing, and grants nothing itself', () => {
  const before = `${ASKS.replace('require_approval', 'constrain')}  - { id: all, effect: allow, match: { tools: [payments.refund], agents: { id: [support-bot] } } }\n`;
  const set = inForce(suggested(five(), before)?.text, before);
  expect(judged(set, WITHIN)).toBe('permit');
  expect(judged(set, { ...WITHIN, amount: 601 })).toBe('approval');
  expect(judged(set, WITHIN, { workspace: 'elsewhere' })).toBe('approval');
  expect(evaluatePolicies(set, call({ tool: TYPED, params: WITHIN }))).toMatchObject({
    obligations: [{ budget: 's/day' }],
  });
});

it.each([
  ['a quote', 'a"b\'c'],
  ['YAML of its own', 'x\n  - { id: own, effect: allow }'],
  ['a comment', 'a # b'],
  ['an anchor', '&a *b !!js/function'],
  ['a number', '1_000'],
  ['a name of a list', '$currencies'],
  ['a path', '${params.amount}'],
  ['a key', 'a: b'],
  ['markup', '<img src=x onerror=alert(1)>'],
  ['nothing', ''],
  ['true', 'true'],
  ['null', 'null'],
])('a value that is %s stays a value', (_, value) => {
  const found = suggested(five(() => ({ note: value })));
  // What people do not see as it is, is in no text that they are to read.
  if (value.includes('\n')) return expect(found).toBeNull();
  const set = inForce(found?.text);
  expect(judged(set, { ...WITHIN, note: value })).toBe('permit');
  expect(judged(set, { ...WITHIN, note: `${value}x` })).toBe('approval');
  expect(judged(set, WITHIN)).toBe('approval');
});

it.each([
  ['too few', () => five().slice(1)],
  ['a text that was another each time', () => five((n) => ({ note: `because of ${n}` }))],
  ['characters that nobody sees', () => five(() => ({ note: 'a\u202eb' }))],
  ['half a character', () => five(() => ({ note: 'a\ud800' }))],
  ['lists that differ', () => five((n) => ({ lines: [n] }))],
  ['a list that is too long to be read', () => five(() => ({ lines: Array.from({ length: 501 }, () => 1) }))],
  ['a fraction', () => five((n) => ({ amount: n + 200.5 }))],
  ['ids without a beginning in common', () => five((n) => ({ payment_id: `${'abcde'[n - 1]}_1` }))],
  ['ids that lead somewhere', () => five((n) => ({ payment_id: `pay_../${n}` }))],
])('suggests nothing of %s', (_, calls) => {
  expect(suggested(calls())).toBeNull();
});

it('suggests nothing where the tool takes params that nobody declared, or another rule asks too', () => {
  const open = { ...TYPED, paramsSchema: { ...TYPED.paramsSchema, additionalProperties: true } };
  expect(suggested(five(), ASKS, [open, tool('mail.send')])).toBeNull();
  const named = { ...TYPED, paramsSchema: { ...TYPED.paramsSchema, patternProperties: { '^x-': {} } } };
  expect(suggested(five(), ASKS, [named, tool('mail.send')])).toBeNull();
  const another = `${ASKS}  - { id: also, effect: constrain, match: { tools: [payments.refund] }, approval: { approvers: { users: [ada] } } }\n`;
  expect(suggested(five(), another)).toBeNull();
  const denied = `${ASKS}  - { id: no, effect: deny, match: { tools: [payments.refund] } }\n`;
  expect(suggested(five(), denied)).toBeNull();
});

it('suggests nothing from four that the rule would ask about now, and one that it would not', () => {
  expect(suggested(five())?.calls).toHaveLength(5);
  expect(suggested(five((n) => (n === 5 ? { amount: 50 } : {})))).toBeNull();
});

it('suggests nothing from numbers that need not be whole: between two of them there are others', () => {
  const amount = { type: 'number' };
  const { properties } = TYPED.paramsSchema ?? {};
  const any = { ...TYPED, paramsSchema: { ...TYPED.paramsSchema, properties: { ...Object(properties), amount } } };
  expect(suggested(five(), ASKS, [any, tool('mail.send')])).toBeNull();
  expect(
    suggested(
      five(() => ({ amount: 300 })),
      ASKS,
      [any, tool('mail.send')],
    )?.text,
  ).toContain('params.amount: { eq: 300');
});

it('goes on asking where it cannot be judged whether it asked before, whoever else allows it', () => {
  const free = ASKS.replace(/ {4}obligations.*\n/, '');
  const all = '  - { id: all, effect: allow, match: { tools: [payments.refund] } }\n';
  const address = '{ request.ip: { starts_with: "10.0." } }';
  for (const asks of [
    free.replace('{ params.amount: { gt: 100 } }', address),
    free.replace('    approval', '    unless: { request.ip: "10.9.9.9" }\n    approval'),
  ]) {
    const before = `${asks}${all}`;
    const set = inForce(suggested(five(), before)?.text, before);
    expect(judged(set, WITHIN)).toBe('permit');
    expect(judged(set, WITHIN, { requestIp: null })).toBe('approval');
  }
});

it('suggests nothing where a rule looks at the company brain, which nobody asks here', () => {
  const all = '  - { id: all, effect: allow, match: { tools: [payments.refund] } }\n';
  const brain = ASKS.replace(
    'budgets:',
    'entities: { payment: { type: payment, id: params.payment_id } }\nbudgets:',
  ).replace('{ gt: 100 } }', '{ gt: 100 }, brain.payment.status: open }');
  expect(suggested(five(), `${brain}${all}`)).toBeNull();
});

it('suggests nothing that does not load: a condition that is as deep as it may be', () => {
  const deep = (levels: number): string =>
    ASKS.replace(
      '{ params.amount: { gt: 100 } }',
      (when) => `${'{ not: '.repeat(levels)}${when}${' }'.repeat(levels)}`,
    );
  expect(suggested(five(), deep(30))).not.toBeNull();
  expect(suggested(five(), deep(32))).toBeNull();
});

it('texts of a list that look like names are texts', () => {
  const found = suggested(five((n) => ({ note: n > 3 ? '$currencies' : '$$x' })));
  const set = inForce(found?.text);
  for (const note of ['$currencies', '$$x']) expect(judged(set, { ...WITHIN, note })).toBe('permit');
  expect(judged(set, { ...WITHIN, note: 'currencies' })).toBe('approval');
});

it('a param that only some calls had may be left out, and is bounded where it is there', () => {
  const set = inForce(suggested(five((n) => (n > 3 ? { note: 'again' } : {})))?.text);
  expect(judged(set, WITHIN)).toBe('permit');
  expect(judged(set, { ...WITHIN, note: 'again' })).toBe('permit');
  expect(judged(set, { ...WITHIN, note: 'never' })).toBe('approval');
  expect(judged(set, { ...WITHIN, note: 1 })).toBe('denied_policy');
});
