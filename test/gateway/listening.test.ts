import { once } from 'node:events';
import { createServer } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createListeningServer } from '../../src/api/server.ts';
import { CommandFailure } from '../../src/cli/ports.ts';
import { listenForCalls } from '../../src/gateway/listening.ts';
import { createLogger } from '../../src/telemetry/logger.ts';

let gateway: ReturnType<typeof createListeningServer>;
beforeEach(() => {
  gateway = createListeningServer({
    logger: createLogger({ level: 'fatal', sink: { write: () => undefined } }),
    settings: () => ({
      publicUrl: 'http://127.0.0.1',
      allowedHosts: [],
      queryKey: 'refuse',
      jsonLimits: { depth: 64, values: 1_000 },
    }),
    bodyLimit: 1_000,
    connections: 10,
  });
});
afterEach(() => gateway.app.close());

type Server = Parameters<typeof listenForCalls>[1]['server'];

/** @param listener the port of a listener of routes */
function listen(change: Partial<Server>, port: number | null, listener: number | null = null) {
  const unset = { adminPort: null, publicUrl: null, allowedHosts: [], tls: null };
  const server = { host: '127.0.0.1', port: 0, ...unset, ...change };
  const one = { at: 'hooks:1', host: '127.0.0.1', tls: null };
  return listenForCalls(gateway, { server, listeners: listener === null ? [] : [{ ...one, port: listener }] }, port);
}

async function withTaken(use: (port: number) => Promise<unknown>): Promise<void> {
  const holder = createServer();
  await once(holder.listen(0, '127.0.0.1'), 'listening');
  const address = holder.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  await use(address.port);
  holder.close();
}

test('a port that is taken is said with what to do, also that of a listener of routes', async () => {
  await withTaken(async (port) => {
    const taken = new CommandFailure(
      `Port ${port} on 127.0.0.1 is taken. Stop what uses it, or start with --port N (0 lets the system choose).`,
    );
    await expect(listen({ port: 0 }, null, port)).rejects.toThrow(taken);
    await expect(listen({ port: 0 }, port)).rejects.toThrow(taken);
  });
});

test('an address that the machine does not have is said in words', async () => {
  const refused = new CommandFailure('The gateway may not listen on 192.0.2.1:7070.');
  await expect(listen({ host: '192.0.2.1' }, 7_070)).rejects.toThrow(refused);
});

test('the port of the command goes before the configured one, and with 0 the system chooses', async () => {
  await withTaken(async (port) => {
    const { url, listeners } = await listen({ port }, 0, 0);
    expect(url).toMatch(/^http:\/\/127\.0\.0\.1:[1-9]\d*$/);
    expect(listeners).toEqual({ 'hooks:1': expect.stringMatching(/127\.0\.0\.1:[1-9]\d*$/) });
    expect(listeners['hooks:1']).not.toBe(url);
  });
});

test('localhost is one address: a server of the other one would have no limits', async () => {
  expect((await listen({ host: 'localhost' }, null)).url).toMatch(/^http:\/\/127\.0\.0\.1:/);
  expect(gateway.app.addresses()).toHaveLength(1);
});

test('where it is TLS that is listened for, the address says so', async () => {
  const { url } = await listen({ tls: { cert: '', key: '' } }, null);
  expect(url).toMatch(/^https:\/\/127\.0\.0\.1:/);
});
