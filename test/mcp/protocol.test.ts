import type { IncomingHttpHeaders } from 'node:http';
import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/json/value.ts';
import type { RpcMessage, RpcRequest } from '../../src/mcp/jsonrpc.ts';
import { acquainted, cacheable, inForm, noMethod } from '../../src/mcp/own-answers.ts';
import { META } from '../../src/mcp-protocol/revisions.ts';
import { type Era, eraOf, type MirrorHeaders } from '../../src/mcp/protocol.ts';

const ENVELOPE = { [META.protocolVersion]: '2026-07-28', [META.clientCapabilities]: {} };

const headersOfNode: IncomingHttpHeaders = { 'mcp-method': 'tools/list' };

const request = (method: string, params: JsonObject = {}): RpcMessage => ({ kind: 'request', id: 5, method, params });
const note = (method: string, params: JsonObject = {}): RpcMessage => ({ kind: 'notification', method, params });
const list = (meta: JsonObject | undefined, headers: MirrorHeaders = {}) =>
  eraOf(request('tools/list', meta === undefined ? {} : { _meta: meta }), headers);
const call = (headers: MirrorHeaders, name = 'a') =>
  eraOf(request('tools/call', { name, arguments: {}, _meta: ENVELOPE }), {
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': 'tools/call',
    ...headers,
  });

