import type { HeaderSettings } from '../http/header-rules.ts';
import type { UpstreamTls } from '../http/upstream-tls.ts';

/** An MCP server as the configuration declares it. */
export interface McpUpstreamSettings {
  readonly id: string;
  /** Its origin. */
  readonly url: string;
  readonly timeoutMs: number;
  readonly network: 'any' | 'public';
  readonly credentials: { readonly header: string; readonly value: string } | null;
  readonly headers?: HeaderSettings;
  readonly tls?: UpstreamTls | null;
  readonly mcp: { readonly path: string; readonly allow: readonly string[] };
}
