import { isJsonObject, type Json, type JsonObject } from '../../../src/json/value.ts';

const TICKET = { ticket_id: { type: 'string', minLength: 1, maxLength: 64 } };
const inputSchema = { type: 'object', properties: TICKET, required: ['ticket_id'], additionalProperties: false };

/** As MCP lists them. `config/desk.lock.json` pins them. */
const TOOLS: readonly JsonObject[] = [
  ['find_ticket', 'Tells how a ticket stands.', { readOnlyHint: true }] as const,
  ['close_ticket', 'Closes a ticket and mails its customer.', { destructiveHint: false }] as const,
  ['delete_ticket', 'Deletes a ticket for ever.', { destructiveHint: true }] as const,
].map(([name, description, annotations]) => ({ name, description, inputSchema, annotations }));

/** A support desk that speaks MCP over streamable HTTP, in the revisions with sessions, and keeps none. */
export function createDesk(): (message: Json | undefined) => JsonObject | null {
  const closed = new Map<string, number>();
  const call = (name: Json | undefined, args: JsonObject): JsonObject => {
    const { ticket_id: ticket } = args;
    if (typeof ticket !== 'string') return textResult('ticket_id is missing', true);
    switch (textOf(name)) {
      case 'find_ticket':
        return textResult(
          `${ticket} is ${closed.has(ticket) ? 'closed' : 'open'}; mails sent: ${closed.get(ticket) ?? 0}`,
        );
      case 'close_ticket':
        closed.set(ticket, (closed.get(ticket) ?? 0) + 1);
        return textResult(`${ticket} is closed, and its customer has a mail`);
      case 'delete_ticket':
        closed.delete(ticket);
        return textResult(`${ticket} is gone`);
      default:
        return textResult('There is no such tool', true);
    }
  };
  return (message) => {
    if (!isJsonObject(message)) return failed(null, -32_600, 'Send one JSON-RPC message');
    const { id, method } = message;
    if (id === undefined) return null;
    const params = isJsonObject(message['params']) ? message['params'] : {};
    const result = (value: JsonObject): JsonObject => ({ jsonrpc: '2.0', id, result: value });
    switch (textOf(method)) {
      case 'initialize':
        return result({
          protocolVersion: '2025-11-25',
          capabilities: { tools: {} },
          serverInfo: { name: 'desk', version: '1.0.0' },
        });
      case 'ping':
        return result({});
      case 'tools/list':
        return result({ tools: TOOLS });
      case 'tools/call':
        return result(call(params['name'], isJsonObject(params['arguments']) ? params['arguments'] : {}));
      default:
        return failed(id, -32_601, 'Method not found');
    }
  };
}

/** A name that is no text is no name that anything here has. */
function textOf(value: Json | undefined): string {
  return typeof value === 'string' ? value : '';
}

function textResult(text: string, isError = false): JsonObject {
  return { content: [{ type: 'text', text }], ...(isError && { isError }) };
}

function failed(id: Json, code: number, message: string): JsonObject {
  return { jsonrpc: '2.0', id, error: { code, message } };
}
