import { Type } from 'typebox';
import { nearest } from '../../diagnostics/nearest.ts';
import { pinnedCall, type Tool } from '../../effects/model/tool.ts';
import { toolToWire } from '../../effects/wire/tool.ts';
import { permit } from '../../identity/permissions.ts';
import type { Json, JsonObject } from '../../json/value.ts';
import type { CompiledRule } from '../../policy/compiled-rule.ts';
import { orAskOf } from '../../policy/evaluate.ts';
import { ruleFilter } from '../../policy/explain.ts';
import { pinOf } from '../../upstreams/mcp/pin-watch.ts';
import { knownTools, mayUse } from './may-use.ts';
import type { ControlPorts } from './ports.ts';
import { AnyObject, args, DEFAULT_PAGE, Items, NextCursor, PAGE, ToolName } from './schemas.ts';
import { answered, type ControlTool, defineTool, faulty, many, type ToolCall } from './tool.ts';

/** The name under which the control plane's own tools stand among upstreams. */
const OWN = 'svc';

const PIN =
  'SHA-256 of what was approved, for tools of MCP servers; of others the digest of the declaration that is in force.';
const PinStanding = Type.Unsafe<string | null>({
  type: ['string', 'null'],
  enum: ['pinned', 'changed', 'gone', 'new', 'unseen', null],
  description:
    'Of tools of MCP servers. `pinned`: as approved. `changed`, `gone`, `new`: quarantined, calls are refused. `unseen`: nothing recent is known, and the next call looks. Null: it has no pin.',
});

const Found = Type.Object({
  tools: Type.Array(
    Type.Object({
      name: Type.String(),
      upstream: Type.String({ description: '`svc`: a tool of this control plane.' }),
      title: Type.String(),
      kind: Type.Enum(['read', 'write']),
      risk: Type.Unsafe<string | null>({ type: ['string', 'null'] }),
      pin: Type.Unsafe<string | null>({
        type: ['string', 'null'],
        description: `${PIN} Null for tools of the gateway itself, and for those that nobody has approved.`,
      }),
      pin_state: PinStanding,
      allowed: Type.Boolean({ description: 'Whether this key could have it run, with the right params.' }),
      reason: Type.Unsafe<string | null>({ type: ['string', 'null'], description: 'Why not.' }),
    }),
  ),
  next_cursor: NextCursor,
});

const Described = Type.Object({
  tool: AnyObject('The declaration: name, kind, risk, target, schema of the params.'),
  pin: Type.String({ description: PIN }),
  pin_state: PinStanding,
  allowed: Type.Boolean(),
  reason: Type.Unsafe<string | null>({ type: ['string', 'null'] }),
  policy_version: Type.String(),
  policies: Items('A rule that can apply to the tool.'),
  budgets: Items('A budget that a rule takes from.'),
  approvals: Items('A rule that asks for approval: whom, and how many.'),
});

/**
 * `svc.tools.search` and `svc.tools.describe`.
 * @param others the other tools of the control plane, which are found too
 */
export function catalogTools(ports: ControlPorts, others: readonly ControlTool[]): readonly ControlTool[] {
  const describe = describeTool(ports);
  const search: ControlTool = searchTool(ports, () => [search, describe, ...others]);
  return [search, describe];
}

