import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { toNodeHandler } from '@modelcontextprotocol/node';
import {
  acceptedContent,
  CLIENT_CAPABILITIES_META_KEY,
  completable,
  createMcpHandler,
  createRequestStateCodec,
  inputRequired,
  McpServer,
  ResourceTemplate,
  type ServerContext,
} from '@modelcontextprotocol/server';
import { z } from 'zod';

/*
 * A server with what the official conformance suite asks for in the stateless revision, on the official SDK 2.x. As with
 * the older one, the question is only whether the same passes through the gateway.
 */

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
const SILENCE = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=';

type Asked = ServerContext['mcpReq'];
type Change = (kind: 'tools' | 'prompts') => void;

/** Seals what a client carries for the server between two rounds, so that nobody changes it on the way. */
const state = createRequestStateCodec<number>({ key: 'a key that has more than thirty-two bytes' });

const text = (said: string) => ({ content: [{ type: 'text' as const, text: said }] });
const image = { type: 'image' as const, data: PIXEL, mimeType: 'image/png' };
const resource = (uri: string) => ({
  type: 'resource' as const,
  resource: { uri, mimeType: 'text/plain', text: 'This is an embedded resource content.' },
});
const user = (content: ReturnType<typeof text>['content'][0] | typeof image | ReturnType<typeof resource>) => ({
  messages: [{ role: 'user' as const, content }],
});

/** A question with one answer. */
function question(message: string, name: string, type: 'string' | 'boolean' = 'string') {
  const property = type === 'string' ? { type } : { type };
  return inputRequired.elicit({
    message,
    requestedSchema: { type: 'object', properties: { [name]: property }, required: [name] },
  });
}

function sample(said: string) {
  const messages = [{ role: 'user' as const, content: { type: 'text' as const, text: said } }];
  return inputRequired.createMessage({ messages, maxTokens: 50 });
}

function makeServer(change: Change): McpServer {
  const listChanged = true;
  const server = new McpServer(
    { name: 'everything', version: '2.0.0' },
    {
      capabilities: { completions: {}, logging: {}, tools: { listChanged }, prompts: { listChanged }, resources: {} },
      requestState: { verify: state.verify },
    },
  );
  registerTools(server, change);
  registerQuestions(server);
  registerPrompts(server);
  registerResources(server);
  return server;
}

function registerTools(server: McpServer, change: Change): void {
  const inputSchema = z.object({});
  server.registerTool('test_simple_text', { description: 'For the suite', inputSchema }, () =>
    text('This is a simple text response for testing.'),
  );
  server.registerTool('test_image_content', { description: 'For the suite', inputSchema }, () => ({
    content: [image],
  }));
  server.registerTool('test_audio_content', { description: 'For the suite', inputSchema }, () => ({
    content: [{ type: 'audio', data: SILENCE, mimeType: 'audio/wav' }],
  }));
  server.registerTool('test_embedded_resource', { description: 'For the suite', inputSchema }, () => ({
    content: [resource('test://embedded')],
  }));
  server.registerTool('test_multiple_content_types', { description: 'For the suite', inputSchema }, () => ({
    content: [{ type: 'text', text: 'Multiple content types test:' }, image, resource('test://mixed')],
  }));
  server.registerTool('test_error_handling', { description: 'For the suite', inputSchema }, () => {
    throw new Error('This tool intentionally returns an error for testing');
  });
  server.registerTool(
    'test_tool_with_progress',
    { description: 'For the suite', inputSchema },
    async (_given, { mcpReq }) => {
      const progressToken = mcpReq._meta?.progressToken ?? 0;
      for (const progress of [0, 50, 100])
        await mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total: 100 } });
      return text('Done');
    },
  );
  server.registerTool(
    'test_logging_tool',
    { description: 'For the suite', inputSchema },
    async (_given, { mcpReq }) => {
      await mcpReq.log('info', 'Only for those who asked for it');
      return text('Logged');
    },
  );
  // The SDK refuses it where the client cannot be sampled.
  server.registerTool('test_missing_capability', { description: 'For the suite', inputSchema }, () =>
    inputRequired({ inputRequests: { said: sample('Say something') } }),
  );
  for (const kind of ['tool', 'prompt'] as const)
    server.registerTool(`test_trigger_${kind}_change`, { description: 'For the suite', inputSchema }, () => {
      change(`${kind}s`);
      return text('Changed');
    });
  const region = z.string().meta({ 'x-mcp-header': 'Region' });
  server.registerTool('routed', { description: 'For the suite', inputSchema: z.object({ region }) }, (given) =>
    text(`in ${given.region}`),
  );
}

function capabilitiesOf({ envelope = {} }: Asked): Readonly<Record<string, unknown>> {
  return { ...Reflect.get(envelope, CLIENT_CAPABILITIES_META_KEY) };
}

