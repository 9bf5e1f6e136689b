import type { Entity } from '../effects/model/entity.ts';
import type { JsonObject } from '../json/value.ts';
import type { Agent, KeyKind } from '../effects/model/principal.ts';
import type { Tool } from '../effects/model/tool.ts';

/** Everything that a decision depends on. Rules see nothing else. */
export interface PolicyInput {
  readonly agent: Agent;
  readonly key: {
    readonly id: string;
    readonly kind: KeyKind;
    readonly profile: string | null;
    readonly user: string | null;
  };
  readonly tool: Tool;
  /** How a tool of an MCP server stands to its pin; `null`, or absent, for tools without one. */
  readonly pin?: 'pinned' | 'changed' | 'gone' | 'unseen' | null;
  readonly env: string;
  readonly workspace: string;
  readonly target: string;
  readonly params: JsonObject;
  /** Headers that are sent on with the call, by name in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly requestIp: string | null;
  /** The store's time, ms since the epoch. One `now` per decision. */
  readonly now: number;
  /** An entity of the company brain; `null` where there is none, or it is not known. Absent: there is no brain. */
  readonly entity?: (type: string, id: string) => Entity | null;
  /** `observe`: policy records what it would have done, and refuses nothing. */
  readonly mode: 'enforce' | 'observe';
}