const MODERN: MirrorHeaders = { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/list' };

describe('the era of a message', () => {
  it('is found with the headers as Node gives them', () => {
    expect(list(undefined, headersOfNode)).toEqual({ kind: 'handshake', version: null });
  });

  it('is that of sessions for plain clients, with and without a version', () => {
    expect(list(undefined)).toEqual({ kind: 'handshake', version: null });
    expect(list({})).toEqual({ kind: 'handshake', version: null });
    expect(list({ progressToken: 1 })).toEqual({ kind: 'handshake', version: null });
    expect(list(undefined, { 'mcp-protocol-version': '2025-06-18' })).toEqual({
      kind: 'handshake',
      version: '2025-06-18',
    });
    expect(eraOf(request('initialize', { protocolVersion: '2025-11-25' }), {})).toEqual({
      kind: 'handshake',
      version: null,
    });
    expect(eraOf(note('notifications/initialized'), {})).toEqual({ kind: 'handshake', version: null });
  });

  it('is the stateless one where the body says so', () => {
    const info = { name: 'c', version: '1' };
    expect(list({ ...ENVELOPE, [META.clientInfo]: info }, MODERN)).toEqual({
      kind: 'stateless',
      version: '2026-07-28',
      clientCapabilities: {},
      clientInfo: info,
    });
    expect(list(ENVELOPE, MODERN)).toMatchObject({ kind: 'stateless', clientInfo: null });
    // A request with a whole envelope is of the new era, whatever its method.
    expect(eraOf(request('initialize', { _meta: ENVELOPE }), { ...MODERN, 'mcp-method': 'initialize' })).toMatchObject({
      kind: 'stateless',
    });
  });

  it('of a notification needs no envelope', () => {
    const headers = { 'mcp-protocol-version': '2026-07-28' };
    expect(eraOf(note('notifications/cancelled'), headers)).toMatchObject({ kind: 'stateless' });
    expect(eraOf(note('notifications/cancelled', { _meta: ENVELOPE }), {})).toMatchObject({ kind: 'stateless' });
    const told = { ...ENVELOPE, [META.clientCapabilities]: { roots: {} } };
    expect(eraOf(note('notifications/cancelled', { _meta: told }), {})).toMatchObject({
      clientCapabilities: { roots: {} },
    });
  });

  it('of an answer is one with sessions', () => {
    const answer: RpcMessage = { kind: 'response', id: 1, answer: { kind: 'result', result: {} } };
    expect(eraOf(answer, {})).toEqual({ kind: 'handshake', version: null });
    expect(eraOf(answer, { 'mcp-protocol-version': '2025-06-18' })).toEqual({
      kind: 'handshake',
      version: '2025-06-18',
    });
    expect(eraOf(answer, { 'mcp-protocol-version': '2026-07-28' })).toMatchObject({ error: { code: -32_600 } });
    expect(eraOf(answer, { 'mcp-protocol-version': 'v'.repeat(200) })).toMatchObject({
      error: { message: expect.stringMatching(/^In v{40} no answers/) as unknown },
    });
  });
});

describe('an envelope with a fault', () => {
  it.each<[string, JsonObject | undefined, MirrorHeaders, number]>([
    ['none, under a header of the new era', undefined, MODERN, -32_602],
    ['without version', { [META.clientCapabilities]: {} }, MODERN, -32_602],
    ['without capabilities', { [META.protocolVersion]: '2026-07-28' }, MODERN, -32_602],
    ['capabilities that are a list', { ...ENVELOPE, [META.clientCapabilities]: [] }, MODERN, -32_602],
    ['a client that is a text', { ...ENVELOPE, [META.clientInfo]: 'me' }, MODERN, -32_602],
    ['a version that is a number', { ...ENVELOPE, [META.protocolVersion]: 2026 }, MODERN, -32_602],
    [
      'a version of tomorrow',
      { ...ENVELOPE, [META.protocolVersion]: 'v999' },
      { 'mcp-protocol-version': 'v999' },
      -32_022,
    ],
    ['a version of before', { ...ENVELOPE, [META.protocolVersion]: '2025-11-25' }, {}, -32_022],
    ['a version that is not the header’s', { ...ENVELOPE, [META.protocolVersion]: 'v999' }, MODERN, -32_020],
    ['no header with the version', ENVELOPE, { 'mcp-method': 'tools/list' }, -32_020],
    ['no header with the method', ENVELOPE, { 'mcp-protocol-version': '2026-07-28' }, -32_020],
    ['another method in the header', ENVELOPE, { ...MODERN, 'mcp-method': 'tools/call' }, -32_020],
    ['two versions in the header', ENVELOPE, { ...MODERN, 'mcp-protocol-version': '2026-07-28, 2026-07-28' }, -32_020],
    ['a header of an unknown version', undefined, { 'mcp-protocol-version': '2024-01-01' }, -32_022],
    ['another method in the header, in the era of before', undefined, { 'mcp-method': 'tools/call' }, -32_020],
  ])('%s', (_what, meta, headers, code) => {
    expect(list(meta, headers)).toMatchObject({ kind: 'refused', status: 400, id: 5, error: { code } });
  });

  it('that is no object', () => {
    expect(eraOf(request('tools/list', { _meta: 'x' }), {})).toMatchObject({ error: { code: -32_602 } });
  });

  it('says which versions there are, and which was asked for', () => {
    expect(list({ ...ENVELOPE, [META.protocolVersion]: 'v999' })).toMatchObject({
      error: { data: { supported: ['2026-07-28'], requested: 'v999' } },
    });
    // Who says it in a header alone may be of either era.
    const versions = ['2026-07-28', '2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'];
    expect(list(undefined, { 'mcp-protocol-version': '2024-01-01' })).toMatchObject({
      error: { data: { supported: versions, requested: '2024-01-01' } },
    });
    const long = 'v'.repeat(1_000);
    expect(list(undefined, { 'mcp-protocol-version': long })).toMatchObject({
      error: { message: expect.stringMatching(/ v{100}\.$/), data: { requested: 'v'.repeat(100) } },
    });
  });

  it('says what is missing in it', () => {
    const missing = (meta: JsonObject | undefined) => {
      const era = list(meta, MODERN);
      return era.kind === 'refused' ? era.error.data : era;
    };
    expect(missing(undefined)).toEqual({ missing: ['_meta'] });
    expect(missing({})).toEqual({ missing: [META.protocolVersion, META.clientCapabilities] });
    expect(missing({ [META.clientCapabilities]: {} })).toEqual({ missing: [META.protocolVersion] });
    expect(missing({ [META.protocolVersion]: '2026-07-28' })).toEqual({ missing: [META.clientCapabilities] });
  });

  it('begins no session under a header of the new era', () => {
    const headers = { 'mcp-protocol-version': '2026-07-28' };
    expect(eraOf(request('initialize', { protocolVersion: '2025-11-25' }), headers)).toMatchObject({
      error: { code: -32_020 },
    });
  });
});

describe('Mcp-Name', () => {
  it('repeats the name, the URI or the task', () => {
    expect(call({ 'mcp-name': 'a' })).toMatchObject({ kind: 'stateless' });
    expect(call({ 'mcp-name': '=?base64?w6Q=?=' }, 'ä')).toMatchObject({ kind: 'stateless' });
    expect(call({})).toMatchObject({ error: { code: -32_020 } });
    expect(call({ 'mcp-name': 'b' })).toMatchObject({ error: { code: -32_020 } });
    expect(call({ 'mcp-name': 'A' })).toMatchObject({ error: { code: -32_020 } });
    const read = request('resources/read', { uri: 'file:///a' });
    expect(eraOf(read, { 'mcp-name': 'file:///b' })).toMatchObject({ error: { code: -32_020 } });
    expect(eraOf(read, { 'mcp-name': 'file:///a' })).toMatchObject({ kind: 'handshake' });
  });

  it('that says something else is named in the refusal, and neither text at any length', () => {
    expect(call({ 'mcp-name': 'b'.repeat(200) }, 'a'.repeat(200))).toMatchObject({
      error: {
        message: `The header Mcp-Name says ${'b'.repeat(100)}, and the body names ${'a'.repeat(100)}.`,
        data: { header: 'Mcp-Name' },
      },
    });
  });

  it.each(['=?base64?w6Q?=', '=?base64?w6R=?=', '=?base64?!?='])('%s is no Base64 in its one form', (value) => {
    expect(call({ 'mcp-name': value }, 'ä')).toMatchObject({ error: { code: -32_020 } });
  });
});

describe('how the gateway makes itself acquainted', () => {
  const own = { serverInfo: { name: 'g' }, instructions: 'i' };
  const sessions: Era = { kind: 'handshake', version: null };
  const stateless: Era = { kind: 'stateless', version: '2026-07-28', clientCapabilities: {}, clientInfo: null };
  const asks = (method: string, params: JsonObject = {}): RpcRequest => ({ kind: 'request', id: 1, method, params });

  it('is in the version that a client asks for, in the newest with sessions where it does not speak that', () => {
    for (const version of ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'])
      expect(acquainted(asks('initialize', { protocolVersion: version }), sessions, own)).toMatchObject({
        protocolVersion: version,
      });
    for (const other of ['2026-07-28', '1999-01-01'])
      expect(acquainted(asks('initialize', { protocolVersion: other }), sessions, own)).toMatchObject({
        protocolVersion: '2025-11-25',
      });
  });

  it('says who answers, what it can do, and what models are to read', () => {
    const tools = { tools: { listChanged: false } };
    expect(acquainted(asks('initialize', { protocolVersion: '2025-11-25' }), sessions, own)).toEqual({
      protocolVersion: '2025-11-25',
      capabilities: tools,
      ...own,
    });
    expect(acquainted(asks('server/discover'), stateless, { ...own, offers: { extensions: {} } })).toMatchObject({
      capabilities: { ...tools, extensions: {} },
      instructions: 'i',
    });
  });

  it('is by initialize and ping in the revisions with sessions, and by server/discover in the one without', () => {
    expect(acquainted(asks('ping'), sessions, own)).toEqual({});
    expect(acquainted(asks('ping'), stateless, own)).toBeNull();
    expect(acquainted(asks('initialize', { protocolVersion: '2025-11-25' }), stateless, own)).toBeNull();
    expect(acquainted(asks('server/discover'), sessions, own)).toBeNull();
  });

  it('is kept by no cache: what a key sees is its own, and changes with its rights', () => {
    expect(acquainted(asks('server/discover'), stateless, own)).toMatchObject({ ttlMs: 0, cacheScope: 'private' });
    expect(cacheable({ tools: [] }, stateless)).toEqual({ tools: [], ttlMs: 0, cacheScope: 'private' });
    expect(cacheable({ tools: [] }, sessions)).toEqual({ tools: [] });
  });

  it('gives each era its own form: who answered and that it is all in the one, and neither in the other', () => {
    const { serverInfo } = own;
    expect(inForm({ tools: [], _meta: { a: 1 } }, stateless, own)).toEqual({
      resultType: 'complete',
      tools: [],
      _meta: { a: 1, [META.serverInfo]: serverInfo },
    });
    expect(inForm({ resultType: 'input_required' }, stateless, own)).toMatchObject({ resultType: 'input_required' });
    expect(inForm({ resultType: 'complete', tools: [] }, sessions, own)).toEqual({ tools: [] });
    expect(inForm({ resultType: 'input_required' }, sessions, own)).toEqual({ resultType: 'input_required' });
  });

  it('says with 404 that there is no such method, but for clients with sessions, whose session that would end', () => {
    const status = (era: Era): number => noMethod(asks('x'), era, 'There is none.').refusal.status;
    expect([status(stateless), status(sessions)]).toEqual([404, 200]);
  });
});
