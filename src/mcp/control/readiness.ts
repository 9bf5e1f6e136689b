import { Type } from 'typebox';
import { keyState } from '../../identity/key-record.ts';
import type { JsonObject } from '../../json/value.ts';
import type { ControlPorts, Installation } from './ports.ts';
import { args } from './schemas.ts';
import { answered, type ControlTool, defineTool, many, type ToolCall } from './tool.ts';

/** Effects and requests that are counted one by one; beyond it, `50+`. */
const MOST_COUNTED = 50;
/** A request for approval that waits longer than this is forgotten by somebody, ms. */
const LONG_WAIT_MS = 86_400_000;

const Readiness = Type.Object({
  score: Type.Integer({ minimum: 0, maximum: 100, description: '100: every check is ok. A failed check costs more.' }),
  ready: Type.Boolean({ description: 'No check failed.' }),
  checks: Type.Array(
    Type.Object({
      id: Type.String(),
      status: Type.Enum(['ok', 'warn', 'fail']),
      message: Type.String(),
      fix: Type.Unsafe<string | null>({ type: ['string', 'null'], description: 'What to do; null where it is ok.' }),
    }),
  ),
});

interface Check {
  readonly id: string;
  readonly status: 'ok' | 'warn' | 'fail';
  readonly message: string;
  readonly fix: string | null;
}

/** `svc.governance.readiness`. */
export function readinessTools(ports: ControlPorts): readonly ControlTool[] {
  return [
    defineTool({
      name: 'svc.governance.readiness',
      title: 'Governance readiness',
      description:
        'Checks whether this gateway governs as it should: policies in force, TLS, secrets, keys, unknown outcomes and requests that wait. Each check that is not ok comes with a fix.',
      endpoint: 'mcp.governance',
      ofWorkspace: false,
      input: args({}),
      outputSchema: Readiness,
      answer: async (_args, call) =>
        ports.inLine(call.principal.keyId, async () => {
          const installation = ports.installation();
          const checks = [
            storeCheck(ports),
            ...healthChecks(installation),
            modeCheck(ports),
            rulesCheck(ports),
            entranceCheck(installation),
            secretCheck(installation),
            queryKeyCheck(installation),
            await keysCheck(ports, call),
            ...(call.workspace === '' ? [] : await waitingChecks(ports, call)),
          ];
          const bad = checks.filter(({ status }) => status !== 'ok');
          return answered(
            {
              score: scoreOf(checks),
              ready: !checks.some(({ status }) => status === 'fail'),
              checks: checks.map(toWire),
            },
            bad.length === 0
              ? `All ${checks.length} checks are ok.`
              : `Score ${scoreOf(checks)} of 100. ${bad.map(({ message, fix }) => `${message} ${fix ?? ''}`.trim()).join(' ')}`,
          );
        }),
    }),
  ];
}

function toWire({ id, status, message, fix }: Check): JsonObject {
  return { id, status, message, fix };
}

function scoreOf(checks: readonly Check[]): number {
  const cost = { ok: 0, warn: 1, fail: 3 } as const;
  const lost = checks.reduce((sum, { status }) => sum + cost[status], 0);
  return Math.max(0, Math.round(100 * (1 - lost / (checks.length * cost.fail))));
}

function ok(id: string, message: string): Check {
  return { id, status: 'ok', message, fix: null };
}

function storeCheck({ store }: ControlPorts): Check {
  const { ready, problem, durability } = store.health();
  return ready
    ? ok('store', `The store is ready; what it took is durable (${durability}).`)
    : {
        id: 'store',
        status: 'fail',
        message: `The store is not ready: ${problem?.message ?? ''}`,
        fix: 'See what /readyz and the log say of the store. Nothing runs until it is back.',
      };
}

function healthChecks({ impediments, notes }: Installation): readonly Check[] {
  const stopped = impediments.map(
    ({ part, message }): Check => ({
      id: `ready.${part}`,
      status: 'fail',
      message,
      fix: 'The gateway takes no calls until this is mended; the log says more.',
    }),
  );
  const noted = notes.map(
    ({ part, message }): Check => ({
      id: `note.${part}`,
      status: 'warn',
      message,
      fix: 'Run `svc config check` on the files, and see the log.',
    }),
  );
  return stopped.length + noted.length === 0
    ? [ok('files', 'The files on disk are in force.')]
    : [...stopped, ...noted];
}

function modeCheck(ports: ControlPorts): Check {
  return ports.policies().mode === 'enforce'
    ? ok('policies_enforced', 'Policies are enforced.')
    : {
        id: 'policies_enforced',
        status: 'fail',
        message: 'Policies only observe: nothing is refused by them.',
        fix: 'Set policies.mode to enforce once the log shows no refusal that should not be.',
      };
}

