import type { FastifyRequest } from 'fastify';
import { type Static, Type } from 'typebox';
import type { CallHeaders, StateCheck } from '../effects/model/action-call.ts';
import { conditionFaults, requiredFieldFaults } from '../effects/checks/conditions.ts';
import { isNeverSent } from '../effects/run/header-names.ts';
import { readIdempotencyKey } from '../effects/run/fingerprint.ts';
import { isJsonObject, type Json, pointerTo } from '../json/value.ts';
import { actingAgent } from '../effects/model/principal.ts';
import type { RequestFault, RunRequest } from '../effects/model/run-request.ts';
import { CHECK_LIMITS } from '../effects/checks/state-fields.ts';
import { MAX_TARGET } from '../effects/model/tool.ts';
import { takeFiles } from '../upstreams/http/given-files.ts';
import { headerRules, sortHeaders, takenHeaders } from '../upstreams/http/request-template.ts';
import type { Caller } from './app.ts';
import type { ApiPorts } from './ports.ts';
import { refuseFaults } from './problem.ts';
import { AgentId, AnyObject, closed, Tool } from './schema.ts';

const METADATA_BYTES = 4096;
const StateCheckBody = Type.Object(
  {
    intent: Type.String({ maxLength: 1000 }),
    required_fields: Type.Array(Type.String({ maxLength: CHECK_LIMITS.field }), { maxItems: CHECK_LIMITS.fields }),
    assumed_state: AnyObject('State that the agent resolved at plan time.'),
    conditions: AnyObject('Field values that must hold in the live state.'),
    on_mismatch: Type.Enum(['replan', 'block']),
  },
  { additionalProperties: false, description: 'Compared with the live state right before the call.' },
);

const IdempotencyKey = Type.String({
  pattern: '^[\\x21-\\x7e]{1,255}$',
  description: 'Identifies the action: the same key is the same action.',
  examples: ['order-4711-refund'],
});

const CALL_FIELDS = {
  action_type: Type.Optional(Type.String({ minLength: 1, maxLength: 100, examples: ['mcp.tool_call'] })),
  tool: Tool,
  target: Type.Optional(Type.String({ minLength: 1, maxLength: MAX_TARGET })),
  params: Type.Optional(AnyObject('Parameters of the tool.')),
  headers: Type.Optional(
    Type.Record(Type.String({ pattern: '^[A-Za-z0-9!#$%&*+.^_|~-]{1,100}$' }), Type.String({ maxLength: 8192 }), {
      description: 'Headers for the upstream beside those that are params, as a proxied request would carry them.',
      maxProperties: 50,
    }),
  ),
  agent_id: Type.Optional(AgentId),
  state_check: Type.Optional(StateCheckBody),
  claim_id: Type.Optional(Type.String({ minLength: 1, maxLength: 64 })),
  reservation_id: Type.Optional(Type.String({ minLength: 1, maxLength: 64 })),
  metadata: Type.Optional(AnyObject('Kept and returned, never evaluated; at most 4 KiB.')),
};

export const RunBody = closed({ ...CALL_FIELDS, idempotency_key: IdempotencyKey });
/** The body of a preview: a run request that may leave out the key. */
export const PreviewBody = closed({ ...CALL_FIELDS, idempotency_key: Type.Optional(IdempotencyKey) });

/** The key may also come in the header of the IETF draft; `"a"` and `a` are the same key. */
export async function takeKeyFromHeader(request: FastifyRequest): Promise<void> {
  const read = readIdempotencyKey(request.headers['idempotency-key']);
  const body = request.body as Json | undefined;
  if (read.kind === 'absent' || !isJsonObject(body)) return;
  if (read.kind === 'invalid') throw refuseFaults([{ path: '/headers/idempotency-key', message: read.message }]);
  const { key } = read;
  const named = body['idempotency_key'];
  if (named === undefined) request.body = { ...body, idempotency_key: key };
  else if (named !== key)
    throw refuseFaults([{ path: '/idempotency_key', message: 'is not the key that the header Idempotency-Key names' }]);
}