/** Tools that need more than one round. */
function registerQuestions(server: McpServer): void {
  type Answer = ReturnType<typeof text> | ReturnType<typeof inputRequired>;
  const asking = (name: string, answer: (asked: Asked) => Answer | Promise<Answer>): void => {
    const inputSchema = z.object({});
    server.registerTool(`test_${name}`, { description: 'For the suite', inputSchema }, async (_given, { mcpReq }) =>
      answer(mcpReq),
    );
  };
  const name = { user_name: question('What is your name?', 'name') };
  for (const tool of ['input_required_result_elicitation', 'streaming_elicitation'])
    asking(tool, ({ inputResponses }) => {
      const given = acceptedContent(inputResponses, 'user_name')?.['name'];
      return typeof given === 'string' ? text(`Hello, ${given}!`) : inputRequired({ inputRequests: name });
    });
  const capital = { capital_question: sample('What is the capital of France?') };
  asking('input_required_result_sampling', ({ inputResponses }) =>
    inputResponses === undefined
      ? inputRequired({ inputRequests: capital })
      : text(JSON.stringify(inputResponses['capital_question'])),
  );
  const roots = { client_roots: inputRequired.listRoots() };
  asking('input_required_result_list_roots', ({ inputResponses }) =>
    inputResponses === undefined
      ? inputRequired({ inputRequests: roots })
      : text(JSON.stringify(inputResponses['client_roots'])),
  );
  const stateful = async (asked: Asked, steps: readonly Parameters<typeof inputRequired>[0]['inputRequests'][]) => {
    const step = asked.requestState<number>() ?? 0;
    const inputRequests = steps[step];
    return inputRequests === undefined
      ? text(`state-ok ${JSON.stringify(asked.inputResponses)}`)
      : inputRequired({ inputRequests, requestState: await state.mint(step + 1) });
  };
  const confirm = { confirm: question('Please confirm', 'ok', 'boolean') };
  asking('input_required_result_request_state', (asked) => stateful(asked, [confirm]));
  asking('input_required_result_tampered_state', (asked) => stateful(asked, [confirm]));
  asking('input_required_result_multiple_inputs', (asked) =>
    stateful(asked, [{ ...name, greeting: sample('Generate a greeting'), ...roots }]),
  );
  asking('input_required_result_multi_round', (asked) =>
    stateful(asked, [
      { step1: question('Step 1: What is your name?', 'name') },
      { step2: question('Step 2: What is your favorite color?', 'color') },
    ]),
  );
  asking('input_required_result_capabilities', (asked) => {
    const { elicitation, sampling } = capabilitiesOf(asked);
    return inputRequired({
      inputRequests: {
        ...(elicitation === undefined ? {} : name),
        ...(sampling === undefined ? {} : { greeting: sample('Generate a greeting') }),
      },
      requestState: 'asked',
    });
  });
}

function registerPrompts(server: McpServer): void {
  const argument = completable(z.string(), () => ['paris', 'park', 'party']);
  server.registerPrompt('test_simple_prompt', { description: 'For the suite' }, () =>
    user(text('This is a simple prompt for testing.').content[0]!),
  );
  server.registerPrompt(
    'test_prompt_with_arguments',
    { description: 'For the suite', argsSchema: z.object({ arg1: argument, arg2: z.string() }) },
    ({ arg1, arg2 }) => user({ type: 'text', text: `Prompt with arguments: arg1='${arg1}', arg2='${arg2}'` }),
  );
  server.registerPrompt(
    'test_prompt_with_embedded_resource',
    { description: 'For the suite', argsSchema: z.object({ resourceUri: z.string() }) },
    ({ resourceUri }) => user(resource(resourceUri)),
  );
  server.registerPrompt('test_prompt_with_image', { description: 'For the suite' }, () => user(image));
  server.registerPrompt('test_input_required_result_prompt', { description: 'For the suite' }, ({ mcpReq }) =>
    mcpReq.inputResponses === undefined
      ? inputRequired({
          inputRequests: { user_context: question('What context should the prompt use?', 'context') },
        })
      : user({ type: 'text', text: JSON.stringify(mcpReq.inputResponses) }),
  );
}

function registerResources(server: McpServer): void {
  server.registerResource('text', 'test://static-text', { mimeType: 'text/plain' }, ({ href }) => ({
    contents: [{ uri: href, mimeType: 'text/plain', text: 'This is the content of the static text resource.' }],
  }));
  server.registerResource('binary', 'test://static-binary', { mimeType: 'image/png' }, ({ href }) => ({
    contents: [{ uri: href, mimeType: 'image/png', blob: PIXEL }],
  }));
  server.registerResource(
    'template',
    new ResourceTemplate('test://template/{id}/data', { list: undefined }),
    { mimeType: 'application/json' },
    ({ href }, { id }) => ({ contents: [{ uri: href, mimeType: 'application/json', text: JSON.stringify({ id }) }] }),
  );
}

export async function startStatelessEverythingServer(): Promise<{ readonly url: string; close(): Promise<void> }> {
  const handler = createMcpHandler(() => makeServer((kind) => handler.notify[`${kind}Changed`]()), {
    legacy: 'reject',
  });
  const handle = toNodeHandler(handler);
  const http = createServer((request, response) => {
    // Names of the machine itself only: another one in `Host` or `Origin` is a page that was led here.
    const origin = request.headers.origin ?? `http://${request.headers.host}`;
    if (URL.canParse(origin) && ['127.0.0.1', 'localhost'].includes(new URL(origin).hostname))
      void handle(Object.assign(request, { method: request.method ?? '', url: request.url ?? '' }), response);
    else response.writeHead(403).end();
  });
  http.listen(0, '127.0.0.1');
  await once(http, 'listening');
  const { port } = http.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/mcp`,
    close: async () => {
      await handler.close();
      http.closeAllConnections();
      http.close();
    },
  };
}