function rulesCheck(ports: ControlPorts): Check {
  const { set } = ports.policies();
  const writes = ports
    .catalog()
    .tools()
    .filter(({ kind }) => kind === 'write');
  const closed = writes.filter(({ name }) => !set.couldPermit(name));
  if (set.rules.length === 0)
    return {
      id: 'policies_loaded',
      status: 'fail',
      message: 'No policy rule is loaded, so every call is refused.',
      fix: 'Name policy files in policies.paths; `svc init` writes a first one.',
    };
  if (closed.length > 0)
    return {
      id: 'policies_loaded',
      status: 'warn',
      message: `No rule could ever permit ${closed.length} of ${writes.length} writing tools (${closed
        .slice(0, 5)
        .map(({ name }) => name)
        .join(', ')}).`,
      fix: 'Write rules for them, or take the tools out of the configuration.',
    };
  return ok('policies_loaded', `${set.rules.length} policy rules are in force, version ${set.version.slice(0, 12)}.`);
}

function entranceCheck({ entrance }: Installation): Check {
  switch (entrance) {
    case 'tls':
      return ok('tls', 'Callers reach the gateway over TLS.');
    case 'tls_before':
      return ok('tls', 'The public address is https: TLS ends before the gateway.');
    case 'loopback':
      return ok('tls', 'The gateway listens on this machine only.');
    case 'plain':
      return {
        id: 'tls',
        status: 'fail',
        message: 'Keys and data cross the network in the clear.',
        fix: 'Set server.tls, or put a proxy with TLS in front and name its address in server.public_url.',
      };
  }
}

function secretCheck({ previousSecrets }: Installation): Check {
  return previousSecrets === 0
    ? ok('master_secret', 'One master secret is in use, and none of before.')
    : {
        id: 'master_secret',
        status: 'warn',
        message: `${previousSecrets} earlier master secrets are still accepted.`,
        fix: 'Take them out of secrets.previous once nothing sealed with them is needed.',
      };
}

function queryKeyCheck({ queryKey }: Installation): Check {
  return queryKey === 'refuse'
    ? ok('query_keys', 'Keys in the query are refused.')
    : {
        id: 'query_keys',
        status: 'warn',
        message: 'Keys are accepted in the query, where logs and histories keep them.',
        fix: 'Set auth.query_key to refuse once no client sends ?api_key=.',
      };
}

/** A key of a workspace is told of its workspace's keys only. */
async function keysCheck({ store }: ControlPorts, { view, workspace }: ToolCall): Promise<Check> {
  const now = store.now();
  const keys = await store.keys(null);
  const states = await store.turns.map(keys, (key) => (keyState(key, now) === 'active' ? key : null));
  const forever = states.filter(
    (key) =>
      key !== null &&
      key.expiresAt === null &&
      (view.kind === 'any' || (workspace !== '' && key.workspace === workspace)),
  );
  return forever.length === 0
    ? ok('keys_expire', 'Every key that is in use expires.')
    : {
        id: 'keys_expire',
        status: 'warn',
        message: `${forever.length} active keys never expire.`,
        fix: 'Rotate them with expires_in, and set auth.default_expiry.',
      };
}

async function waitingChecks({ store }: ControlPorts, { workspace }: ToolCall): Promise<readonly Check[]> {
  const any = { decision: null, tool: null, agentId: null, since: null, until: null, cursor: null };
  const unknown = await store.effects(workspace, { ...any, state: 'unknown', limit: MOST_COUNTED });
  const pending = await store.approvals(workspace, {
    status: 'pending',
    agentId: null,
    limit: MOST_COUNTED,
    cursor: null,
  });
  const { pauses } = await store.pauses(workspace);
  const old = pending.items.filter(({ createdAt }) => store.now() - createdAt > LONG_WAIT_MS).length;
  const counted = (found: number, next: string | null) => (next === null ? found : (`${found}+` as const));
  return [
    unknown.items.length === 0
      ? ok('unknown_outcomes', 'No outcome is unknown.')
      : {
          id: 'unknown_outcomes',
          status: 'fail',
          message: `${many(counted(unknown.items.length, unknown.next), 'effect has', 'effects have')} an unknown outcome.`,
          fix: 'Look at the live state and settle each: `svc effects list --state unknown`, `svc effects resolve`.',
        },
    old === 0
      ? ok(
          'approvals_wait',
          `${many(counted(pending.items.length, pending.next), 'request waits', 'requests wait')} for approval, none for longer than a day.`,
        )
      : {
          id: 'approvals_wait',
          status: 'warn',
          message: `${many(old, 'request has', 'requests have')} waited for approval for more than a day.`,
          fix: 'Decide on them: `svc approvals list`. What expires has to be asked again.',
        },
    pauses.length === 0
      ? ok('pauses', 'Nothing is paused.')
      : {
          id: 'pauses',
          status: 'warn',
          message: `${many(pauses.length, 'pause is', 'pauses are')} in force.`,
          fix: 'Lift those whose reason is over: `svc pauses`, `svc resume`.',
        },
  ];
}
