import { type TSchema, type TUnsafe, Type } from 'typebox';
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

/** The form of the ids of users and agents. */
export const USER_ID = '^[A-Za-z0-9][A-Za-z0-9_.@:-]{0,127}$';

export const UserId = Type.String({ pattern: USER_ID, description: 'Id of a user.', examples: ['maria'] });

/** The form of the ids of workspaces. */
export const WORKSPACE_ID = '^[a-z0-9][a-z0-9_-]{0,62}$';

export const WorkspaceId = Type.String({
  pattern: WORKSPACE_ID,
  description: 'Id of a workspace.',
  examples: ['demo'],
});

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
export const NoQuery = Type.Object({}, { additionalProperties: false });

/** The body of every answer that is neither success nor a decision (RFC 9457). */
export const ProblemDocument = Type.Object(
  {
    type: Type.String({ description: 'URL of the page about the code.' }),
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
    request_id: Type.String(),
    did_it_happen: Type.Unsafe<string>({ type: 'string', enum: ['no', 'maybe'] }),
    safe_to_retry: Type.Boolean(),
    next: Type.Unsafe<string>({ type: 'string', enum: ['proceed', 'replan', 'block', 'wait', 'resolve', 'retry'] }),
    retry_after_ms: Type.Optional(Type.Integer()),
  },
  { $id: 'Problem', title: 'Problem', description: 'What went wrong (RFC 9457), and what to do next.' },
);

function problemCodes(): string[] {
  return Object.entries(CODES).flatMap(([code, { status }]) => (status === null ? [] : [code]));
}

/** Bodies are JSON objects; a bare JWS is text. */
type Answers = Readonly<Record<string, TUnsafe<JsonObject | string>>>;

/** Answers of a route: the given ones, and problem documents for everything that goes wrong. */
export function answers(given: Readonly<Record<string, TSchema>>): Answers {
  const problem = Type.Unsafe<JsonObject | string>({
    description: 'A problem.',
    content: { 'application/problem+json': { schema: { $ref: 'Problem#' } } },
  });
  const typed = Object.entries(given).map(
    ([status, schema]) => [status, Type.Unsafe<JsonObject | string>(schema)] as const,
  );
  return { ...Object.fromEntries(typed), '4xx': problem, '5xx': problem };
}
