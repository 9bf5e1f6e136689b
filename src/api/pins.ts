import { Type } from 'typebox';
import { pinnedCall, type Tool } from '../effects/model/tool.ts';
import { comparisonToWire, toolStateToWire } from '../pins/compare.ts';
import type { PinnedAt } from '../upstreams/catalog.ts';
import { pinOf } from '../upstreams/mcp/pin-watch.ts';
import { type ApiApp, type Caller, guarded } from './app.ts';
import { callerOf, refuseAgents } from './caller.ts';
import type { Lists } from './lists.ts';
import type { ApiPorts } from './ports.ts';
import { refuse } from './problem.ts';
import { answers, AnyValue, InWorkspace, List, Nullable, record } from './schema.ts';

const PINS = '/v1/workspaces/:ws/pins';
/** It speaks to models: whoever reads it to review it is no agent. */
const UNREVIEWED = 'see what nobody has approved';

/** Names that nobody approved, of which a list shows no more: a server can make up any number. */
const MOST_UNAPPROVED = 200;

const OfUpstream = Type.Object({
  ws: Type.String({ description: 'Id of the workspace.' }),
  upstream: Type.String({ description: 'Id of the upstream that is an MCP server.' }),
});

const Pin = record('Pin', null, {
  tool: Type.String(),
  upstream: Type.String(),
  name: Type.String({ description: 'At the server.' }),
  sha256: Type.String(),
  state: Nullable(Type.Enum(['pinned', 'changed', 'gone', 'unseen'])),
});
const Pins = Type.Object({
  pins: List(Pin),
  servers: List(
    Type.Object({
      upstream: Type.String(),
      failure: Nullable(Type.String(), 'Why it could not be looked at.'),
      unapproved: List(Type.String(), `At most ${MOST_UNAPPROVED}.`),
      unapproved_count: Type.Integer({ minimum: 0 }),
    }),
  ),
});
const Differences = List(
  Type.Object({
    kind: Type.Enum(['added', 'removed', 'changed']),
    path: Type.String({ description: 'A JSON Pointer.' }),
    before: Type.Optional(AnyValue('As it was approved.')),
    after: Type.Optional(AnyValue('As it is now.')),
  }),
);
const Comparison = record('PinComparison', 'As `svc tools diff --json` prints it.', {
  upstream: Type.String(),
  unchanged: Type.Boolean(),
  about: Differences,
  tools: List(
    Type.Object({
      name: Nullable(Type.String()),
      state: Type.Enum(['unchanged', 'new', 'changed', 'renamed', 'gone', 'unusable']),
      why: Type.Optional(Type.String({ description: '`unusable`: why it cannot be pinned.' })),
      from: Type.Optional(Type.String({ description: '`renamed`: its name before.' })),
      differences: Type.Optional(Differences),
      pinned: Type.Optional(Type.String({ description: 'SHA-256 of what was approved.' })),
      sha256: Type.Optional(Type.String({ description: 'SHA-256 of what the server says now.' })),
    }),
  ),
});

/**
 * `GET …/pins`: what was approved of the tools of MCP servers, and how it stands to what they say. Approving is a change
 * of the lock file (docs/decisions/0034).
 */
export function addPinRoutes(app: ApiApp, ports: ApiPorts, lists: Lists): void {
  addListRoute(app, ports, lists);
  addCompareRoute(app, ports, lists);
}

function addListRoute(app: ApiApp, ports: ApiPorts, lists: Lists): void {
  const { pins } = ports;
  const listPins = guarded('pins.read', {
    operationId: 'listPins',
    summary: 'List the pinned tools of MCP servers, as this gateway judges them now',
    description:
      '`state`: `pinned`, the only one that is called; `changed`; `gone`, not listed any more; `unseen`, nothing recent is known, and the next call looks. `servers` says what each lists that nobody has approved, and why it could not be looked at.',
    params: InWorkspace,
    response: answers({ 200: Pins }),
  });
  app.get(PINS, listPins, async (request, reply) => {
    const caller = callerOf(request);
    refuseAgents(caller, UNREVIEWED);
    return lists.make(caller, async () => {
      const pinned = ports
        .catalog()
        .tools()
        .flatMap(withPin)
        .filter(({ tool }) => maySee(caller, tool.name));
      const servers = pins.seen().map(({ upstream, failure, unapproved }) => {
        const shown = unapproved.filter((name) => maySee(caller, `${upstream}.${name}`));
        return { upstream, failure, unapproved: shown.slice(0, MOST_UNAPPROVED), unapproved_count: shown.length };
      });
      return lists.send(
        reply,
        Pins,
        'pins',
        pinned,
        ({ tool, call }) => ({
          tool: tool.name,
          upstream: tool.upstream,
          name: call.name,
          sha256: pinOf(call),
          state: pins.stateOf(tool),
        }),
        { servers },
      );
    });
  });
}

function addCompareRoute(app: ApiApp, { pins }: ApiPorts, lists: Lists): void {
  const comparePins = guarded('pins.read', {
    operationId: 'comparePins',
    summary: 'What an MCP server says now, beside what was approved, with each difference',
    description:
      'The gateway asks the server for it. What it shows of new and changed tools was approved by nobody, and is hidden from agents: it is for people to review. To approve it, change the lock file (`svc tools approve`).',
    params: OfUpstream,
    response: answers({ 200: Comparison }),
  });
  app.get(`${PINS}/:upstream`, comparePins, async (request, reply) => {
    const caller = callerOf(request);
    refuseAgents(caller, UNREVIEWED);
    const { upstream } = request.params;
    return lists.make(caller, async () => {
      const compared = await pins.compare(upstream);
      if (compared === null) throw refuse('not_found', 'There is no MCP server of this name here.');
      if (typeof compared === 'string')
        throw refuse('not_ready', `The MCP server cannot be read: ${compared}.`, { retryAfterMs: 2_000 });
      const tools = compared.tools.filter(({ name }) => maySee(caller, `${upstream}.${name ?? ''}`));
      const { tools: _all, ...others } = comparisonToWire({ ...compared, tools: [] });
      return lists.send(reply, Comparison, 'tools', tools, toolStateToWire, others);
    });
  });
}

function withPin(tool: Tool): readonly PinnedAt[] {
  const call = pinnedCall(tool);
  return call === null ? [] : [{ tool, call }];
}

/** A key that is limited to some tools sees these. */
function maySee({ principal }: Caller, name: string): boolean {
  return principal.allowedTools?.includes(name) ?? true;
}
