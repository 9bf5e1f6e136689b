import type { EffectRecord } from '../model/effect.ts';
import type { JsonObject } from '../../json/value.ts';
import { shownParams } from '../run/shown-params.ts';
import type { Principal } from '../model/principal.ts';
import type { RequestTemplate, Tool } from '../model/tool.ts';
import type { SealedParams } from '../ports.ts';
import { withheldBecause } from './withheld.ts';

/** The most characters of sealed params that one answer opens. The params of further calls are left out. */
const OPENED = { page: 4 * 1024 * 1024, one: 4 * 1024 * 1024, list: 512 * 1024 } as const;

/** What a reader may see of calls. Params are opened until the answer has reached its limit. */
export interface CallReader {
  /** Members `params`, `headers` if there are any, and what was cut; or `params_omitted` with the reason. */
  params(effect: EffectRecord):
    | { readonly params_omitted: string }
    | {
        readonly params: JsonObject;
        /** What the agent asked, where approvers changed it. */
        readonly asked_params?: JsonObject;
        readonly headers?: JsonObject;
        readonly params_truncated?: boolean;
      };
  /** Member `action`: what is sent where. */
  action(effect: EffectRecord): Pick<EffectRecord['action'], 'type' | 'kind' | 'upstream' | 'target'> & {
    readonly title?: string;
    readonly method?: string;
    readonly path?: string;
    readonly name?: string;
    readonly tool_changed?: boolean;
  };
}

type Opened = Pick<SealedParams, 'params' | 'headers' | 'requestIp' | 'asked'>;

export interface CallReaderPorts {
  readonly catalog: () => { tool(name: string): Tool | null };
  readonly policies: () => { readonly set: { redacted(tool: string): ReadonlySet<string> } };
  /** The params of a call and the headers that are part of it, opened; `null` if they cannot be opened. */
  readonly openParams: (effect: EffectRecord) => Opened | null;
}

/**
 * Reads calls for one answer to a caller. Only a key that may read the tool's calls sees params, and redacted ones are masked.
 */
export function readCalls(ports: CallReaderPorts, principal: Principal, answer: keyof typeof OPENED): CallReader {
  let left: number = OPENED[answer];
  const where = answer === 'page' ? 'page' : 'answer';
  let last: { readonly effect: EffectRecord; readonly opened: Opened | string } | null = null;

  /** The params and the action of an effect are asked for one after the other, so its seal is opened only once. */
  function open(effect: EffectRecord, tool: Tool | null): Opened | string {
    if (last?.effect !== effect) last = { effect, opened: openSeal(effect, tool) };
    return last.opened;
  }

  /** @returns the opened seal, or why it cannot be shown */
  function openSeal(effect: EffectRecord, tool: Tool | null): Opened | string {
    const { action, sealed } = effect;
    const because = withheldBecause(principal, action.tool);
    if (because !== null) return because;
    // Only a declared tool says which of its params are redacted.
    if (tool === null) return 'the tool is not declared';
    if (sealed === null) return 'they were erased';
    if (sealed.length > left) return 'too many for one answer; ask for the one';
    left -= sealed.length;
    return ports.openParams(effect) ?? 'they cannot be read';
  }

  return {
    params(effect) {
      const tool = ports.catalog().tool(effect.action.tool);
      const opened = open(effect, tool);
      if (typeof opened === 'string') return { params_omitted: opened };
      const redacted = ports.policies().set.redacted(effect.action.tool);
      const shown = shownParams(opened.params, redacted, where);
      const asked = opened.asked === undefined ? null : shownParams(opened.asked, redacted, where);
      // A header can decide what the call does. For example, an approver must see which account it names.
      const bound = opened.headers?.bound ?? {};
      const headers = Object.keys(bound).length === 0 ? null : shownParams(bound, new Set(), where);
      return {
        params: shown.params,
        ...(asked === null ? {} : { asked_params: asked.params }),
        ...(headers === null ? {} : { headers: headers.params }),
        ...(shown.truncated || asked?.truncated === true || headers?.truncated === true
          ? { params_truncated: true }
          : {}),
      };
    },
    action(effect) {
      const { action } = effect;
      const tool = ports.catalog().tool(action.tool);
      const what = { type: action.type, kind: action.kind, upstream: action.upstream, target: action.target };
      if (tool === null) return what;
      const opened = open(effect, tool);
      const redacted = ports.policies().set.redacted(action.tool);
      return {
        ...what,
        title: tool.title,
        ...requestOf(tool, typeof opened === 'string' ? {} : opened.params, redacted),
        // The tool has changed since the request for approval.
        ...(tool.digest === action.toolDigest ? {} : { tool_changed: true }),
      };
    },
  };
}

/** What is sent where: method and path, or the name at the MCP server. */
function requestOf({ call }: Tool, params: JsonObject, redacted: ReadonlySet<string>) {
  switch (call.kind) {
    case 'http':
      return { method: call.request.method, path: pathOf(call.request, params, redacted) };
    case 'mcp':
      return { method: 'tools/call', name: call.name };
  }
}

/** The path with its params. A redacted one keeps its placeholder. */
function pathOf(request: RequestTemplate, params: JsonObject, redacted: ReadonlySet<string>): string {
  const filled = request.path.replace(/\{(\+?)([^{}]+)\}/g, (placeholder, rest: string, name: string) => {
    const value = Object.hasOwn(params, name) && !redacted.has(name) ? params[name] : undefined;
    if (typeof value !== 'string' && typeof value !== 'number') return placeholder;
    const text = encodeURIComponent(String(value));
    return rest === '' ? text : text.replaceAll('%2F', '/');
  });
  return filled.length > 2_000 ? `${filled.slice(0, 2_000)}…` : filled;
}
