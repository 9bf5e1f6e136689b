import { Type } from 'typebox';
import type { RequestFault } from '../effects/model/run-request.ts';
import { isCursor } from '../effects/wire/cursor.ts';

const MAX_PAGE = 200;
const DEFAULT_PAGE = 50;

/** Query members of a paged list. */
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
