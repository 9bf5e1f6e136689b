import { Type } from 'typebox';
import { timeToWire } from '../effects/wire/time.ts';
import { type ApiApp, guarded } from './app.ts';
import { callerOf } from './caller.ts';
import type { ApiPorts } from './ports.ts';
import { answers, Time } from './schema.ts';

/** `POST /v1/beta/console/links`: what `svc console` prints. */
export function addConsoleLinkRoute(app: ApiApp, ports: Pick<ApiPorts, 'sessions' | 'settings'>): void {
  const createConsoleLink = guarded('console.enter', {
    operationId: 'createConsoleLink',
    summary: 'Make a link that signs its owner in to the console, once, within five minutes',
    response: answers({ 201: Type.Object({ url: Type.String({ format: 'uri' }), expires_at: Time }) }),
  });
  app.post('/v1/beta/console/links', createConsoleLink, async (request, reply) => {
    const { token, until } = await ports.sessions.makeLink(callerOf(request).principal);
    // In the fragment, which browsers send to nobody: neither to this gateway's log nor to a proxy's.
    const url = `${ports.settings().publicUrl}/console/sign-in#link=${token}`;
    return reply
      .code(201)
      .header('cache-control', 'no-store')
      .send({ url, expires_at: timeToWire(until) });
  });
}
