/**
 * What may be done, for both sides of a comparison: as a policy of the gateway and as facts and rules of
 * json-rules-engine. `one` has the rule that the measured call needs, `two` a rule for reads besides; `ten` is what a
 * small team really has, of which the same one applies.
 */
export type RuleSet = 'forms' | 'streams' | 'mixed' | 'one' | 'two' | 'ten';

interface Test {
  readonly param: string;
  readonly is: 'gte' | 'lte' | 'gt' | 'eq' | 'in';
  readonly value: number | string | readonly string[];
}

interface BenchRule {
  readonly id: string;
  readonly effect: 'allow' | 'deny';
  readonly tool: string;
  readonly teams: readonly string[];
  readonly when: readonly Test[];
}

const REFUND: BenchRule = {
  id: 'refund',
  effect: 'allow',
  tool: 'payments.refund',
  teams: ['support'],
  when: [
    { param: 'amount', is: 'gte', value: 1 },
    { param: 'amount', is: 'lte', value: 50_000 },
    { param: 'currency', is: 'in', value: ['EUR', 'USD'] },
  ],
};

const READ: BenchRule = { id: 'read', effect: 'allow', tool: 'payments.get', teams: ['support'], when: [] };

const CHAT: BenchRule = { id: 'chat', effect: 'allow', tool: 'models.*', teams: ['support'], when: [] };

const TEN: readonly BenchRule[] = [
  READ,
  {
    id: 'refund-sanctioned',
    effect: 'deny',
    tool: 'payments.refund',
    teams: [],
    when: [{ param: 'currency', is: 'in', value: ['IRR', 'KPW'] }],
  },
  REFUND,
  { id: 'ticket', effect: 'allow', tool: 'tickets.create', teams: ['support', 'sales'], when: [] },
  {
    id: 'ticket-urgent',
    effect: 'deny',
    tool: 'tickets.create',
    teams: ['sales'],
    when: [{ param: 'priority', is: 'eq', value: 'urgent' }],
  },
  {
    id: 'mail',
    effect: 'allow',
    tool: 'mail.send',
    teams: ['support', 'sales'],
    when: [{ param: 'domain', is: 'in', value: ['example.com', 'example.org'] }],
  },
  {
    id: 'mail-bulk',
    effect: 'deny',
    tool: 'mail.send',
    teams: [],
    when: [{ param: 'recipients', is: 'gt', value: 50 }],
  },
  {
    id: 'deploy',
    effect: 'allow',
    tool: 'deploys.create',
    teams: ['platform'],
    when: [{ param: 'environment', is: 'in', value: ['staging', 'production'] }],
  },
  {
    id: 'deploy-unreviewed',
    effect: 'deny',
    tool: 'deploys.create',
    teams: [],
    when: [
      { param: 'environment', is: 'eq', value: 'production' },
      { param: 'reviews', is: 'lte', value: 0 },
    ],
  },
  {
    id: 'invoice',
    effect: 'allow',
    tool: 'invoices.create',
    teams: ['finance'],
    when: [{ param: 'amount', is: 'lte', value: 10_000 }],
  },
];

function rulesOf(set: RuleSet): readonly BenchRule[] {
  switch (set) {
    case 'one':
      return [REFUND];
    case 'forms':
      return [REFUND, { ...REFUND, id: 'refund-form', tool: `${REFUND.tool}_form` }];
    case 'streams':
      return [CHAT];
    case 'mixed':
      return [REFUND, READ, CHAT, { ...CHAT, id: 'tools', tool: 'tools.*' }];
    case 'two':
      return [REFUND, READ];
    case 'ten':
      return TEN;
  }
}

/** The policy file of a gateway, with a budget on refunds that never runs out. */
export function policyOf(set: RuleSet): string {
  const rules = rulesOf(set).map(({ id, effect, tool, teams, when }) => ({
    id,
    effect,
    match: { tools: [tool], ...(teams.length === 0 ? {} : { agents: { team: teams } }) },
    ...(when.length === 0
      ? {}
      : { when: { all: when.map(({ param, is, value }) => ({ [`params.${param}`]: { [is]: value } })) } }),
    ...(tool.startsWith(REFUND.tool) && effect === 'allow'
      ? { obligations: [{ budget: { use: 'agent-day', amount: 'params.amount' } }] }
      : {}),
  }));
  const limit = Number.MAX_SAFE_INTEGER;
  // JSON is YAML.
  return JSON.stringify({
    apiVersion: 'svc-gateway/v1',
    kind: 'PolicySet',
    name: 'payments',
    budgets: { 'agent-day': { unit: 'EUR-cent', by: ['agent.id'], per: 'day', limit } },
    rules,
  });
}

/** Lines of a gateway's configuration for the tools that the rules name besides the measured ones. */
export function toolsOf(set: RuleSet): string {
  const others = new Map<string, string[]>();
  for (const { tool, when } of rulesOf(set)) {
    if (/^(payments|models|tools)\./.test(tool)) continue;
    others.set(tool, [...(others.get(tool) ?? []), ...when.map(({ param }) => param)]);
  }
  return [...others]
    .map(([name, params]) => {
      const fields = [...new Set(params)];
      return `  - ${JSON.stringify({
        name,
        title: name,
        upstream: 'payments',
        kind: 'write',
        request: { method: 'POST', path: `/v1/${name}`, body: fields },
        params_schema: {
          type: 'object',
          properties: Object.fromEntries(
            fields.map((field) => [
              field,
              { type: ['amount', 'recipients', 'reviews'].includes(field) ? 'integer' : 'string' },
            ]),
          ),
          additionalProperties: false,
        },
      })}\n`;
    })
    .join('');
}

const OPERATORS = {
  gte: 'greaterThanInclusive',
  lte: 'lessThanInclusive',
  gt: 'greaterThan',
  eq: 'equal',
  in: 'in',
} as const satisfies Readonly<Record<Test['is'], string>>;

/** The same rules as json-rules-engine has them; facts are the tool, the team and the params. */
export function engineRulesOf(set: RuleSet) {
  return rulesOf(set).map(({ id, effect, tool, teams, when }) => ({
    name: id,
    conditions: {
      all: [
        { fact: 'tool', operator: 'equal', value: tool },
        ...(teams.length === 0 ? [] : [{ fact: 'team', operator: 'in', value: [...teams] }]),
        ...when.map(({ param, is, value }) => ({ fact: param, operator: OPERATORS[is], value })),
      ],
    },
    event: { type: effect },
  }));
}
