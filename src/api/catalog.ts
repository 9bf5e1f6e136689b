import type { JsonObject } from '../json/value.ts';
import { toolToWire } from '../effects/wire/tool.ts';
import type { CompiledRule } from '../policy/compiled-rule.ts';
import type { ApiApp } from './app.ts';
import { callerOf } from './caller.ts';
import type { ApiPorts } from './ports.ts';
import { AnyObject, InWorkspace, NoQuery, answers } from './schema.ts';

/** `GET …/tools` and `GET …/policies`: what is declared, and what is in force. */
export function addCatalogRoutes(app: ApiApp, ports: ApiPorts): void {
  app.get(
    '/v1/workspaces/:ws/tools',
    {
      config: { endpoint: 'tools.read' },
      schema: {
        operationId: 'listTools',
        summary: 'List the declared tools',
        description: 'An agent sees those that its key and some policy leave open to it.',
        tags: ['catalog'],
        params: InWorkspace,
        querystring: NoQuery,
        response: answers({ 200: AnyObject('`tools`.') }),
      },
    },
    async (request) => {
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
    },
  );

  app.get(
    '/v1/workspaces/:ws/policies',
    {
      config: { endpoint: 'policies.read' },
      schema: {
        operationId: 'listPolicies',
        summary: 'The active policies, rule by rule, in the order in which they are reported',
        tags: ['catalog'],
        params: InWorkspace,
        querystring: NoQuery,
        response: answers({ 200: AnyObject('`version`, `mode` and `rules`.') }),
      },
    },
    async (request) => {
      const { set, mode } = ports.policies();
      const withPlace = callerOf(request).view.kind !== 'own';
      return { version: set.version, mode, rules: set.rules.map((rule) => ruleToWire(rule, withPlace)) };
    },
  );
}

function ruleToWire(rule: CompiledRule, withPlace: boolean): JsonObject {
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
