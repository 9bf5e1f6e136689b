/** The tools of the MCP server that is measured through, and the gateway before it. */
export const MCP_TOOLS = [
  {
    name: 'refund',
    description: 'Answers at once',
    inputSchema: {
      type: 'object',
      properties: { payment: { type: 'string' }, amount: { type: 'integer', minimum: 1 } },
      required: ['payment', 'amount'],
      additionalProperties: false,
    },
  },
  {
    name: 'look',
    description: 'Answers at once',
    inputSchema: { type: 'object', properties: { payment: { type: 'string' } }, required: ['payment'] },
    annotations: { readOnlyHint: true },
  },
  {
    name: 'stream',
    description: 'Sends an event at once, and the answer later',
    inputSchema: { type: 'object', properties: { payment: { type: 'string' } }, required: ['payment'] },
  },
] as const;

/** The MCP server, as the gateway's configuration names it. */
export function mcpUpstreamOf(url: string): string {
  return `  - { id: tools, timeout: 10s, connections: 128, mcp: { url: "${url}/mcp/tools", pins: tools.lock.json, trust_annotations: true } }\n`;
}

export const MCP_CONFIG = `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: ./data }
workspaces: [ { id: bench, agents: [ { id: bot, team: support } ] } ]
policies: { paths: [./policies] }
upstreams:
${mcpUpstreamOf('${BENCH_UPSTREAM}')}telemetry: { log_level: warn }
`;

export const MCP_POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: bench
owner: bench
rules:
  - { id: tools, effect: allow, match: { upstreams: [tools] } }
`;
