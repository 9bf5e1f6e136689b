import type { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { expect } from 'vitest';

/**
 * One agent opens all sessions that another has left. The other still gets one: the idlest session of the agent with the
 * most makes room, and no other.
 * @param most sessions that the server may have; none is open
 */
export async function expectFairShares(
  connect: (who: 'bot' | 'cat') => Promise<Client>,
  most: number,
  call: (client: Client, message: string) => Promise<unknown>,
): Promise<void> {
  const committed = { _meta: { 'dev.svc-gateway/decision': { decision: 'committed' } } };
  let calls = 0;
  const use = (client: Client): Promise<unknown> => call(client, `call ${(calls += 1)}`);
  const first = await connect('cat');
  expect(await use(first)).toMatchObject(committed);
  const many: Client[] = [];
  for (let at = 1; at < most; at += 1) many.push(await connect('bot'));
  const [used, idlest, ...others] = many;
  if (used === undefined || idlest === undefined) throw new Error('there are at least three sessions');
  expect(await use(used)).toMatchObject(committed);

  const second = await connect('cat');
  expect(await use(second)).toMatchObject(committed);
  // The session that nobody used for longest is the other's own; it is of the agent with fewer.
  expect(await use(first)).toMatchObject(committed);
  await expect(idlest.ping()).rejects.toThrow(/Session not found/);
  for (const client of [used, ...others]) await client.ping();
  // The agent with the most takes none of the others'.
  await expect(connect('bot')).rejects.toThrow(/sessions are open/);
  expect(await use(first)).toMatchObject(committed);

  for (const client of [first, second, ...many]) {
    if (client !== idlest && client.transport instanceof StreamableHTTPClientTransport)
      await client.transport.terminateSession();
    await client.close();
  }
}
