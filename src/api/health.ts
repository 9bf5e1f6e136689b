import { Type } from 'typebox';
import type { ApiApp } from './app.ts';
import type { ApiPorts } from './ports.ts';
import { refuse } from './problem.ts';
import { isoTime } from '../effects/model/iso-time.ts';
import { answers, Flag, List, Time } from './schema.ts';

const Readiness = Type.Object({
  ready: Flag('It takes calls.'),
  store: Type.Object({
    durability: Type.String({ description: 'What the store guarantees of a confirmed write.' }),
    epoch: Type.Integer(),
  }),
  notes: Type.Optional(
    List(
      Type.Object({ part: Type.String(), message: Type.String(), since: Type.Optional(Time) }),
      'What somebody should look at.',
    ),
  ),
});

/** `/livez`, `/readyz`, `/metrics`: they need no key and do not ask the store. */
export function addHealthRoutes(
  app: ApiApp,
  ports: Pick<ApiPorts, 'store' | 'impediments' | 'notes' | 'metrics'>,
): void {
  app.get(
    '/livez',
    {
      schema: {
        operationId: 'live',
        summary: 'The process answers',
        tags: ['health'],
        security: [],
        response: answers({ 200: Type.Object({ status: Type.Literal('ok') }) }),
      },
    },
    async () => ({ status: 'ok' as const }),
  );

  app.get(
    '/readyz',
    {
      schema: {
        operationId: 'ready',
        summary: 'The gateway takes calls; if not, what keeps it from it',
        tags: ['health'],
        security: [],
        response: answers({ 200: Readiness }),
      },
    },
    async () => {
      const { ready, problem, durability, epoch } = ports.store.health();
      const { code, message } = problem ?? { code: 'store_unavailable', message: 'The store is not ready.' };
      const impediments = ports.impediments().map(({ part, message }) => ({ part, message }));
      const parts = ready ? impediments : [{ part: 'store', code, message }, ...impediments];
      if (parts.length > 0) {
        const detail = `Not ready: ${parts.map(({ part }) => part).join(', ')}.`;
        throw refuse('not_ready', detail, { retryAfterMs: 1000, members: { ready: false, parts } });
      }
      const notes = ports.notes().map(({ part, message, since }) => ({
        part,
        message,
        ...(since === undefined ? {} : { since: isoTime(since) }),
      }));
      return { ready: true, store: { durability, epoch }, ...(notes.length === 0 ? {} : { notes }) };
    },
  );

  app.get(
    '/metrics',
    { schema: { operationId: 'metrics', summary: 'Prometheus metrics', tags: ['health'], security: [] } },
    async (_request, reply) => {
      const { contentType, text } = await ports.metrics();
      return reply.type(contentType).send(text);
    },
  );
}
