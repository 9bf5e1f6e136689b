import { Type } from 'typebox';
import type { RequestFault } from '../effects/model/run-request.ts';
import { isCursor } from '../effects/wire/cursor.ts';
import { timeFromWire } from '../effects/wire/time.ts';
import { Time, UserId } from './schema.ts';

const MAX_PAGE = 200;
const DEFAULT_PAGE = 50;

export const PAGE_QUERY = {
  limit: Type.Optional(
    Type.String({
      pattern: '^[0-9]{1,3}$',
      description: `1 to ${MAX_PAGE}; ${DEFAULT_PAGE} if absent.`,
      examples: ['20'],
    }),
  ),
  cursor: Type.Optional(Type.String({ minLength: 1, maxLength: 500 })),
};

export const TIME_QUERY = { since: Type.Optional(Time), until: Type.Optional(Time) };

/** Query members of lists that are searched by whose key it was. */
export const WHO_QUERY = {
  user: Type.Optional(UserId),
  key_id: Type.Optional(Type.String({ minLength: 1, maxLength: 100, description: 'Id of a key.' })),
};

/** Which times a query asks for, ms. Faults that its schema cannot find are added to `faults`. */
export function timesOf(
  query: { readonly since?: string; readonly until?: string },
  faults: RequestFault[],
): { readonly since: number | null; readonly until: number | null } {
  const time = (name: 'since' | 'until'): number | null => {
    const text = query[name];
    if (text === undefined) return null;
    const ms = timeFromWire(text);
    if (ms === null) faults.push({ path: `/query/${name}`, message: 'is no time that exists' });
    return ms;
  };
  return { since: time('since'), until: time('until') };
}

/** Which page a query asks for. Faults that its schema cannot find are added to `faults`. */
export function pageOf(
  query: { readonly limit?: string; readonly cursor?: string },
  faults: RequestFault[],
): { readonly limit: number; readonly cursor: string | null } {
  const limit = query.limit === undefined ? DEFAULT_PAGE : Number(query.limit);
  if (limit < 1 || limit > MAX_PAGE) faults.push({ path: '/query/limit', message: `must be from 1 to ${MAX_PAGE}` });
  if (query.cursor !== undefined && !isCursor(query.cursor))
    faults.push({ path: '/query/cursor', message: 'is no cursor; send next_cursor of the page before' });
  return { limit, cursor: query.cursor ?? null };
}
