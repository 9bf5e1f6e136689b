import { Agent, request } from 'node:http';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { ApiApp } from '../../src/api/app.ts';
import { EARLIER } from '../../src/api/problem.ts';
import { createListeningServer } from '../../src/api/server.ts';
import { createLogger } from '../../src/telemetry/logger.ts';

/** Load is measured from two seconds after the start on. */
const MEASURED_AFTER_MS = 2_100;

const settings = {
  publicUrl: 'http://127.0.0.1',
  allowedHosts: ['api.test'],
  queryKey: 'refuse',
  jsonLimits: { depth: 8, values: 100 },
} as const;

let app: ApiApp;
let port = 0;
const agent = new Agent({ keepAlive: true });
beforeAll(async () => {
  const logger = createLogger({ level: 'error', sink: { write: () => undefined } });
  const routes = [{ host: 'api.test', listen: null }];
  ({ app } = createListeningServer({
    logger,
    settings: () => settings,
    bodyLimit: 1_000,
    connections: 100,
    routes: () => routes,
  }));
  port = Number(new URL(await app.listen({ host: '127.0.0.1', port: 0 })).port);
  await new Promise((resolve) => setTimeout(resolve, MEASURED_AFTER_MS));
});
afterAll(async () => {
  agent.destroy();
  await app.close();
});

interface Asked {
  readonly method: string;
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
}

interface Answered {
  readonly status: number;
  readonly text: string;
  /** `x-should-retry` and `retry-after`. */
  readonly hints: readonly unknown[];
}

function ask({ method, path, headers = {} }: Asked): Promise<Answered> {
  return new Promise((resolve, reject) => {
    const outgoing = request({ host: '127.0.0.1', port, method, path, headers, agent }, (incoming) => {
      let text = '';
      incoming.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      incoming.on('end', () => {
        const { statusCode: status = 0, headers: sent } = incoming;
        resolve({ status, text, hints: [sent['x-should-retry'], sent['retry-after']] });
      });
    });
    outgoing.on('error', reject).end();
  });
}

/** Lets the event loop turn but once a second. */
async function beLate(): Promise<void> {
  for (let turn = 0; turn < 3; turn += 1) {
    const until = performance.now() + 1_000;
    while (performance.now() < until);
    await new Promise(setImmediate);
  }
}

/** What may be the same action as an earlier request, and what cannot. */
const RUNS: readonly Asked[] = [
  { method: 'POST', path: '/v1/workspaces/demo/effects' },
  { method: 'POST', path: '/mcp/files?api_key=1' },
  { method: 'POST', path: '/payments/v1/notes', headers: { 'idempotency-key': 'note-1' } },
  // The route may derive the key from the request.
  { method: 'POST', path: '/payments/v1/notes' },
  // At an entrance of a route nothing is the gateway's own.
  { method: 'DELETE', path: '/v1/workspaces/demo', headers: { host: 'api.test' } },
  { method: 'GET', path: '/payments/v1/notes', headers: { 'idempotency-key': 'note-1' } },
];
const OTHERS: readonly Asked[] = [
  { method: 'GET', path: '/v1/workspaces/demo/effects' },
  { method: 'POST', path: '/v1/workspaces/demo/effects/preview' },
  { method: 'POST', path: '/v1/workspaces/demo/pauses' },
  { method: 'GET', path: '/payments/v1/notes' },
  { method: 'GET', path: '/v1/workspaces/demo', headers: { host: 'api.test' } },
];

it('under overload `did_it_happen` is about the action, and says what the sentence beside it says', async () => {
  await beLate();
  const asked = [...RUNS, ...OTHERS];
  const health = ['/livez', '/readyz', '/metrics'].map((path) => ({ method: 'GET', path }));
  const answers = await Promise.all([...asked, ...health].map(ask));
  for (const [index, { status, text, hints }] of answers.slice(0, asked.length).entries()) {
    expect([status, ...hints], text).toEqual([503, 'true', '1']);
    const may = index < RUNS.length;
    expect(JSON.parse(text), JSON.stringify(asked[index])).toMatchObject({
      code: 'not_ready',
      detail: `The gateway is overloaded. Nothing was done with this request.${may ? EARLIER : ''}`,
      did_it_happen: may ? 'maybe' : 'no',
      safe_to_retry: true,
      next: 'retry',
      retry_after_ms: 1_000,
    });
  }
  // Of the health of the gateway one may ask even so. This server has no such pages.
  expect(answers.slice(asked.length).map(({ status }) => status)).toEqual([404, 404, 404]);
});
