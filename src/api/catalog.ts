import { Type } from 'typebox';
import { toolToWire } from '../effects/wire/tool.ts';
import type { CompiledRule } from '../policy/compiled-rule.ts';
import { type ApiApp, guarded } from './app.ts';
import { callerOf } from './caller.ts';
import type { ApiPorts } from './ports.ts';
import { Rule } from './effect-answers.ts';
import { answers, AnyObject, InWorkspace, List, Nullable, record } from './schema.ts';

const DeclaredTool = record('Tool', null, {
  name: Type.String({ description: '`upstream.tool`.' }),
  title: Type.String(),
  upstream: Type.String(),
  kind: Type.Enum(['read', 'write']),
  action_type: Type.String(),
  tags: List(Type.String()),
  risk: Nullable(Type.Enum(['low', 'medium', 'high', 'critical'])),
  target: Nullable(Type.String(), 'Its template; `null`: the caller names the target.'),
  params_schema: Nullable(AnyObject('A JSON Schema.')),
  idempotent: Type.Boolean({ description: 'The upstream itself removes duplicates.' }),
  state_check: Type.Boolean({ description: 'The live state of what it acts on can be read.' }),
});

/** `GET …/tools` and `GET …/policies`: what is declared, and what is in force. */
export function addCatalogRoutes(app: ApiApp, ports: ApiPorts): void {
  const listTools = guarded('tools.read', {
    operationId: 'listTools',
    summary: 'List the declared tools',
    description: 'An agent sees those that its key and some policy leave open to it.',
    params: InWorkspace,
    response: answers({ 200: Type.Object({ tools: List(DeclaredTool) }) }),
  });
  app.get('/v1/workspaces/:ws/tools', listTools, async (request) => {
    const { principal, view } = callerOf(request);
    const { set } = ports.policies();
    const visible = ports
      .catalog()
      .tools()
      .filter(
        ({ name }) =>
          (principal.allowedTools === null || principal.allowedTools.includes(name)) &&
          (view.kind !== 'own' || set.couldPermit(name)),
      );
    return { tools: visible.map(toolToWire) };
  });

  const listPolicies = guarded('policies.read', {
    operationId: 'listPolicies',
    summary: 'The active policies, rule by rule, in the order in which they are reported',
    params: InWorkspace,
    response: answers({
      200: Type.Object({ version: Type.String(), mode: Type.Enum(['enforce', 'observe']), rules: List(Rule) }),
    }),
  });
  app.get('/v1/workspaces/:ws/policies', listPolicies, async (request) => {
    const { set, mode } = ports.policies();
    const withPlace = callerOf(request).view.kind !== 'own';
    return { version: set.version, mode, rules: set.rules.map((rule) => ruleToWire(rule, withPlace)) };
  });
}

function ruleToWire(rule: CompiledRule, withPlace: boolean) {
  return {
    id: rule.id,
    set: rule.set,
    effect: rule.effect,
    mode: rule.mode,
    description: rule.description,
    priority: rule.priority,
    ...(withPlace ? { file: rule.position.file, line: rule.position.line } : {}),
  };
}
