import { type Static, Type } from 'typebox';

/* What many fields of a policy file look like. */

export const closed = { additionalProperties: false } as const;
export const choice = <Value extends string>(values: readonly Value[], description: string) =>
  Type.Unsafe<Value>({ type: 'string', enum: [...values], description });
export const word = (description: string) =>
  Type.String({
    pattern: '^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$',
    patternErrorMessage: 'letters, digits, - and _, at most 63, beginning with a letter or digit',
    description,
  });
export const duration = (description: string) =>
  Type.String({
    pattern: '^[1-9][0-9]{0,8}(ms|s|m|h|d)$',
    patternErrorMessage: 'a duration such as 30s, 15m, 4h or 7d',
    description,
  });
export const names = (description: string) =>
  Type.Array(Type.String({ minLength: 1, maxLength: 256 }), { minItems: 1, description });
export const scalar = Type.Union([Type.String(), Type.Number(), Type.Boolean()]);
export const instant = (description: string) =>
  Type.String({
    pattern: '^\\d{4}-\\d{2}-\\d{2}(T\\d{2}:\\d{2}(:\\d{2}(\\.\\d{1,3})?)?(Z|[+-]\\d{2}:\\d{2}))?$',
    patternErrorMessage:
      'a date (2026-12-20, midnight in the zone of the set) or a time with offset (2026-12-20T08:00:00Z)',
    description,
  });
const reference = (description: string) =>
  Type.String({
    pattern: '^\\$[A-Za-z0-9][A-Za-z0-9_-]{0,62}$',
    patternErrorMessage: 'the $name of a value',
    description,
  });
export const count = (minimum: number, description: string) =>
  Type.Union([Type.Integer({ minimum, maximum: Number.MAX_SAFE_INTEGER }), reference('a named value')], {
    description,
    title: 'a whole number or the $name of a value',
  });
export const facts = (description: string) =>
  Type.Array(Type.String({ minLength: 1, maxLength: 256 }), { maxItems: 8, description });

/* What a policy file says of approvals: who, until when, and which hours count. */

const bound = (description: string) =>
  Type.Union([Type.Number(), choice(['asked'], 'what the agent asked for')], {
    title: 'a number, or asked',
    description,
  });
const Bounds = Type.Object(
  {
    min: Type.Optional(bound('The least; asked: what the agent asked for')),
    max: Type.Optional(bound('The most; asked: what the agent asked for')),
    one_of: Type.Optional(Type.Array(scalar, { minItems: 1, maxItems: 50, description: 'One of these' })),
    max_length: Type.Optional(
      Type.Integer({ minimum: 0, maximum: 2000, description: 'A text with so many characters' }),
    ),
  },
  { ...closed, minProperties: 1, description: 'What an approver may make of it: min and max, one_of, or max_length' },
);

const people = (description: string) =>
  Type.Object(
    {
      roles: Type.Optional(names('Roles whose holders may approve')),
      users: Type.Optional(names('Users who may approve')),
    },
    { ...closed, minProperties: 1, description },
  );

export const Schedule = Type.Object(
  {
    days: Type.Optional(
      Type.Array(
        Type.String({
          pattern: '^(mon|tue|wed|thu|fri|sat|sun)(-(mon|tue|wed|thu|fri|sat|sun))?$',
          patternErrorMessage: 'a day such as sat, or days such as mon-fri',
        }),
        { minItems: 1, maxItems: 7, description: 'Days of the week; all when not given' },
      ),
    ),
    hours: Type.Optional(
      Type.Array(
        Type.String({
          pattern: '^([01][0-9]|2[0-3]):[0-5][0-9]-(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$',
          patternErrorMessage: 'hours such as 08:00-18:00',
        }),
        { minItems: 1, maxItems: 4, description: 'Hours of these days, the end exclusive; all when not given' },
      ),
    ),
    except_dates: Type.Optional(
      Type.Union([Type.Array(Type.String(), { minItems: 1 }), reference('a list of dates')], {
        title: 'a list of dates, or the $name of one',
        description: 'Dates that do not belong to it',
      }),
    ),
    timezone: Type.Optional(
      Type.String({ minLength: 1, description: 'IANA zone of its hours; that of the set when not given' }),
    ),
  },
  { ...closed, minProperties: 1, description: 'Hours of the week, used by approvals' },
);

const asking = {
  approvers: people('Who may approve: holders of a role, or named users'),
  quorum: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 20, description: 'Different people needed; 1 when not given' }),
  ),
  expires: Type.Optional(duration('How long the request waits; 24h when not given')),
  summary: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 1000,
      description: 'What will happen, for the approver; ${path} is put in',
    }),
  ),
  hours: Type.Optional(word('Name of a schedule of this set: expires and escalate.after count within it alone')),
  escalate: Type.Optional(
    Type.Object(
      {
        after: duration('From when on, counted from when it was asked; before it expires'),
        to: people('Who may approve from then on as well: holders of a role, or named users'),
      },
      { ...closed, description: 'Who is asked besides, where nobody has decided after a time' },
    ),
  ),
  require_reason: Type.Optional(Type.Boolean({ description: 'Whether a rejection has to say why' })),
  hold: Type.Optional(choice(['own', 'all'], `Budgets held while it waits: the agent's own (default), or all`)),
};

export const Approval = Type.Object(
  {
    ...asking,
    editable: Type.Optional(
      Type.Record(Type.String({ minLength: 1, maxLength: 128 }), Bounds, {
        minProperties: 1,
        maxProperties: 20,
        description: 'Params that an approver may change, by name, with their bounds',
      }),
    ),
    allow_alike: Type.Optional(
      Type.Object(
        {
          times: Type.Integer({ minimum: 1, maximum: 100, description: 'How many calls at most' }),
          for: duration('For how long at most; up to 24h'),
        },
        { ...closed, description: 'Whether who approves may also allow the next calls alike, how many, for how long' },
      ),
    ),
  },
  { ...closed, description: 'Who has to agree before the call runs' },
);

/** Of a limit that asks: what is beyond it can be changed or allowed ahead by nobody. */
export const OrAsk = Type.Object(asking, {
  ...closed,
  description: 'Who may let a call go beyond the limit, once; without it the call is refused',
});

export type ScheduleSource = Static<typeof Schedule>;
export type ApprovalSource = Static<typeof Approval>;
export type OrAskSource = Static<typeof OrAsk>;
export type BoundsSource = Static<typeof Bounds>;
