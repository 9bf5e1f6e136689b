import { type Static, type TProperties, type TSchema, type TUnsafe, Type } from 'typebox';
import { CODES } from '../effects/model/codes.ts';
import { TIME_FORM } from '../effects/wire/time.ts';
import type { Json, JsonObject } from '../json/value.ts';

/**
 * Building blocks of the schemas. The schemas validate requests, give handlers their types, and make the OpenAPI
 * document.
 */

export const AnyObject = (description: string): TUnsafe<JsonObject> =>
  Type.Unsafe<JsonObject>({ type: 'object', description });

export const AnyValue = (description: string): TUnsafe<Json> => Type.Unsafe<Json>({ description });

export const AgentId = Type.String({
  pattern: '^[A-Za-z0-9][A-Za-z0-9_.@:-]{0,127}$',
  description: 'Id of an agent.',
  examples: ['support-bot'],
});

export const USER_ID = '^[A-Za-z0-9][A-Za-z0-9_.@:-]{0,127}$';

export const UserId = Type.String({ pattern: USER_ID, description: 'Id of a user.', examples: ['maria'] });

export const WORKSPACE_ID = '^[a-z0-9][a-z0-9_-]{0,62}$';

export const WorkspaceId = Type.String({
  pattern: WORKSPACE_ID,
  description: 'Id of a workspace.',
  examples: ['demo'],
});

export const DidItHappen = Type.Enum(['yes', 'no', 'maybe'], { description: 'Whether the action happened.' });
export const Next = Type.Enum(['proceed', 'replan', 'block', 'wait', 'resolve', 'retry'], {
  description: 'What the caller should do now.',
});
export const Milliseconds = Type.Integer({ minimum: 0, description: 'ms.' });

/** Path parameters are not checked for form: a malformed one is simply not found, or does not belong to the key. */
export const InWorkspace = Type.Object({ ws: Type.String({ description: 'Id of the workspace.' }) });
export const WithId = Type.Object({
  ws: Type.String({ description: 'Id of the workspace.' }),
  id: Type.String({ description: 'Id of the object.' }),
});

export const Time = Type.String({
  pattern: TIME_FORM,
  description: 'RFC 3339 time.',
  examples: ['2026-01-31T12:00:00.000Z'],
});

export const Tool = Type.String({ minLength: 1, maxLength: 200, description: 'Name of a declared tool.' });

/** No query at all, except for the key. */
export const NoQuery = closed({});

const COMPONENTS: TSchema[] = [];

/** A schema that has a name in the document. What refers to it has its type. */
export function component<T extends TSchema>(name: string, schema: T): TUnsafe<Static<T>> {
  COMPONENTS.push({ ...schema, $id: name, title: name });
  return Type.Unsafe<Static<T>>({ $ref: `${name}#` });
}

/** An object that has a name in the document. @param description `null`: its name says it */
export function record<T extends TProperties>(name: string, description: string | null, fields: T) {
  return component(name, Type.Object(fields, description === null ? {} : { description }));
}

/** An object that may have no other members. */
export function closed<T extends TProperties>(fields: T) {
  return Type.Object(fields, { additionalProperties: false });
}

/** All of them, for the document. No request is checked against one, and no answer is made with one. */
export function components(): readonly TSchema[] {
  return COMPONENTS;
}

/** A list, as what shows records gives it. */
export const List = <T extends TSchema>(items: T, description?: string): TUnsafe<readonly Static<T>[]> =>
  Type.Unsafe<readonly Static<T>[]>({ type: 'array', items, ...(description !== undefined && { description }) });

export const Nullable = <T extends TSchema>(schema: T, description?: string): TUnsafe<Static<T> | null> =>
  Type.Unsafe<Static<T> | null>({
    anyOf: [schema, { type: 'null' }],
    ...(description !== undefined && { description }),
  });

/** Where an answer has many forms: `by` tells them apart. */
export const OneOf = <T extends readonly TSchema[]>(forms: readonly [...T], by?: string): TUnsafe<Static<T[number]>> =>
  Type.Unsafe<Static<T[number]>>({ oneOf: forms, ...(by !== undefined && { discriminator: { propertyName: by } }) });

