import { type CallInput, type CallResult, type Fetch, Svc } from '@svc-gateway/client';
import { CommandFailure } from '../../../src/cli/ports.ts';
import { styled, table, type Terminal } from '../../../src/cli/terminal.ts';
import { isJsonObject, type Json, type JsonObject } from '../../../src/json/value.ts';
import { verifyReport } from '../../../src/receipts/verify-report.ts';

export interface TourStage {
  readonly url: string;
  readonly workspace: string;
  readonly agentKey: string;
  /** A finance lead: may approve large refunds. */
  readonly approver: Svc;
  /** Holds an account key: may pause and resolve. */
  readonly operator: Svc;
  /** The payments API will do the next write and lose its answer. */
  readonly loseNextAnswer: () => void;
}

interface Scene {
  readonly what: string;
  readonly decision: string;
  readonly code: string;
  readonly happened: string;
  readonly next: string;
}

/** Enough refunds to exceed the daily budget, spread over four payments. */
const MOST_REFUNDS = 20;

/** Plays an agent that makes mistakes, prints the decision of each call, and verifies a receipt offline. */
export async function playTour(stage: TourStage, terminal: Terminal): Promise<void> {
  const { scenes, narrate, play, played } = openScript(terminal);
  const agent = agentOf(stage);

  narrate('An agent refunds 12.00 EUR.');
  const first = played('refund 12 EUR', await agent.call(refund('pay_1', 1200, { idempotencyKey: 'tour-1' })));

  narrate('Its next refund is sent and done, but the answer is lost on the way back. The client asks again by itself.');
  const forgetful = agentOf(stage, loseFirstAnswer());
  played('the same, answer lost', await forgetful.call(refund('pay_2', 900)));

  narrate('Unsure, it repeats its very first call. Nothing runs again; it gets the first receipt.');
  played('refund 12 EUR again', await agent.call(refund('pay_1', 1200, { idempotencyKey: 'tour-1' })));

  narrate('It uses the same key for another amount.');
  played('same key, 99 EUR', await agent.call(refund('pay_1', 9900, { idempotencyKey: 'tour-1' })));

  narrate('It tries a currency that no rule allows.');
  played('refund in JPY', await agent.call(refund('pay_1', 1200, { currency: 'JPY' })));

  narrate('It refunds 900.00 EUR, which needs a finance lead. Maria looks at it and approves.');
  const large = played('refund 900 EUR', await agent.call(refund('pay_3', 90_000)));
  if (large.status === 'pending_approval') {
    await stage.approver.approvals.approve(large.approval.id, { comment: 'checked with the customer' });
    played('… approved by maria', await agent.wait(large, { timeoutMs: 10_000 }));
  }

  narrate('It believes that a payment is 20.00 EUR; the live payment says otherwise.');
  const stateCheck = { intent: 'refund', requiredFields: ['amount'], assumedState: { amount: 2000 }, conditions: {} };
  played(
    'refund on old facts',
    await agent.call(refund('pay_4', 500, { stateCheck: { ...stateCheck, onMismatch: 'replan' } })),
  );

  narrate('Somebody pauses all payments tools, and lets them go again.');
  const pause = await stage.operator.pauses.set({ scope: { tool: 'payments.**' }, reason: 'Looking into an incident' });
  played('refund while paused', await agent.call(refund('pay_5', 500)));
  await stage.operator.pauses.lift(pause.id);

  narrate(
    'The payments API does a refund and dies before it answers. Nobody knows; the gateway says so, and does not guess.',
  );
  stage.loseNextAnswer();
  const doubtful = refund('pay_5', 700, { idempotencyKey: 'tour-lost' });
  const lost = played('refund, the API dies', await agent.call(doubtful));
  played('the same again', await agent.call(doubtful));
  narrate('Ada looks at the payment, sees the refund, and settles it. Now it has a receipt.');
  const finding = { outcome: 'happened', comment: 'the refund is there' } as const;
  played('… resolved by ada', await stage.operator.resolve(lost.effectId, finding));

  narrate('Then it runs away, refunding 500.00 EUR over and over, until its budget for the day is used up.');
  for (let number = 1; number <= MOST_REFUNDS; number++) {
    const result = await agent.call(refund(`pay_${6 + (number % 4)}`, 50_000));
    if (result.status === 'committed') continue;
    played(`refund 500 EUR, no. ${number}`, result);
    break;
  }

  await playMcp(stage, narrate, play);

  narrate('What became of it:\n');
  terminal.out(
    table(
      ['call', 'decision', 'reason', 'happened', 'next'],
      scenes.map(({ what, decision, code, happened, next }) => [what, decision, code, happened, next]),
    ),
  );
  await checkReceipt(first, stage, terminal);
}

/** Prints what is said and done, and remembers the scenes. */
function openScript(terminal: Terminal) {
  const scenes: Scene[] = [];
  const play = (scene: Scene, words: string): void => {
    scenes.push(scene);
    terminal.out(`  ${styled(terminal, 'bold', scene.decision.padEnd(20))} ${styled(terminal, 'dim', words)}`);
  };
  const played = (what: string, result: CallResult): CallResult => {
    const { status: decision, reason, didItHappen: happened, next } = result;
    play({ what, decision, code: reason.code, happened, next }, reason.message);
    return result;
  };
  return { scenes, narrate: (words: string): void => terminal.out(`\n${words}`), play, played };
}