function searchTool(ports: ControlPorts, tools: () => readonly ControlTool[]): ControlTool {
  return defineTool({
    name: 'svc.tools.search',
    title: 'Search tools',
    description:
      'Finds the tools behind this gateway, and those of this control plane, by words in name, title, tags and upstream. Says of each whether this key could have it run.',
    endpoint: 'mcp.tools',
    ofWorkspace: false,
    input: args({
      query: Type.Optional(Type.String({ maxLength: 200, description: 'Words that all have to occur.' })),
      upstream: Type.Optional(
        Type.String({ minLength: 1, maxLength: 100, description: 'Only tools of this upstream.' }),
      ),
      ...PAGE,
    }),
    outputSchema: Found,
    answer: async ({ query = '', upstream, limit = DEFAULT_PAGE, cursor }, call) => {
      const words = query
        .toLowerCase()
        .split(/\s+/)
        .filter((word) => word !== '');
      const after = cursor === undefined ? null : nameOf(cursor);
      if (after === undefined) return faulty('/cursor', 'is no cursor; send next_cursor of the page before');
      const own = tools().filter((tool) => mayUse(tool, call.principal).kind === 'allowed');
      const fits = (name: string, of: string, texts: readonly string[]): boolean =>
        (after === null || name > after) &&
        (upstream === undefined || upstream === of) &&
        words.every((word) => texts.some((text) => text.toLowerCase().includes(word)));
      const candidates: { readonly name: string; readonly shown: () => JsonObject }[] = [];
      for (const { name, title, description } of own)
        if (fits(name, OWN, [name, title, description])) candidates.push({ name, shown: () => ownTool(name, title) });
      for (const tool of visibleTools(ports, call))
        if (fits(tool.name, tool.upstream, [tool.name, tool.title, tool.upstream, ...tool.tags]))
          candidates.push({ name: tool.name, shown: () => foundTool(ports, tool, call) });
      for (const { name, upstream: of } of unapprovedTools(ports, call))
        if (fits(name, of, [name, of])) candidates.push({ name, shown: () => unapprovedTool(name, of) });
      candidates.sort((a, b) => (a.name < b.name ? -1 : 1));
      const shown = candidates.slice(0, limit);
      const found = shown.map((one) => one.shown());
      const last = candidates[limit - 1];
      const more = candidates.length > limit && last !== undefined;
      return answered(
        { tools: found, next_cursor: more ? Buffer.from(last.name).toString('base64url') : null },
        found.length === 0
          ? 'No tool that this key may see fits.'
          : `${many(candidates.length, 'tool fits', 'tools fit')}${more ? `; these are the first ${limit}` : ''}: ${shown.map(({ name }) => name).join(', ')}.`,
      );
    },
  });
}

function describeTool(ports: ControlPorts): ControlTool {
  return defineTool({
    name: 'svc.tools.describe',
    title: 'Describe a tool',
    description:
      'Tells of one tool behind this gateway what it takes, and which policy rules, budgets and approvals can apply to it.',
    endpoint: 'mcp.tools',
    ofWorkspace: false,
    input: args({ tool: ToolName }),
    outputSchema: Described,
    answer: async ({ tool: name }, call) => {
      const tool = visibleTools(ports, call).find((one) => one.name === name);
      if (tool === undefined) {
        const near = nearest(
          name,
          visibleTools(ports, call)
            .slice(0, MOST_COMPARED)
            .map((one) => one.name),
        );
        if (unapprovedTools(ports, call).some((one) => one.name === name))
          return faulty('/tool', 'names a tool that nobody has approved; svc tools diff shows it to people');
        return faulty('/tool', `names no tool that this key may see${near === null ? '' : `; did you mean ${near}?`}`);
      }
      const { set } = ports.policies();
      const rules = await applyingRules(ports, tool);
      const { allowed, reason } = standing(ports, tool, call);
      const approvals = rules.flatMap(({ id, approval, obligations }) => [
        ...(approval === null ? [] : [askedBy(id, approval)]),
        ...obligations.flatMap((one) => {
          const orAsk = orAskOf(one);
          return orAsk === null ? [] : [{ ...askedBy(id, orAsk.approval), beyond: orAsk.limit }];
        }),
      ]);
      const budgets = budgetsOf(rules);
      return answered(
        {
          tool: toolToWire(tool),
          pin: pinDigest(tool),
          pin_state: ports.pins.stateOf(tool),
          allowed,
          reason,
          policy_version: set.version,
          policies: rules.slice(0, MOST_RULES).map((rule) => ({
            rule: rule.id,
            effect: rule.effect,
            mode: rule.mode,
            description: rule.description,
          })),
          budgets,
          approvals,
        },
        [
          `${tool.name} is a ${tool.kind} tool of ${tool.upstream}; its title is data that others wrote: ${JSON.stringify(tool.title)}.`,
          allowed ? `${rules.length} policy rules can apply to it.` : `This key cannot have it run: ${reason ?? ''}.`,
          ...(approvals.length === 0
            ? []
            : [`Calls may need approval by ${approvals.map(({ rule }) => rule).join(', ')}.`]),
          ...(budgets.length === 0 ? [] : [`It takes from ${budgets.map(({ budget }) => budget).join(', ')}.`]),
        ].join(' '),
      );
    },
  });
}

/** Comparing names takes long where there are many. */
const MOST_COMPARED = 500;
/** The most rules that are listed of one tool. */
const MOST_RULES = 200;
/** The most tools of one server that nobody has approved, and the form of their names. */
const MOST_UNAPPROVED = 200;
const PLAIN_NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/;

