import type { FastifyReply } from 'fastify';
import { type Static, type TSchema, Type } from 'typebox';
import type { ReadingTurns } from '../effects/run/reading-turns.ts';
import type { Caller } from './app.ts';
import { refuse, refuseFaults } from './problem.ts';
import type { RequestFault } from '../effects/model/run-request.ts';
import { isCursor } from '../effects/model/page.ts';
import { timeFromWire } from '../effects/wire/time.ts';
import { Time, UserId } from './schema.ts';

/** Lists of one key that are made at once, and that wait for these. */
const LISTS_AT_ONCE = 2;
const MOST_WAITING = 30;

interface Line {
  made: number;
  readonly waiting: (() => void)[];
}

/** Makes the answers to lists, so that nobody who lists holds up calls, or others who list. */
export type Lists = ReturnType<typeof createLists>;

export function createLists(turns: ReadingTurns) {
  const lines = new Map<string, Line>();

  /** A list that ends hands its place to the one that has waited longest. */
  async function enter(key: string): Promise<Line> {
    const line = lines.get(key) ?? { made: 0, waiting: [] };
    lines.set(key, line);
    if (line.made < LISTS_AT_ONCE) {
      line.made += 1;
      return line;
    }
    if (line.waiting.length >= MOST_WAITING)
      throw refuse('too_many_requests', 'This key asks for too many lists at once. Ask for one after the other.', {
        retryAfterMs: 1_000,
      });
    await new Promise<void>((resolve) => line.waiting.push(resolve));
    return line;
  }

  function leave(key: string, line: Line): void {
    const next = line.waiting.shift();
    if (next !== undefined) {
      next();
      return;
    }
    line.made -= 1;
    if (line.made === 0) lines.delete(key);
  }

  return {
    /** Makes one list for a caller, when it is its turn. @throws Refused when the key has too many lists waiting */
    async make<T>(
      caller: { readonly principal: Pick<Caller['principal'], 'keyId'> },
      make: () => Promise<T>,
    ): Promise<T> {
      const key = caller.principal.keyId;
      const line = await enter(key);
      try {
        return await turns.run(make);
      } finally {
        leave(key, line);
      }
    },
    /** Sends an answer of this form: items as a member of a JSON object, and the other members after it. Items are rendered in parts. */
    async send<Answer extends TSchema, Name extends keyof Static<Answer> & string, Item>(
      reply: FastifyReply,
      _as: Answer,
      member: Name,
      items: readonly Item[],
      render: (item: Item) => Static<Answer>[Name] extends readonly (infer Shown)[] ? Shown : never,
      others: Omit<Static<Answer>, Name>,
    ): Promise<FastifyReply> {
      const texts = await turns.map(items, (item) => JSON.stringify(render(item)));
      const rest = Object.entries(others).map(([name, value]) => `,${JSON.stringify(name)}:${JSON.stringify(value)}`);
      const body = `{${JSON.stringify(member)}:[${texts.join(',')}]${rest.join('')}}`;
      return reply.type('application/json; charset=utf-8').send(body);
    },
  };
}

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

/**
 * Which page a query asks for. Faults that its schema cannot find are added to `known`; who has none of its own gives no
 * list, and @throws Refused with these.
 */
export function pageOf(
  query: { readonly limit?: string; readonly cursor?: string },
  known?: RequestFault[],
): { readonly limit: number; readonly cursor: string | null } {
  const faults = known ?? [];
  const limit = query.limit === undefined ? DEFAULT_PAGE : Number(query.limit);
  if (limit < 1 || limit > MAX_PAGE) faults.push({ path: '/query/limit', message: `must be from 1 to ${MAX_PAGE}` });
  if (query.cursor !== undefined && !isCursor(query.cursor))
    faults.push({ path: '/query/cursor', message: 'is no cursor; send next_cursor of the page before' });
  if (known === undefined && faults.length > 0) throw refuseFaults(faults);
  return { limit, cursor: query.cursor ?? null };
}
