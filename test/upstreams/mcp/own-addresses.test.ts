import { expect, test } from 'vitest';
import { guarded } from '../../../src/upstreams/mcp/own-addresses.ts';

const isOwn = (address: string): boolean => address.includes('gateway.example');
const asked = (params: object): string =>
  JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'elicitation/create', params });
const said = (text: string) => guarded(Buffer.from(text), isOwn);

test('an address of the gateway goes, and with it the words around it; others stay byte for byte', async () => {
  const harmless = asked({ mode: 'url', url: 'https://crm.example/', message: 'Sign in.' });
  expect((await said(harmless))?.bytes.toString()).toBe(harmless);
  for (const url of ['https://gateway.example/approve', 5, ['https://gateway.example/']])
    expect((await said(asked({ mode: 'url', url, message: 'Approve it quickly.' })))?.message).toMatchObject({
      params: { url: 'https://refused.invalid/', message: expect.stringContaining('Decline') },
    });
});

test('what reads in two ways does not go on where a client could take it for a wish to visit something, or where it is long', async () => {
  const twice = (text: string): string => text.replace('{', '{"id":7,');
  expect(await said(twice(asked({ mode: 'url', url: 'https://crm.example/' })))).toBeNull();
  const other = twice(JSON.stringify({ jsonrpc: '2.0', id: 1, result: { text: 'x' } }));
  expect((await said(other))?.bytes.toString()).toBe(other);
  expect(await said(other.replace('x', 'x'.repeat(40_000)))).toBeNull();
});

test('what asks for more visits at once than are looked at does not go on', async () => {
  const asks = (count: number): string => {
    const elicitations = Array.from({ length: count }, () => ({ mode: 'url', url: 'https://crm.example/' }));
    return JSON.stringify({ jsonrpc: '2.0', id: 1, error: { code: -32042, message: 'm', data: { elicitations } } });
  };
  expect((await said(asks(8)))?.bytes.toString()).toBe(asks(8));
  expect(await said(asks(9))).toBeNull();
});