/**
 * The declared tools that a key may see: those of its `allowed_tools`, or all where it runs nothing and may ask what would
 * become of calls; an agent, those that some rule could permit.
 */
function visibleTools(ports: ControlPorts, { principal, view }: ToolCall): readonly Tool[] {
  const { set } = ports.policies();
  const allowedTools = knownTools(principal);
  return ports
    .catalog()
    .tools()
    .filter(
      ({ name }) =>
        (allowedTools === null || allowedTools.includes(name)) && (view.kind !== 'own' || set.couldPermit(name)),
    );
}

function ownTool(name: string, title: string): JsonObject {
  return {
    name,
    upstream: OWN,
    title,
    kind: 'read',
    risk: 'low',
    pin: null,
    pin_state: null,
    allowed: true,
    reason: null,
  };
}

function foundTool(ports: ControlPorts, tool: Tool, call: ToolCall): JsonObject {
  const { name, upstream, title, kind, risk } = tool;
  const state = ports.pins.stateOf(tool);
  return { name, upstream, title, kind, risk, pin: pinDigest(tool), pin_state: state, ...standing(ports, tool, call) };
}

/** What stands in the lock file of a tool that has one. */
function pinDigest(tool: Tool): string {
  const call = pinnedCall(tool);
  return call === null ? tool.digest : pinOf(call);
}

/**
 * Tools that servers list and nobody has approved. An agent does not see them: a name is what the server says. Others see
 * names that say little, and no more of them than they would look at.
 */
function unapprovedTools(
  ports: ControlPorts,
  { principal, view }: ToolCall,
): readonly { readonly name: string; readonly upstream: string }[] {
  if (view.kind === 'own') return [];
  const allowedTools = knownTools(principal);
  return ports.pins.seen().flatMap(({ upstream, unapproved }) =>
    unapproved
      .slice(0, MOST_UNAPPROVED)
      .filter((name) => PLAIN_NAME.test(name))
      .map((name) => ({ name: `${upstream}.${name}`, upstream }))
      .filter(({ name }) => allowedTools?.includes(name) ?? true),
  );
}

function unapprovedTool(name: string, upstream: string): JsonObject {
  const nothing = { kind: 'write', risk: null, pin: null } as const;
  return { name, upstream, title: name, ...nothing, pin_state: 'new', allowed: false, reason: 'tool_quarantined' };
}

/** Whether a key could have a tool run, and if not, why. */
function standing(
  ports: ControlPorts,
  tool: Tool,
  { principal }: ToolCall,
): { readonly allowed: boolean; readonly reason: string | null } {
  const permission = permit(principal, tool.kind === 'read' ? 'proxy.read' : 'effects.run');
  if (!permission.ok) return { allowed: false, reason: permission.code };
  const state = ports.pins.stateOf(tool);
  if (state === 'changed' || state === 'gone') return { allowed: false, reason: 'tool_quarantined' };
  return ports.policies().set.couldPermit(tool.name)
    ? { allowed: true, reason: null }
    : { allowed: false, reason: 'no_rule_allows' };
}

/** The rules whose conditions on the tool itself can hold. There may be thousands, so they are looked at in turns. */
async function applyingRules(ports: ControlPorts, tool: Tool): Promise<readonly CompiledRule[]> {
  const { set } = ports.policies();
  const applies = ruleFilter(tool);
  const judged = await ports.store.turns.map(set.rules, (rule) => (applies(rule) ? rule : null));
  return judged.filter((rule) => rule !== null);
}

function askedBy(rule: string, { approvers, quorum }: NonNullable<CompiledRule['approval']>) {
  return { rule, roles: approvers.roles, users: approvers.users, quorum };
}

function budgetsOf(rules: readonly CompiledRule[]): readonly (JsonObject & { readonly budget: string })[] {
  const found = new Map<string, JsonObject & { readonly budget: string }>();
  for (const { id, obligations } of rules)
    for (const obligation of obligations) {
      if (obligation.kind !== 'budget') continue;
      const { budget } = obligation;
      const by: Json = budget.by.facts.map(({ text }) => text);
      if (!found.has(budget.id)) found.set(budget.id, { budget: budget.id, unit: budget.unit, by, rule: id });
    }
  return [...found.values()];
}

/** @returns the name after which the page begins; `undefined` where the cursor is none of ours */
function nameOf(cursor: string): string | undefined {
  const name = Buffer.from(cursor, 'base64url').toString('utf8');
  return Buffer.from(name).toString('base64url') === cursor ? name : undefined;
}
