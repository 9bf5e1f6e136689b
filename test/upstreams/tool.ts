import { NO_FILES } from '../../src/effects/model/files.ts';
import type { Dispatch } from '../../src/effects/upstream.ts';
import type { HttpCall, HttpTool, Tool } from '../../src/effects/model/tool.ts';

type Changes = Partial<Omit<Tool, 'call'> & Omit<HttpCall, 'kind'>>;

/** A tool for tests: a refund, with what the test changes. */
export function makeTool(changes: Changes = {}): HttpTool {
  const { request, outcomes, state, ...others } = changes;
  return {
    name: 'payments.refund',
    title: 'Refund a payment',
    upstream: 'payments',
    kind: 'write',
    actionType: 'mcp.tool_call',
    tags: [],
    risk: null,
    env: null,
    call: {
      kind: 'http',
      request: request ?? {
        method: 'POST',
        path: '/v1/payments/{payment_id}/refunds',
        query: [],
        headers: {},
        body: ['amount', 'note'],
      },
      outcomes: outcomes ?? { committed: [], failed: [], unknown: [], body: [] },
      state:
        state === undefined
          ? { method: 'GET', path: '/v1/payments/{payment_id}', query: [], headers: {}, body: [] }
          : state,
    },
    paramsSchema: null,
    target: 'payment:{payment_id}',
    timeoutMs: 2000,
    maxProcessingMs: 1000,
    idempotent: { kind: 'none' },
    digest: 'digest',
    ...others,
  };
}

/** A dispatch of that tool. */
export function makeDispatch(changes: Partial<Dispatch> = {}): Dispatch {
  return {
    effectId: 'eff_1',
    upstreamKey: 'eff_1.1',
    tool: makeTool(),
    params: { payment_id: 'p1', amount: 100 },
    headers: {},
    proxied: null,
    files: NO_FILES,
    listener: null,
    gate: () => 'go',
    ...changes,
  };
}
