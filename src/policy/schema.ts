import { type Static, Type } from 'typebox';
import type { JsonObject } from '../json/value.ts';
import {
  Approval,
  OrAsk,
  Schedule,
  choice,
  closed,
  count,
  duration,
  facts,
  instant,
  names,
  scalar,
  word,
} from './schema-approval.ts';

/**
 * The definitions of a policy file. They validate it (`shape.ts`), give its types, and are its JSON Schema. Two
 * keywords are ours. `x-later` lists fields of the format that this version refuses as not yet supported.
 * `patternErrorMessage`, which editors know, describes what a text must look like.
 */
export const EFFECTS = ['allow', 'constrain', 'require_approval', 'deny', 'pause'] as const;
export const PERIODS = ['minute', 'hour', 'day', 'week', 'month', 'year'] as const;

/** Conditions. `condition.ts` reads them, not the schema. */
const block = (description: string) => Type.Unsafe<JsonObject>({ $ref: '#/$defs/condition', description });

const Agents = Type.Record(Type.String(), Type.Array(scalar, { minItems: 1 }), {
  minProperties: 1,
  description: 'Agents by id, team, roles, owner or any attribute: lists of values. An absent attribute is unknown',
});

const Keys = Type.Object(
  {
    kind: Type.Optional(
      Type.Array(choice(['account', 'agent', 'administrative', 'profile'], 'kind of key'), { minItems: 1 }),
    ),
    profile: Type.Optional(names('Profiles; a key without one is none of them')),
    user: Type.Optional(names('Users the key belongs to; a key without one is none of them')),
  },
  { ...closed, minProperties: 1, description: 'The key that the call came with' },
);

const matchFields = {
  tools: Type.Optional(names('Globs over canonical tool names, <upstream>.<tool>')),
  upstreams: Type.Optional(names('Globs over ids of upstreams')),
  kinds: Type.Optional(Type.Array(choice(['read', 'write'], 'kind of tool'), { minItems: 1 })),
  tags: Type.Optional(names('Tools that carry one of these tags')),
  actions: Type.Optional(names('Action types of tools')),
  has_params: Type.Optional(names('Tools whose declared schema has all of these params')),
  env: Type.Optional(names('Environments')),
  workspaces: Type.Optional(names('Workspaces')),
  targets: Type.Optional(names('Globs over targets')),
  agents: Type.Optional(Agents),
  keys: Type.Optional(Keys),
};
const LATER_MATCH = ['resources', 'prompts'];

const MatchBlock = Type.Object(matchFields, {
  ...closed,
  minProperties: 1,
  'x-later': LATER_MATCH,
  description: 'Calls that this rule is not about',
});

const Match = Type.Object(
  {
    ...matchFields,
    except: Type.Optional(
      Type.Array(MatchBlock, { minItems: 1, description: 'Not the calls that match one of these' }),
    ),
  },
  {
    ...closed,
    minProperties: 1,
    'x-later': LATER_MATCH,
    description: 'The calls that the rule is about: every key has to match, one value of each',
  },
);

const Obligation = Type.Object(
  {
    budget: Type.Optional(
      Type.Object(
        {
          use: word('Name of a budget of this set'),
          amount: Type.Union([Type.String({ minLength: 1 }), Type.Integer({ minimum: 0 })], {
            title: 'a path such as params.amount, a whole number, or the $name of a value',
            description: 'What the call takes: a path, a whole number, or the $name of a value',
          }),
          or_ask: Type.Optional(OrAsk),
        },
        { ...closed, description: 'Holds an amount of a budget; refused: denied_budget' },
      ),
    ),
    rate_limit: Type.Optional(
      Type.Object(
        {
          by: Type.Optional(facts('One count for each combination of these facts')),
          limit: count(1, 'Attempts allowed within the window'),
          per: Type.Union([choice(['minute', 'hour', 'day'], 'window'), duration('window')], {
            title: 'minute, hour, day, or a duration such as 10s',
            description: 'Length of the sliding window',
          }),
          or_ask: Type.Optional(OrAsk),
        },
        { ...closed, description: 'Counts attempts; refused: denied_budget with rate_limited' },
      ),
    ),
    claim: Type.Optional(
      Type.Object(
        {
          on: Type.String({ minLength: 1, maxLength: 512, description: 'Target; ${path} is put in' }),
          hold: Type.Optional(
            choice(['call', 'existing'], 'call: claimed for the call; existing: the agent has to hold it already'),
          ),
        },
        { ...closed, description: 'An exclusive right on a target; refused: denied_claim' },
      ),
    ),
    reserve: Type.Optional(
      Type.Object(
        {
          pool: Type.String({
            minLength: 1,
            maxLength: 256,
            description: 'Pool of the configuration; ${path} is put in',
          }),
          units: Type.Optional(count(1, 'Units of the pool; 1 when not given')),
        },
        { ...closed, description: 'Units of a pool while the call runs; refused: denied_reservation' },
      ),
    ),
    redact: Type.Optional(
      Type.Object(
        { params: names('Params, by name') },
        {
          ...closed,
          description: 'Masks these params of the tools that the rule can match wherever people are shown them',
        },
      ),
    ),
  },
  {
    ...closed,
    minProperties: 1,
    maxProperties: 1,
    'x-later': ['require_recent', 'forbid_recent', 'distinct'],
    description:
      'What a permitted call has to satisfy: one of budget, rate_limit, claim, reserve; redact refuses nothing',
  },
);

