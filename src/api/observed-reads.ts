import { type TSchema, Type } from 'typebox';
import type { Json } from '../json/value.ts';
import type { LedgerEvent } from '../effects/model/ledger.ts';
import { type ApiApp, guarded } from './app.ts';
import { callerOf, mayBeSeen } from './caller.ts';
import { type Lists, PAGE_QUERY, pageOf } from './lists.ts';
import type { ApiPorts } from './ports.ts';
import { answers, closed, component, InWorkspace, List, MapOf, Nullable, paged, record, Time } from './schema.ts';

/** How many events of the ledger one page looks at. Observed reads are mixed with all other events. */
const SCANNED = 500;

/** What stands in the event as it was written: the compiler does not see into it. */
const Kept = (schema: TSchema) => Type.Unsafe<Json>(schema);

const Read = record('PassedRead', 'Proxied reads of one second, one agent and one tool that passed.', {
  seq: Type.Integer({ description: 'Of the ledger: newer sums have larger ones.' }),
  first_at: Kept(Time),
  last_at: Kept(Time),
  count: Kept(Type.Integer({ minimum: 1 })),
  agent_id: Type.String(),
  tool: Kept(Nullable(Type.String(), '`null`: no tool declares it.')),
  upstream: Kept(Type.String()),
  statuses: Kept(MapOf(Type.Integer(), 'How many were answered with each status; `none` without an answer.')),
  observed: Nullable(
    Type.Object({ would: Kept(Type.String()), rule: Kept(Nullable(Type.String())) }),
    'What policy would have said, where it only observes and would have stopped them.',
  ),
  example: Kept(Nullable(Type.String(), 'Method and path of one that policy would have stopped.')),
});
const Reads = component('PassedReadPage', paged({ reads: List(Read) }));

/**
 * `GET …/observed-reads`: proxied reads that passed because policy only observes, or all that passed. A read is no
 * effect. The ledger has reads added up once a second, and this list shows those sums.
 */
export function addObservedReadsRoute(app: ApiApp, ports: Pick<ApiPorts, 'store'>, lists: Lists): void {
  const listObservedReads = guarded('effects.read', {
    operationId: 'listObservedReads',
    summary: 'Proxied reads that policy would have stopped, newest first',
    description:
      'In `mode: observe` reads pass, and are added up for each second by tool, agent, key and rule. `example` is method and path of one of them. An undeclared read has no `tool`. A page looks at a part of the ledger, and may be short or empty though others follow.',
    params: InWorkspace,
    querystring: closed({
      ...PAGE_QUERY,
      all: Type.Optional(
        Type.Enum(['true'], {
          description: '`true`: also those that policy lets pass; `observed` is null then.',
        }),
      ),
    }),
    response: answers({ 200: Reads }),
  });
  app.get('/v1/workspaces/:ws/observed-reads', listObservedReads, async (request, reply) => {
    const caller = callerOf(request);
    const { limit, cursor } = pageOf(request.query);
    const isAll = request.query.all === 'true';
    const before = cursor === null ? null : Number.parseInt(cursor, 36);
    return lists.make(caller, async () => {
      const events = await ports.store.ledgerBefore(request.params.ws, before, SCANNED);
      const observed = events.filter(
        ({ kind, data, actor }) =>
          kind === 'read.batch' && (isAll || 'observed' in data) && mayBeSeen(caller, actor.id),
      );
      const page = observed.slice(0, limit);
      // The page ends after the last one shown or, if all were shown, after the last event that was looked at.
      const last = observed.length > limit ? page.at(-1) : events.length === SCANNED ? events.at(-1) : undefined;
      return lists.send(reply, Reads, 'reads', page, toWire, { next_cursor: last?.seq.toString(36) ?? null });
    });
  });
}

function toWire({ seq, actor, data }: LedgerEvent) {
  const { tool = null, upstream = null, observed = null, observed_by: rule = null, example = null } = data;
  const { count = null, first_at: firstAt = null, last_at: lastAt = null, statuses = null } = data;
  return {
    seq,
    first_at: firstAt,
    last_at: lastAt,
    count,
    agent_id: actor.id,
    tool,
    upstream,
    statuses,
    observed: observed === null ? null : { would: observed, rule },
    example,
  };
}
