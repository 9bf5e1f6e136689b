import type { StdioCommand } from './stdio/child.ts';
import type { ServerWords } from '../../pins/compare.ts';
import type { UpstreamSettings } from '../http/http-upstream.ts';

export interface McpUpstreamSettings extends Omit<UpstreamSettings, 'connections'> {
  readonly mcp: {
    readonly path: string;
    readonly allow: readonly string[];
    /** What the server says of itself, as it was approved; absent where nobody knows. */
    readonly words?: ServerWords;
    /** The program that is the server; absent, or `null`, where it is at an address. */
    readonly child?: (StdioCommand & { readonly sessions: number; readonly idleMs: number }) | null;
    /** Where it speaks the transport of 2024-11-05, a stream for each session; absent, or `null`, where it does not. */
    readonly sse?: { readonly sessions: number; readonly idleMs: number } | null;
  };
}
