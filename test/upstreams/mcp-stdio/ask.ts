import type { Dispatcher } from 'undici';
import type { Through } from '../../../src/upstreams/mcp/pipe/exchange.ts';

/** An answer as it comes. */
export interface Asked {
  status: number;
  headers: Readonly<Record<string, unknown>>;
  text: string;
  controller: Dispatcher.DispatchController | null;
  /** Resolves when the head is there; rejects when it breaks before. */
  readonly head: Promise<void>;
  /** Resolves at the end; rejects when it breaks. */
  readonly end: Promise<void>;
}

export interface Asking {
  readonly session?: string;
  /** Whose session it begins. */
  readonly holder?: string;
  readonly gate?: () => void;
  /** Whether the reader pauses at once. */
  readonly pause?: boolean;
}

/** Sends one request as the gateway does. */
export function ask(
  through: Through,
  method: 'POST' | 'GET' | 'DELETE' | 'PUT',
  message: unknown,
  asking: Asking = {},
): Asked {
  const head = settled();
  const end = settled();
  const asked: Asked = { status: 0, headers: {}, text: '', controller: null, head: head.promise, end: end.promise };
  through.dispatch(
    {
      ...(asking.holder === undefined ? {} : { holder: asking.holder }),
      method,
      path: '/',
      headers: asking.session === undefined ? {} : { 'mcp-session-id': asking.session },
      body: message === null ? null : Buffer.from(JSON.stringify(message)),
    },
    {
      onRequestStart: (controller) => {
        asked.controller = controller;
        asking.gate?.();
      },
      onResponseStart: (controller, status, headers) => {
        Object.assign(asked, { status, headers });
        if (asking.pause) controller.pause();
        head.resolve();
      },
      onResponseData: (_controller, chunk) => {
        asked.text += chunk.toString('utf8');
      },
      onResponseEnd: () => end.resolve(),
      onResponseError: (_controller, error) => {
        head.reject(error);
        end.reject(error);
      },
    },
  );
  return asked;
}

interface Settled {
  readonly promise: Promise<void>;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

function settled(): Settled {
  let resolve = (): void => {};
  let reject = (_error: Error): void => {};
  const promise = new Promise<void>((yes, no) => {
    resolve = yes;
    reject = no;
  });
  promise.catch(() => {});
  return { promise, resolve, reject };
}

/** Begins a session. @returns its id */
export async function initialize(through: Through, holder?: string): Promise<string> {
  return (await begin(through, holder)).session;
}

/** Begins a session. @returns it, and what the server says of itself */
export async function begin(
  through: Through,
  holder?: string,
): Promise<{ readonly session: string; readonly instructions: string | null }> {
  const params = {
    protocolVersion: '2025-11-25',
    capabilities: { elicitation: {} },
    clientInfo: { name: 't', version: '1' },
  };
  const asked = ask(
    through,
    'POST',
    { jsonrpc: '2.0', id: 0, method: 'initialize', params },
    { ...(holder !== undefined && { holder }) },
  );
  await asked.end;
  const session = asked.headers['mcp-session-id'];
  if (asked.status !== 200 || typeof session !== 'string') throw new Error(`${asked.status} ${asked.text}`);
  await ask(through, 'POST', { jsonrpc: '2.0', method: 'notifications/initialized' }, { session }).end;
  const answer = JSON.parse(asked.text.startsWith('event:') ? lastEvent(asked.text) : asked.text) as {
    readonly result: { readonly instructions?: string };
  };
  return { session, instructions: answer.result.instructions ?? null };
}

function lastEvent(text: string): string {
  return text.trim().split('data: ').at(-1) ?? '';
}

/** The result of a request; throws on anything else. */
export async function result(
  through: Through,
  session: string,
  method: string,
  params: unknown,
  id = 1,
): Promise<Record<string, unknown>> {
  const asked = ask(through, 'POST', { jsonrpc: '2.0', id, method, params }, { session });
  await asked.end;
  const last = asked.text.startsWith('event:') ? lastEvent(asked.text) : asked.text;
  const answer = JSON.parse(last) as { id: unknown; result?: Record<string, unknown> };
  if (answer.result === undefined || answer.id !== id) throw new Error(asked.text);
  return answer.result;
}

export const tool = (through: Through, session: string, name: string, args: unknown = {}) =>
  result(through, session, 'tools/call', { name, arguments: args });