/** An object with names that nobody knows before. */
export const MapOf = <T extends TSchema>(
  values: T,
  description: string,
): TUnsafe<Readonly<Record<string, Static<T>>>> =>
  Type.Unsafe<Readonly<Record<string, Static<T>>>>({ type: 'object', additionalProperties: values, description });

export const EntityVersion = Type.Object({
  type: Type.String(),
  id: Type.String(),
  version: Type.Integer({ description: '0: there was none; -1: not known.' }),
  digest: Type.String(),
});

const NextCursor = Nullable(Type.String(), 'For the next page; `null`: this is the last one.');

export const paged = <T extends TProperties>(list: T) => Type.Object({ ...list, next_cursor: NextCursor });

/** Where a thing is told from another by being there: it is `true`, or absent. */
export const Flag = (description: string): TUnsafe<boolean> => Type.Unsafe<boolean>({ const: true, description });

/** The body of every answer that is neither success nor a decision (RFC 9457). */
const Problem = record('Problem', 'What went wrong (RFC 9457), and what to do next.', {
  type: Type.String({ format: 'uri', description: 'URL of the page about the code.' }),
  title: Type.String(),
  status: Type.Integer(),
  detail: Type.String({ description: 'What was wrong, where, and what to do.' }),
  code: Type.Unsafe<string>({ type: 'string', enum: problemCodes(), description: 'Stable code.' }),
  errors: Type.Optional(
    Type.Array(
      Type.Object({
        path: Type.String({ description: 'JSON Pointer into the body.' }),
        message: Type.String(),
      }),
    ),
  ),
  errors_left_out: Type.Optional(Type.Integer({ description: 'How many more faults there are.' })),
  request_id: Type.String(),
  did_it_happen: DidItHappen,
  safe_to_retry: Type.Boolean(),
  next: Next,
  retry_after_ms: Type.Optional(Milliseconds),
  target: Type.Optional(Type.String({ description: '`claim_held`.' })),
  claim: Type.Optional(Type.Unsafe<JsonObject>({ $ref: 'Claim#' })),
  of: Type.Optional(Type.String({ description: '`too_many_claims`, `too_many_reservations`: whose limit it is.' })),
  limit: Type.Optional(Type.Integer()),
  pool: Type.Optional(Type.String({ description: '`pool_full`.' })),
  free: Type.Optional(Type.Integer()),
  capacity: Type.Optional(Type.Integer()),
  ready: Type.Optional(Type.Literal(false, { description: '`not_ready` of `/readyz`.' })),
  parts: Type.Optional(
    List(
      Type.Object({ part: Type.String(), code: Type.Optional(Type.String()), message: Type.String() }),
      'What keeps the gateway from taking calls.',
    ),
  ),
});

function problemCodes(): string[] {
  return Object.entries(CODES).flatMap(([code, { status }]) => (status === null ? [] : [code]));
}

/** Decisions on a call as answers of a route. Where a request was not accepted, the same status says a problem. */
export function decisions<T extends Readonly<Record<number, TSchema>>>(given: T) {
  const shown = Object.entries(given).map(([status, schema]) => {
    const decision = { 'application/json': { schema } };
    const content = Number(status) < 400 ? decision : { ...decision, 'application/problem+json': { schema: Problem } };
    return [status, Type.Unsafe<JsonObject>({ description: 'The decision.', content })] as const;
  });
  return answers<Readonly<Record<number, TUnsafe<JsonObject>>>>(Object.fromEntries(shown));
}

/** Answers of a route: the given ones, and problem documents for everything that goes wrong. */
export function answers<T extends Readonly<Record<number, TSchema>>>(
  given: T,
): T & Readonly<Record<'4xx' | '5xx', TUnsafe<never>>> {
  const problem = Type.Unsafe<never>({
    description: 'A problem.',
    content: { 'application/problem+json': { schema: Problem } },
  });
  return { ...given, '4xx': problem, '5xx': problem };
}

const Bound = Type.Union([Type.Number(), Type.Literal('asked')]);

export const Bounds = Type.Object({
  min: Type.Optional(Bound),
  max: Type.Optional(Bound),
  one_of: Type.Optional(List(Type.Union([Type.String(), Type.Number(), Type.Boolean()]))),
  max_length: Type.Optional(Type.Integer({ minimum: 0 })),
});

export const Varies = MapOf(
  Bounds,
  'Params in which calls alike may differ, with their bounds. All others are the same.',
);
