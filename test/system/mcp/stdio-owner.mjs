// A process that owns a child over standard input and output, from the build. Says the child's processes and waits.
const [file] = process.argv.slice(2);
const at = (name) => import(new URL(`../../../dist/src/upstreams/mcp/${name}.js`, import.meta.url));
const { Keeper } = await at('stdio/keeper');
const { StdioServer } = await at('through');
const keeper = new Keeper();
const limits = { lineBytes: 1_000_000, graceMs: 1_000 };
const command = { command: process.execPath, args: [file, 'stubborn'], env: {}, cwd: null };
const server = new StdioServer({ command, most: 1, idleMs: 60_000, limits }, keeper, () => performance.now());

function post(session, message) {
  return new Promise((resolve, reject) => {
    let text = '';
    let headers = {};
    server.dispatch(
      {
        method: 'POST',
        path: '/',
        headers: session === null ? {} : { 'mcp-session-id': session },
        body: Buffer.from(JSON.stringify(message)),
      },
      {
        onResponseStart: (_controller, _status, given) => {
          headers = given;
        },
        onResponseData: (_controller, chunk) => {
          text += chunk;
        },
        onResponseEnd: () => resolve({ text, headers }),
        onResponseError: (_controller, error) => reject(error),
      },
    );
  });
}

const { headers } = await post(null, { jsonrpc: '2.0', id: 0, method: 'initialize', params: {} });
const { text } = await post(headers['mcp-session-id'], {
  jsonrpc: '2.0',
  id: 1,
  method: 'tools/call',
  params: { name: 'helpers' },
});
process.stdout.write(`${JSON.stringify({ pids: JSON.parse(text).result.said, keeper: keeper.pid })}\n`);
// Until the input ends.
for await (const _chunk of process.stdin);
await server.close();
keeper.close();
