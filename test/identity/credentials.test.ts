import { describe, expect, it } from 'vitest';
import { keyFromRequest } from '../../src/identity/key-format.ts';

/** In the form of a key of ours. */
const OWN = 'svc_acct_k';

type Headers = Parameters<typeof keyFromRequest>[0]['headers'];

const find = (headers: Headers, query: Headers = {}, queryKey: 'allow' | 'refuse' = 'allow') =>
  keyFromRequest({ headers, query }, queryKey);

describe('the key of a request', () => {
  it.each<[string, Headers, Headers, boolean]>([
    ['X-API-Key', { 'x-api-key': 'k' }, {}, false],
    ['Authorization: Bearer', { authorization: 'Bearer k' }, {}, false],
    ['bearer in any case, with spaces', { authorization: 'bEARER   k ' }, {}, false],
    ['the query', {}, { api_key: 'k' }, true],
    ['all three alike', { 'x-api-key': OWN, authorization: `Bearer ${OWN}` }, { api_key: OWN }, true],
    ['the header, beside a scheme that is not ours', { 'x-api-key': 'k', authorization: 'Basic Zm9v' }, {}, false],
    ['the query, beside an empty header', { 'x-api-key': '' }, { api_key: 'k' }, true],
    ['the query, twice the same', {}, { api_key: ['k', 'k'] }, true],
  ])('is taken from %s', (_, headers, query, viaQuery) => {
    expect(find(headers, query)).toMatchObject({
      kind: 'key',
      key: headers['x-api-key'] === OWN ? OWN : 'k',
      viaQuery,
    });
  });

  it.each<[string, Headers, Headers, string | null]>([
    ['a bearer token that is not ours', { 'x-api-key': 'k', authorization: 'Bearer sk_1' }, {}, 'Bearer sk_1'],
    ['another scheme', { 'x-api-key': 'k', authorization: 'Basic Zm9v' }, {}, 'Basic Zm9v'],
    ['a bearer token beside the query', { authorization: 'Bearer sk_1' }, { api_key: 'k' }, 'Bearer sk_1'],
    ['the same key as a bearer', { 'x-api-key': 'svc_acct_k', authorization: 'Bearer svc_acct_k' }, {}, null],
    ['the key alone as a bearer', { authorization: 'Bearer k' }, {}, null],
    ['a key of ours in another scheme', { 'x-api-key': 'k', authorization: 'Token svc_agent_1' }, {}, null],
    ['two of them', { 'x-api-key': 'k', authorization: ['Bearer sk_1', 'Bearer sk_2'] }, {}, null],
    ['a key of ours in capitals', { 'x-api-key': 'k', authorization: 'Token SVC_AGENT_1' }, {}, null],
    ['a key of ours in Basic', { 'x-api-key': 'k', authorization: `Basic ${btoa('u:svc_agent_1')}` }, {}, null],
  ])('leaves to the upstream, of %s, what is not ours', (_, headers, query, foreignAuthorization) => {
    expect(find(headers, query)).toMatchObject({ kind: 'key', foreignAuthorization });
  });

  it.each<[string, Headers, Headers]>([
    ['nothing', {}, {}],
    ['an empty header', { 'x-api-key': '' }, {}],
    ['another scheme', { authorization: 'Basic Zm9vOmJhcg==' }, {}],
    ['the word alone', { authorization: 'Bearer' }, {}],
    ['the word and a space', { authorization: 'Bearer ' }, {}],
    ['an inherited name', {}, Object.create({ api_key: 'k' })],
  ])('is missing from %s', (_, headers, query) => {
    expect(find(headers, query)).toEqual({ kind: 'missing' });
  });

  it.each<[string, Headers, Headers]>([
    ['header and bearer', { 'x-api-key': 'canary-a', authorization: 'Bearer svc_agent_canary-b' }, {}],
    ['header and query', { 'x-api-key': 'canary-a' }, { api_key: 'canary-b' }],
    ['bearer and query', { authorization: 'Bearer svc_acct_canary-a' }, { api_key: 'canary-b' }],
    ['the query twice', {}, { api_key: ['canary-a', 'canary-b'] }],
    ['the header twice', { 'x-api-key': ['canary-a', 'canary-b'] }, {}],
    ['case alone', { 'x-api-key': 'canary-a' }, { api_key: 'Canary-a' }],
  ])('is none when %s differ, and no key is shown', (_, headers, query) => {
    const found = find(headers, query);
    expect(found.kind).toBe('invalid');
    expect(JSON.stringify(found)).not.toMatch(/canary/i);
  });

  it('is refused in the query where the configuration says so, whatever comes beside it', () => {
    expect(find({}, { api_key: 'k' }, 'refuse').kind).toBe('invalid');
    expect(find({ 'x-api-key': 'k' }, { api_key: 'k' }, 'refuse').kind).toBe('invalid');
    expect(find({ authorization: 'Bearer k' }, { api_key: 'k' }, 'refuse').kind).toBe('invalid');
    expect(find({ authorization: 'Basic Zm9v' }, { api_key: 'k' }, 'refuse').kind).toBe('invalid');
    expect(find({ 'x-api-key': 'k' }, {}, 'refuse').kind).toBe('key');
    expect(find({ authorization: 'Bearer k' }, {}, 'refuse').kind).toBe('key');
  });
});

