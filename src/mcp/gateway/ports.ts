import type { KeyObject } from 'node:crypto';
import type { Authorized, AuthorizeRequest } from '../../effects/ports.ts';
import type { ApprovalRecord } from '../../effects/model/approval.ts';
import type { EffectRecord } from '../../effects/model/effect.ts';
import type { RunResult } from '../../effects/model/outcome.ts';
import type { Principal } from '../../effects/model/principal.ts';
import type { Problem, RunRequest } from '../../effects/model/run-request.ts';
import type { Tool } from '../../effects/model/tool.ts';
import type { JsonLimits } from '../../json/strict.ts';
import type { Reason } from '../../effects/model/decision.ts';
import type { McpUpstream } from '../../upstreams/mcp/mcp-upstream.ts';
import type { Catalog } from '../../upstreams/catalog.ts';
import type { AccessLine } from '../../telemetry/access-log.ts';
import type { createLive } from '../../identity/live.ts';
import type { CallerPorts } from '../caller.ts';
import type { FaultPorts } from '../http.ts';

export interface GatewayPorts extends CallerPorts, FaultPorts {
  /** An MCP server behind the gateway; `null` if none has this id. */
  readonly server: (id: string) => McpUpstream | null;
  readonly catalog: () => Catalog;
  readonly run: (request: RunRequest) => Promise<RunResult>;
  readonly authorize: (principal: Principal, request: AuthorizeRequest) => Authorized;
  /** Judges something that passes through, or that has passed and is open: why it may not, or `null`. */
  readonly judge: (request: Passing, how?: 'anew' | 'open' | 'without_rules') => Refused | null;
  /** Whether the answer to a call of a tool may still be passed on. */
  readonly mayHear: (call: Passing) => boolean;
  /** What is open at the doors to MCP servers on behalf of keys. */
  readonly live: ReturnType<typeof createLive>;
  readonly workspaceKey: (workspace: string) => KeyObject;
  readonly effect: (workspace: string, id: string) => Promise<EffectRecord | null>;
  readonly approval: (workspace: string, id: string) => Promise<ApprovalRecord | null>;
  /** How long an effect is kept at least, ms. */
  readonly effectsKeptMs: () => number;
  readonly policyVersion: () => string;
  readonly jsonLimits: () => JsonLimits;
  /** Told of each request when its answer is over; `null`: nobody wants to know. */
  readonly access: ((line: AccessLine) => void) | null;
  /** The store's time, ms since the epoch. */
  readonly now: () => number;
}

/** Something other than a call of a tool that an agent asks of a server. */
export interface Passing extends Pick<RunRequest, 'principal' | 'workspace' | 'agentId' | 'params'> {
  readonly tool: Tool;
  readonly requestIp: string;
}

export type Refused =
  | { readonly kind: 'denied'; readonly decision: string; readonly reason: Reason }
  | { readonly kind: 'problem'; readonly problem: Problem };