/** The same agent with an MCP client, at the gateway's door to an MCP server. */
async function playMcp(
  { url, agentKey }: TourStage,
  narrate: (words: string) => void,
  play: (scene: Scene, words: string) => void,
): Promise<void> {
  const client = await openTourClient(`${url}/mcp/desk`, agentKey);
  const call = async (what: string, tool: string): Promise<void> => {
    const { text, ...result } = await client.call(tool, { ticket_id: 'T-7' });
    play({ what, ...result }, text);
  };
  narrate(
    `The agent has an MCP client, too. At ${url}/mcp/desk it sees ${client.tools.join(', ')}. It closes a ticket.`,
  );
  await call('MCP: close_ticket', 'close_ticket');
  narrate(
    'Its model forgets, and closes the ticket again. MCP clients send no keys: the gateway derives one from the call.',
  );
  await call('MCP: the same again', 'close_ticket');
  narrate('It tries to delete the ticket. The server would; policy does not let it.');
  await call('MCP: delete_ticket', 'delete_ticket');
}

/** Verifies the first receipt from two texts, as `svc verify` does from two files. */
async function checkReceipt(result: CallResult, { url }: TourStage, terminal: Terminal): Promise<void> {
  if (result.status !== 'committed') throw new CommandFailure(`the first call was ${result.status}, not committed`);
  const keys = await fetch(`${url}/.well-known/jwks.json`);
  const report = verifyReport({ receipt: JSON.stringify(result.receipt), trust: await keys.text(), disclosure: null });
  terminal.out(`\nThe receipt of the first call, checked without the gateway:\n`);
  terminal.out(report.text.trimEnd());
}

function agentOf({ url, workspace, agentKey }: TourStage, fetch?: Fetch): Svc {
  return new Svc({ apiKey: agentKey, baseUrl: url, workspace, ...(fetch && { fetch }) });
}

function refund(
  paymentId: string,
  amount: number,
  more: { readonly currency?: string } & Partial<Pick<CallInput, 'idempotencyKey' | 'stateCheck'>> = {},
): CallInput {
  const { currency = 'EUR', ...rest } = more;
  return { tool: 'payments.refund', params: { payment_id: paymentId, amount, currency, reason: 'tour' }, ...rest };
}

/** A network that delivers the first request and loses its answer. */
function loseFirstAnswer(): Fetch {
  let lost = false;
  return async (url, init) => {
    const answer = await fetch(url, init);
    if (lost) return answer;
    lost = true;
    await answer.arrayBuffer();
    throw new TypeError('the connection was lost');
  };
}

/** Whether the action happened, and what to do: of those decisions that are no refusal. */
const MEANING: Readonly<Record<string, readonly [happened: string, next: string]>> = {
  committed: ['yes', 'proceed'],
  duplicate_blocked: ['yes', 'proceed'],
  pending_approval: ['no', 'wait'],
  in_progress: ['maybe', 'wait'],
  unknown_effect: ['maybe', 'resolve'],
  failed: ['no', 'retry'],
};

/**
 * As much of an MCP client as the tour needs, with messages as all clients send them.
 * Begins a session, as every client does, and lists the tools.
 * @param url the gateway's door to one MCP server
 * @throws CommandFailure
 */
async function openTourClient(url: string, key: string) {
  const headers: Record<string, string> = {
    'x-api-key': key,
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
  };
  let lastId = 0;

  const post = (message: JsonObject): Promise<Response> =>
    fetch(url, { method: 'POST', headers, body: JSON.stringify(message) });

  async function ask(method: string, params: JsonObject): Promise<JsonObject> {
    lastId += 1;
    const answer = await post({ jsonrpc: '2.0', id: lastId, method, params });
    const message: Json = JSON.parse(await answer.text());
    const session = answer.headers.get('mcp-session-id');
    if (session !== null) headers['mcp-session-id'] = session;
    if (!isJsonObject(message) || !isJsonObject(message['result']))
      throw new CommandFailure(`${method} is answered with ${answer.status}: ${JSON.stringify(message)}`);
    return message['result'];
  }

  const clientInfo = { name: 'svc tour', version: '1' };
  await ask('initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo });
  headers['mcp-protocol-version'] = '2025-11-25';
  await post({ jsonrpc: '2.0', method: 'notifications/initialized' });
  const { tools } = await ask('tools/list', {});

  return {
    /** Names of the tools that the client sees. */
    tools: Array.isArray(tools) ? tools.map((tool) => textIn(tool, 'name')) : [],
    /** @throws CommandFailure where the answer is no result with a decision */
    async call(
      name: string,
      args: JsonObject,
    ): Promise<{
      readonly decision: string;
      readonly code: string;
      readonly happened: string;
      readonly next: string;
      /** What its model reads. */
      readonly text: string;
    }> {
      const { content, _meta: meta } = await ask('tools/call', { name, arguments: args });
      const decision = isJsonObject(meta) ? meta['dev.svc-gateway/decision'] : undefined;
      if (!isJsonObject(decision)) throw new CommandFailure(`the call of ${name} has no decision`);
      const [first] = Array.isArray(content) ? content : [];
      const made = textIn(decision, 'decision');
      const [happened, next] = MEANING[made] ?? ['no', 'block'];
      return {
        decision: made,
        code: textIn(decision, 'code'),
        happened,
        next,
        text: textIn(first, 'text'),
      };
    },
  };
}

function textIn(value: Json | undefined, member: string): string {
  const text = isJsonObject(value) ? value[member] : undefined;
  return typeof text === 'string' ? text : '';
}
