import { Type } from 'typebox';
import { type ApiApp, guarded } from './app.ts';
import { ledgerActor } from '../effects/model/principal.ts';
import { callerOf } from './caller.ts';
import type { ApiPorts } from './ports.ts';
import { refuse } from './problem.ts';
import { answers, Flag, WithId } from './schema.ts';

/** `DELETE …/effects/{id}/params`: removes the values behind the receipt's commitments. */
export function addEraseRoute(app: ApiApp, ports: Pick<ApiPorts, 'store'>): void {
  const eraseEffect = guarded('effects.erase', {
    operationId: 'eraseEffect',
    summary: 'Forget params, salts and the kept answer',
    description:
      'For an effect that is over; one that waits, runs or is unknown answers 409. The receipt stays, and verifies as before; nobody can open it any more. Twice is the same as once.',
    params: WithId,
    response: answers({
      200: Type.Object({ effect_id: Type.String(), erased: Flag('Also where it was before.') }),
    }),
  });
  app.delete('/v1/workspaces/:ws/effects/:id/params', eraseEffect, async (request) => {
    const { ws: workspace, id } = request.params;
    const actor = ledgerActor(callerOf(request).principal);
    const erasure = await ports.store.erase({ workspace, effectId: id, actor });
    switch (erasure.kind) {
      case 'erased':
      case 'unchanged':
        return { effect_id: id, erased: true };
      case 'needed':
        throw refuse('conflict', 'The effect waits, runs or is unknown: its params are still needed. Settle it first.');
      case 'absent':
        throw refuse('not_found', 'There is no such effect here.');
    }
  });
}
