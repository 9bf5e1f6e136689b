import { Type } from 'typebox';
import type { RequestFault } from '../effects/model/run-request.ts';

const MAX_PAGE = 200;
const DEFAULT_PAGE = 50;
/** The form of the cursors that stores make. */
const CURSOR = /^[0-9a-z]{1,11}(?:\.[0-9a-z_]{1,64})?$/;

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
  // The store would treat any other text as the start of the list, so a client that pages would never reach the end.
  if (query.cursor !== undefined && !CURSOR.test(query.cursor))
    faults.push({ path: '/query/cursor', message: 'is no cursor; send next_cursor of the page before' });
  return { limit, cursor: query.cursor ?? null };
}
