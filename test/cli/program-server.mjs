// An MCP server over standard input and output. The first argument says what it does beside listing its tools.
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { McpServer } from '@modelcontextprotocol/server';
import { StdioServerTransport } from '@modelcontextprotocol/server/stdio';

const [mode = 'good', file] = process.argv.slice(2);

if (mode === 'official') {
  const server = new McpServer({ name: 'official', version: '1' }, { instructions: 'Hi.' });
  server.registerTool('one', { description: 'The one.' }, async () => ({ content: [] }));
  await server.connect(new StdioServerTransport());
} else {
  if (mode === 'crash') {
    process.stderr.write('no database\n');
    process.exit(3);
  }
  let helper = null;
  if (mode === 'helped') {
    const CHILD = 'setInterval(() => {}, 1000); process.on("SIGTERM", () => {}); process.on("SIGHUP", () => {});';
    helper = spawn(process.execPath, ['-e', CHILD], { stdio: 'inherit' }).pid;
    process.on('SIGTERM', () => {});
  }
  if (file !== undefined) writeFileSync(file, JSON.stringify([process.pid, ...(helper === null ? [] : [helper])]));
  const say = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
  createInterface({ input: process.stdin }).on('line', (line) => {
    const { id, method, params } = JSON.parse(line);
    if (mode === 'stateless' && params?._meta?.['io.modelcontextprotocol/protocolVersion'] === undefined)
      say({ id, error: { code: -32022, message: 'Unsupported protocol version' } });
    else if (method === 'initialize')
      say({
        id,
        result: {
          protocolVersion: '2025-11-25',
          capabilities: { tools: {} },
          serverInfo: { name: 'pg', version: '1' },
        },
      });
    else if (method === 'server/discover')
      say({ id, result: { supportedVersions: ['2026-07-28'], capabilities: {}, serverInfo: { name: 'pg' } } });
    else if (method === 'tools/list') {
      const env = { name: 'env', description: Object.keys(process.env).toSorted().join(' ') };
      say({ id, result: params?.cursor === 'p2' ? { tools: [{ name: 'more' }] } : { tools: [env], nextCursor: 'p2' } });
    }
  });
}
