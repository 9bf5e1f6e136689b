import { PipeServer } from '../pipe/pipe-server.ts';
import { type ChildLimits, StdioChild, type StdioCommand } from './child.ts';
import type { Keeper } from './keeper.ts';

export interface StdioServerSettings {
  readonly command: StdioCommand;
  /** Children that may run at once: one for each session. */
  readonly most: number;
  /** How long a session may be unused, ms. */
  readonly idleMs: number;
  readonly limits: ChildLimits;
}

const MOST_WAIT_MS = 30_000;

/**
 * An MCP server that runs as children of the gateway. The next child is started later each time while they do not come
 * up.
 */
export class StdioServer extends PipeServer {
  /** @param now ms of a clock that never goes back */
  constructor({ command, limits, most, idleMs }: StdioServerSettings, keeper: Keeper, now: () => number) {
    const open = (events: ConstructorParameters<typeof StdioChild>[3]): StdioChild =>
      new StdioChild(command, keeper, limits, events);
    super({ open, most, idleMs, mostWaitMs: MOST_WAIT_MS }, now);
  }
}
