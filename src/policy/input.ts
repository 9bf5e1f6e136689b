import type { JsonObject } from '../json/value.ts';
import type { Agent, KeyKind } from '../effects/model/principal.ts';
import type { Tool } from '../effects/model/tool.ts';

/** What a decision rests on. Nothing else is visible to a rule. */
export interface PolicyInput {
  readonly agent: Agent;
  readonly key: {
    readonly id: string;
    readonly kind: KeyKind;
    readonly profile: string | null;
    readonly user: string | null;
  };
  readonly tool: Tool;
  readonly env: string;
  readonly workspace: string;
  readonly target: string;
  readonly params: JsonObject;
  /** Headers that go on with the call, by name in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly requestIp: string | null;
  /** The store's time, ms since the epoch: one `now` per decision. */
  readonly now: number;
  /** `observe`: policy says what it would have done, and refuses nothing. */
  readonly mode: 'enforce' | 'observe';
}
