import type { FastifyRequest } from 'fastify';
import type { Json } from '../json/value.ts';
import type { RequestFault } from '../effects/model/run-request.ts';
import { holdsKey } from '../identity/key-format.ts';
import { refuseFaults } from './problem.ts';

const MESSAGE = 'holds an API key, which would be kept and shown; send keys in X-API-Key only';

/** Endpoints that store nothing of what they are sent. */
const KEEP_NOTHING: ReadonlySet<string> = new Set(['state.verify', 'outcomes.reconcile']);

/**
 * The hook that refuses API keys, of anybody, in what is kept or shown. It looks at every text of the path, the query
 * and the body, except the params of a call, which are sealed. It also looks at an idempotency key that comes in a
 * header.
 */
export async function refuseKeysInTexts(request: FastifyRequest): Promise<void> {
  const { endpoint } = request.routeOptions.config;
  if (endpoint === undefined || KEEP_NOTHING.has(endpoint)) return;
  const faults: RequestFault[] = [];
  const isCall = endpoint === 'effects.run' || endpoint === 'effects.preview';
  // What Fastify has parsed is JSON.
  collect(request.params as Json, '/params', null, faults);
  collect(request.query as Json, '/query', null, faults);
  collect(request.body as Json, '', isCall ? 'params' : null, faults);
  // An idempotency key from a header is kept and shown like one from the body.
  if (isCall && holdsKey(String(request.headers['idempotency-key'] ?? '')))
    faults.push({ path: '/headers/idempotency-key', message: MESSAGE });
  if (faults.length > 0) throw refuseFaults(faults);
}

/** The most faults that a refusal lists. */
const MAX_FAULTS = 20;

/** @param spared member of the value that is skipped */
function collect(value: Json | undefined, path: string, spared: string | null, faults: RequestFault[]): void {
  if (faults.length >= MAX_FAULTS) return;
  if (typeof value === 'string') {
    if (holdsKey(value)) faults.push({ path, message: MESSAGE });
    return;
  }
  if (typeof value !== 'object' || value === null) return;
  for (const [name, member] of Object.entries(value)) {
    // The name is left out of the fault, because the answer would show the key.
    if (holdsKey(name)) faults.push({ path, message: MESSAGE });
    else if (name !== spared) collect(member, `${path}/${name}`, null, faults);
  }
}