const Rule = Type.Object(
  {
    id: word('Name of the rule within its set'),
    description: Type.Optional(Type.String({ maxLength: 1000, description: 'What the rule is for' })),
    effect: choice(EFFECTS, 'pause > deny > require_approval > allow; constrain grants nothing and adds obligations'),
    match: Type.Optional(Match),
    when: Type.Optional(block('The rule applies when this holds')),
    unless: Type.Optional(block('The rule does not apply when this holds')),
    on_unknown: Type.Optional(
      choice(['closed', 'skip'], 'skip: a restrictive rule does not apply where it cannot be judged (fails open)'),
    ),
    from: Type.Optional(instant('Beginning of the rule, inclusive')),
    until: Type.Optional(instant('End of the rule, exclusive')),
    mode: Type.Optional(choice(['enforce', 'shadow'], 'shadow: judged and counted, decides nothing')),
    priority: Type.Optional(
      Type.Integer({ minimum: -1_000_000, maximum: 1_000_000, description: 'Orders what is reported, nothing else' }),
    ),
    reason: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 1000,
        description: 'What the caller is told on a refusal; ${path} is put in',
      }),
    ),
    obligations: Type.Optional(Type.Array(Obligation, { minItems: 1, maxItems: 32 })),
    approval: Type.Optional(Approval),
  },
  { ...closed, 'x-later': ['waivable'], description: 'One rule' },
);

const Budget = Type.Object(
  {
    unit: word('What is counted, in its smallest unit: EUR-cent, calls'),
    by: Type.Optional(facts('One row for each combination of these facts')),
    per: Type.Optional(choice(PERIODS, 'Calendar window in the zone of the set')),
    rolling: Type.Optional(duration('Sliding window, instead of per')),
    limit: count(0, 'Units within the window'),
    warn_at: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: 100,
        description: 'Percent of use from which its level is low; 80 where it is not said',
      }),
    ),
    reset: Type.Optional(
      Type.Boolean({ description: 'Forget what was spent when unit or window have changed since the last version' }),
    ),
  },
  { ...closed, description: 'A budget; rules use it by name' },
);

const ByValue = Type.Object(
  {
    by: Type.String({ minLength: 1, description: 'The fact that chooses, for example env or agent.team' }),
    of: Type.Record(Type.String(), Type.Union([scalar, Type.Array(scalar)]), { minProperties: 1 }),
    else: Type.Union([scalar, Type.Array(scalar)], { description: 'The value for everything else' }),
  },
  closed,
);

const EntityById = Type.Object(
  {
    type: Type.String({ minLength: 1, maxLength: 64, description: 'Type of the entity' }),
    id: Type.String({ minLength: 1, maxLength: 256, description: 'The fact that is its id: params.customer_id' }),
  },
  closed,
);
const EntityByLink = Type.Object(
  {
    of: Type.String({ minLength: 1, maxLength: 63, description: 'Another entity of the set' }),
    link: Type.String({ minLength: 1, maxLength: 64, description: 'The rel of the one link that leads from there' }),
  },
  closed,
);

