import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test } from 'vitest';
import { Allowance } from '../../src/cli/mcp/bounds.ts';
import { readText, Sender } from '../../src/cli/mcp/http.ts';

test('an answer is read up to its own bound, whatever all of them may hold, and gives back what it held', async () => {
  const server = createServer((_request, response) => response.end('x'.repeat(100))).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const sender = new Sender(new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
  const allowance = new Allowance(150);
  const read = async (most: number) => {
    const signal = AbortSignal.timeout(60_000);
    const { body } = await sender.send({ method: 'GET', headers: {}, body: null, signal });
    return readText(body, most, allowance);
  };
  try {
    expect(await read(99)).toEqual({ kind: 'too_long' });
    for (const _ of [1, 2]) expect(await read(100)).toEqual({ kind: 'text', text: 'x'.repeat(100) });
    expect(allowance.take(51)).toBe(true);
    expect(await read(100)).toEqual({ kind: 'too_long' });
  } finally {
    sender.close();
    server.close();
  }
});