/** The run request that a body describes. @throws Refused with all faults that the schema cannot find */
export function runRequest(
  ports: Pick<ApiPorts, 'catalog' | 'upstream'>,
  request: FastifyRequest,
  caller: Caller,
  body: Static<typeof PreviewBody>,
  idempotencyKey: string,
): RunRequest {
  const faults: RequestFault[] = [];
  if (body.state_check !== undefined)
    faults.push(
      ...requiredFieldFaults(body.state_check.required_fields, '/state_check/required_fields'),
      ...conditionFaults(body.state_check.conditions, '/state_check/conditions'),
    );
  if (body.metadata !== undefined && Buffer.byteLength(JSON.stringify(body.metadata)) > METADATA_BYTES)
    faults.push({ path: '/metadata', message: `must not be longer than ${METADATA_BYTES} bytes` });
  const headers = headersOf(ports, request, caller, body, faults);
  const given = takeFiles(ports.catalog().tool(body.tool), body.params ?? {});
  faults.push(...given.faults);
  if (faults.length > 0 && caller.refusal === null) throw refuseFaults(faults);
  const { ws } = request.params as { readonly ws: string };
  return {
    principal: caller.principal,
    via: 'effects_api',
    workspace: ws,
    agentId: body.agent_id ?? null,
    actionType: body.action_type ?? null,
    tool: body.tool,
    target: body.target ?? null,
    params: given.params,
    files: given.files,
    headers,
    idempotencyKey,
    stateCheck: body.state_check === undefined ? null : stateCheckOf(body.state_check),
    claimId: body.claim_id ?? null,
    reservationId: body.reservation_id ?? null,
    metadata: body.metadata ?? null,
    proxied: null,
    requestIp: request.ip,
    stages: [
      {
        stage: 'authenticate',
        status: 'passed',
        startedAt: caller.authenticatedAt,
        durationMs: caller.authenticatedInMs,
        detail: caller.principal.keyId,
      },
    ],
  };
}

function stateCheckOf(body: Static<typeof StateCheckBody>): StateCheck {
  return {
    intent: body.intent,
    requiredFields: body.required_fields,
    assumedState: body.assumed_state,
    conditions: body.conditions,
    onMismatch: body.on_mismatch,
  };
}

/** The headers that go on, by the rules of the tool's upstream. @param faults gets what is wrong with them */
function headersOf(
  ports: Pick<ApiPorts, 'catalog' | 'upstream'>,
  request: FastifyRequest,
  { principal }: Caller,
  body: Static<typeof PreviewBody>,
  faults: RequestFault[],
): CallHeaders {
  const tool = ports.catalog().tool(body.tool);
  const upstream = tool === null ? null : ports.upstream(tool.upstream);
  const given: Record<string, string> = {};
  const add = (name: string, message: string): void => {
    faults.push({ path: `/headers${pointerTo([name])}`, message });
  };
  for (const [name, value] of Object.entries(body.headers ?? {})) {
    const folded = name.toLowerCase();
    if (Object.hasOwn(given, folded)) add(name, 'stands twice, in two spellings');
    else if (folded === 'content-type') add(name, 'is the gateway’s: it writes the body');
    else if (isNeverSent(folded)) add(name, 'is never sent on');
    else if (!/^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(value))
      add(name, 'must be visible ASCII without spaces around it');
    given[folded] = value;
  }
  const taken = takenHeaders(tool, upstream?.credentials?.header);
  for (const name of Object.keys(given))
    if (taken.includes(name)) add(name, 'is a param of the tool, or the gateway’s');
  const rules = headerRules(upstream?.headers);
  const sorted = sortHeaders(given, {
    rules,
    taken,
    ownCredentials: true,
    governed: true,
    values: {
      agent_id: actingAgent(principal, body.agent_id ?? null) ?? '',
      client_ip: request.ip,
      host: request.headers.host ?? '',
      proto: request.protocol,
      request_id: request.id,
    },
  });
  for (const name of Object.keys(given))
    if (!isNeverSent(name) && !taken.includes(name) && ['drop', 'credential'].includes(rules.fate(name)))
      add(name, 'is not sent on to this upstream');
  faults.push(...sorted.faults);
  return sorted.headers;
}