describe('other carriers, where a route names them', () => {
  const carriers = { headers: ['api-key', 'x-auth'], schemes: ['token', 'basic'], query: ['key'] } as const;
  const own = 'svc_agent_k';
  const basic = (text: string): string => `Basic ${Buffer.from(text).toString('base64')}`;
  const at = (headers: Headers, query: Headers = {}) => keyFromRequest({ headers, query }, 'allow', carriers);
  it.each<[string, Headers, Headers, readonly string[]]>([
    ['token', { authorization: `token ${own}` }, {}, []],
    ['Token token=', { authorization: `Token token="${own}"` }, {}, []],
    ['basic, as the user', { authorization: basic(`${own}:`) }, {}, []],
    ['basic, as the password', { authorization: basic(`account:${own}`) }, {}, []],
    ['api-key', { 'api-key': own }, {}, ['api-key']],
    ['a header of another name', { 'x-auth': own, 'api-key': 'upstreams-own' }, {}, ['x-auth']],
    ['the query', {}, { api_key: own }, []],
    ['token, after spaces', { authorization: `token   ${own} ` }, {}, []],
  ])('%s', (_, headers, query, carriedIn) => {
    expect(at(headers, query)).toMatchObject({ kind: 'key', key: own, carriedIn });
  });
  it('what the route does not name is none of them', () => {
    expect(at({ 'x-api-key': own })).toEqual({ kind: 'missing' });
    expect(at({ authorization: `Bearer ${own}` })).toEqual({ kind: 'missing' });
  });
  it.each([
    ['the whole text', basic('k'), 'k'],
    ['the user, of two that are not of our form', basic('k:x'), 'k'],
    ['the password, where there is no user', basic(':k'), 'k'],
  ])('of Basic without a key of our form it is %s', (_, authorization, key) => {
    expect(at({ authorization })).toMatchObject({ kind: 'key', key });
  });
  it('a header that is named beside X-API-Key counts as well: two keys that differ are none', () => {
    const both = { headers: ['x-api-key', 'x-auth'], schemes: [], query: [] } as const;
    const headers = { 'x-api-key': own, 'x-auth': 'svc_agent_other' };
    expect(keyFromRequest({ headers, query: {} }, 'allow', both)).toMatchObject({ kind: 'invalid' });
    const alike = { 'x-api-key': own, 'x-auth': own };
    expect(keyFromRequest({ headers: alike, query: {} }, 'allow', both)).toMatchObject({
      carriedIn: ['x-api-key', 'x-auth'],
    });
    const none = { ...both, headers: ['x-auth'] };
    expect(keyFromRequest({ headers: { 'x-api-key': own }, query: {} }, 'allow', none)).toEqual({ kind: 'missing' });
  });
  it('leaves the upstream its own, and never a key of ours', () => {
    expect(at({ 'api-key': own, authorization: 'token ghp_1' })).toMatchObject({ foreignAuthorization: 'token ghp_1' });
    expect(at({ 'api-key': own, authorization: `Bearer ${own}` })).toMatchObject({ foreignAuthorization: null });
    expect(at({ 'api-key': own, authorization: 'token svc_agent_other' })).toMatchObject({ kind: 'invalid' });
  });
});
