import type { Entity } from '../effects/model/entity.ts';
import type { JudgeInput } from '../effects/ports.ts';

/** Everything that a decision depends on. Rules see nothing else. */
export interface PolicyInput extends JudgeInput {
  /** How a tool of an MCP server stands to its pin; `null`, or absent, for tools without one. */
  readonly pin?: 'pinned' | 'changed' | 'gone' | 'unseen' | null;
  readonly env: string;
  /** An entity of the company brain; `null` where there is none, or it is not known. Absent: there is no brain. */
  readonly entity?: (type: string, id: string) => Entity | null;
  /** `observe`: policy records what it would have done, and refuses nothing. */
  readonly mode: 'enforce' | 'observe';
}