export const PolicySetSchema = Type.Object(
  {
    apiVersion: choice(['svc-gateway/v1'], 'Version of the format'),
    kind: choice(['PolicySet'], 'Kind of the file'),
    name: word('Name of the set; ids of rules are <set>/<rule>'),
    owner: Type.Optional(Type.String({ minLength: 1, maxLength: 256, description: 'Who answers for the set' })),
    description: Type.Optional(Type.String({ maxLength: 4000, description: 'What the set is for' })),
    timezone: Type.Optional(
      Type.String({ minLength: 1, description: 'IANA zone of dates and calendar windows; UTC when not given' }),
    ),
    defaults: Type.Optional(
      Type.Object(
        {
          effect: Type.Optional(choice(['deny'], 'Written down for readers; an open default has to be a rule')),
          on_unknown: Type.Optional(
            choice(['closed'], 'Written down for readers; an exception has to stand in a rule'),
          ),
        },
        closed,
      ),
    ),
    lists: Type.Optional(
      Type.Record(
        Type.String(),
        Type.Union(
          [
            Type.Array(scalar),
            Type.Object(
              { file: Type.String({ minLength: 1, description: 'Text file, one value a line; # begins a comment' }) },
              closed,
            ),
          ],
          { title: 'a list, or { file: … }' },
        ),
        { description: 'Lists, used as $name' },
      ),
    ),
    entities: Type.Optional(
      Type.Record(Type.String(), Type.Union([EntityById, EntityByLink], { title: '{ type, id } or { of, link }' }), {
        description: 'Entities of the company brain that a call is about, read as brain.<name>.<attribute>',
      }),
    ),
    values: Type.Optional(
      Type.Record(
        Type.String(),
        Type.Union([scalar, Type.Array(scalar), ByValue], { title: 'a value, a list, or { by, of, else }' }),
        {
          description: 'Values, used as $name; { by, of, else } chooses by a fact',
        },
      ),
    ),
    conditions: Type.Optional(
      Type.Record(Type.String(), block('A named condition'), {
        description: 'Conditions, used as { condition: name }',
      }),
    ),
    schedules: Type.Optional(
      Type.Record(Type.String(), Schedule, { description: 'Office hours of approvers, used by name' }),
    ),
    budgets: Type.Optional(Type.Record(Type.String(), Budget, { description: 'Budgets, used by obligations' })),
    rules: Type.Array(Rule, { minItems: 1, description: 'The rules. Their order changes no decision' }),
  },
  {
    ...closed,
    'x-later': ['imports', 'scope', 'waivers'],
    description: 'A set of policy rules of svc-gateway',
  },
);

export type PolicyFile = Static<typeof PolicySetSchema>;
export type RuleSource = Static<typeof Rule>;
export type MatchSource = Static<typeof MatchBlock>;
export type MatchWithExceptions = Static<typeof Match>;
export type ObligationSource = Static<typeof Obligation>;
export type BudgetSource = Static<typeof Budget>;

/** The JSON Schema of a policy file, for editors. The same definitions validate the file. */
export function policyJsonSchema(): Record<string, unknown> {
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: 'Policy set of svc-gateway',
    ...PolicySetSchema,
    $defs: { condition: CONDITION_SCHEMA },
  };
}

const anyRightSide = { description: 'A literal, $name, or { fact: F }' };

const CONDITION_SCHEMA = {
  type: 'object',
  minProperties: 1,
  description:
    'Paths with operators, all of which must hold; all, any, not and condition; or { fact, path, operator, value }',
  properties: {
    all: { type: 'array', minItems: 1, items: { $ref: '#/$defs/condition' } },
    any: { type: 'array', minItems: 1, items: { $ref: '#/$defs/condition' } },
    not: { $ref: '#/$defs/condition' },
    condition: { type: 'string' },
    fact: { type: 'string' },
    path: { type: 'string' },
    operator: { type: 'string' },
    value: anyRightSide,
    name: { type: 'string' },
  },
  patternProperties: {
    '^(agent|brain|key|tool|params|target|env|request|item)([.\\[]|$)': {
      anyOf: [
        { type: ['string', 'number', 'boolean'] },
        {
          type: 'object',
          minProperties: 1,
          additionalProperties: false,
          properties: {
            ...Object.fromEntries(
              [
                'eq',
                'ne',
                'in',
                'nin',
                'gt',
                'gte',
                'lt',
                'lte',
                'equals',
                'starts_with',
                'ends_with',
                'substring',
              ].map((name) => [name, anyRightSide]),
            ),
            ...Object.fromEntries(
              ['glob', 'regex', 'regex_find', 'email_in', 'domain_in', 'contains', 'contains_all', 'type'].map(
                (name) => [name, anyRightSide],
              ),
            ),
            exists: { type: 'boolean' },
            some: { $ref: '#/$defs/condition' },
            every: { $ref: '#/$defs/condition' },
            if_absent: { type: 'boolean', description: 'Truth where the value is absent or null' },
          },
        },
      ],
    },
  },
  additionalProperties: false,
};
