import { createHmac, createPrivateKey, createPublicKey, generateKeyPairSync, sign } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CompactSign } from 'jose';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { canonicalJson } from '../../src/json/text.ts';
import type { Json, JsonObject } from '../../src/json/value.ts';
import type { ReceiptSigner } from '../../src/receipts/sign.ts';
import { verifyReceipt } from '../../src/receipts/verify.ts';
import { verifyReport } from '../../src/receipts/verify-report.ts';
import { receiptView } from '../../src/receipts/view.ts';
import { type Bench, keyBench, PARAMS, receiptInput, SALTS } from './facts.ts';

let bench: Bench;
let signer: ReceiptSigner;
let jws = '';
let pem = '';
beforeAll(async () => {
  bench = await keyBench();
  signer = await bench.open();
  jws = signer.issue(receiptInput()).jws;
  const [name = ''] = await readdir(bench.folder);
  pem = await readFile(join(bench.folder, name), 'utf8');
});
afterAll(() => bench.close());

const check = (content: string, trust: JsonObject = signer.jwks(), disclosure: JsonObject | null = null) =>
  verifyReceipt({ content, trust, disclosure });
const verdict = (content: string, trust?: JsonObject) => check(content, trust).verdict;
const failing = (content: string) =>
  check(content)
    .checks.filter(({ status }) => status === 'failed')
    .map(({ name }) => name);
const encode = (text: string | Buffer) => Buffer.from(text).toString('base64url');
const parts = () => jws.split('.') as [string, string, string];

/** Signs what an attacker who has the real key would: only the form is wrong. */
function forge(header: Json | string, payload: string = Buffer.from(parts()[1], 'base64url').toString()) {
  const head = encode(typeof header === 'string' ? header : canonicalJson(header));
  const signed = `${head}.${encode(payload)}`;
  return `${signed}.${encode(sign(null, Buffer.from(signed), createPrivateKey(pem)))}`;
}

const right = () => ({ alg: 'Ed25519', kid: signer.kid(), typ: 'svc-receipt+jws' });

const bundleLine = () => {
  const { effect, id } = JSON.parse(Buffer.from(parts()[1], 'base64url').toString());
  return { type: 'receipt', effect_id: effect.id, receipt_id: id, jws };
};

it('the line of a bundle that names another effect, or says more, is not valid', () => {
  expect(verdict(JSON.stringify({ ...bundleLine(), effect_id: 'eff_other' }))).toBe('INVALID');
  expect(verdict(JSON.stringify({ ...bundleLine(), action: { tool: 'other' } }))).toBe('INVALID');
  expect(verdict(JSON.stringify({ ...bundleLine(), amount: 5 }))).toBe('INVALID');
});

describe('what is valid', () => {
  it.each<[string, () => string]>([
    ['a bare JWS', () => jws],
    ['with a line end', () => `${jws}\n`],
    ['a view', () => JSON.stringify(receiptView(jws))],
    [
      'a view in another order, with spaces',
      () => JSON.stringify(Object.fromEntries(Object.entries(receiptView(jws)).reverse()), null, 4),
    ],
    ['an answer', () => JSON.stringify({ decision: 'committed', receipt: receiptView(jws), result: { a: 1 } })],
    ['an answer with a bare JWS', () => JSON.stringify({ receipt: jws })],
    ['the line of a bundle', () => JSON.stringify(bundleLine())],
    [
      'an answer that says whose receipt it is',
      () =>
        JSON.stringify({
          decision: 'duplicate_blocked',
          effect_id: 'eff_01j0000000000000000000000b',
          tool: 'payments.refund',
          agent_id: 'support-bot',
          receipt: receiptView(jws),
        }),
    ],
  ])('%s', (_, content) => {
    expect(check(content())).toMatchObject({ verdict: 'VALID', payload: { id: 'rcp_01j0000000000000000000000a' } });
  });

  it.each<[string, JsonObject]>([
    ['of another tool', { tool: 'payments.charge' }],
    ['of another effect', { effect_id: 'eff_01j0000000000000000000000c' }],
    ['of another agent', { agent_id: 'other-bot' }],
    ['of another workspace', { workspace: 'other' }],
    ['with another receipt’s id', { receipt_id: 'rcp_01j0000000000000000000000b' }],
    ['that says it did not happen', { decision: 'denied_policy' }],
    ['that says it failed', { decision: 'failed' }],
    ['that says nobody knows', { decision: 'unknown_effect' }],
    ['that says it is under way', { decision: 'in_progress' }],
    ['with members of a payload that nobody signed', { action: { tool: 'payments.refund', target: 'payment:pay_1' } }],
    ['with another actor', { actor: { agent_id: 'support-bot' } }],
    ['with another effect', { effect: { decision: 'committed' } }],
    ['that is itself an edited view', { iat: '2031-01-01T00:00:00.000Z', jws: 'a.b.c' }],
  ])('not an answer %s, with a good receipt in it', (_, around) => {
    for (const receipt of [jws, receiptView(jws)]) {
      const found = check(JSON.stringify({ ...around, receipt }));
      expect(found.verdict).toBe('INVALID');
      expect(failing(JSON.stringify({ ...around, receipt }))).toEqual(['around']);
    }
  });

  it('members beside the receipt that nothing signs are named', () => {
    const answer = {
      decision: 'committed',
      tool: 'payments.refund',
      result: { paid: true },
      reason: 'x',
      receipt: receiptView(jws),
    };
    const around = (content: object) => check(JSON.stringify(content)).checks.find(({ name }) => name === 'around');
    expect(around(answer)).toEqual({
      name: 'around',
      status: 'skipped',
      detail: 'Not signed; anybody may have written it: "decision", "result", "reason".',
    });
    expect(around({ tool: 'payments.refund', receipt: jws })?.status).toBe('passed');
    const many = Object.fromEntries(Array.from({ length: 5_000 }, (_, index) => [`n${index}`, 1]));
    expect(around({ ...many, receipt: jws })?.detail).toMatch(/"n19" and 4980 more\.$/);
  });

  it('what the same key signs through jose', async () => {
    const payload = Buffer.from(parts()[1], 'base64url');
    const other = await new CompactSign(payload).setProtectedHeader(right()).sign(createPrivateKey(pem));
    expect(verdict(other)).toBe('VALID');
    expect(other).toBe(jws);
  });

  it('a set in which the key stands among others', () => {
    const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 }).publicKey.export({ format: 'jwk' });
    const { keys } = signer.jwks() as { keys: JsonObject[] };
    const trust = { keys: [rsa as JsonObject, null, 'x', { kty: 'OKP' }, ...keys] as Json[] };
    expect(verdict(jws, trust)).toBe('VALID');
  });
});

describe('what cannot be told', () => {
  it.each<[string, () => string]>([
    ['an empty file', () => ''],
    ['text', () => 'hello. world'],
    ['another JSON object', () => '{"decision":"failed"}'],
    ['an array', () => `[${JSON.stringify(receiptView(jws))}]`],
    ['a view that names a member twice', () => JSON.stringify(receiptView(jws)).replace('{', '{"id":"rcp_other",')],
    [
      'a view that names a member twice but for case',
      () => JSON.stringify(receiptView(jws)).replace('{', '{"ID":"rcp_other",'),
    ],
    ['half a view', () => JSON.stringify(receiptView(jws)).slice(0, 400)],
  ])('%s', (_, content) => {
    expect(verdict(content())).toBe('UNDECIDABLE');
  });

  it('a key that is not in the set, whatever the set calls its keys', async () => {
    const other = await keyBench();
    const stranger = await other.open();
    expect(verdict(jws, stranger.jwks())).toBe('UNDECIDABLE');
    const [mine] = (stranger.jwks() as { keys: JsonObject[] }).keys;
    expect(verdict(jws, { keys: [{ ...mine, kid: signer.kid() }] })).toBe('UNDECIDABLE');
    for (const trust of [{}, { keys: [] }, { keys: {} }, { keys: 'x' }])
      expect(verdict(jws, trust)).toBe('UNDECIDABLE');
    await other.close();
  });

  it('a key of the set that is not for signatures', () => {
    const { keys } = signer.jwks() as { keys: JsonObject[] };
    for (const change of [{ use: 'enc' }, { alg: 'ES256' }, { kty: 'EC' }, { crv: 'X25519' }])
      expect(verdict(jws, { keys: keys.map((key) => ({ ...key, ...change })) })).toBe('UNDECIDABLE');
  });

  it('is not said of what was altered: without its key, too, that is seen', () => {
    const edited = JSON.stringify({ ...receiptView(jws), iat: '2031-01-01T00:00:00.000Z' });
    expect(check(edited, { keys: [] }).checks).toContainEqual(
      expect.objectContaining({ name: 'key', status: 'undecided' }),
    );
    expect(verdict(edited, { keys: [] })).toBe('INVALID');
  });

  it('a later version of receipts', () => {
    const later = canonicalJson({ ...JSON.parse(Buffer.from(parts()[1], 'base64url').toString()), v: 2 });
    expect(verdict(forge(right(), later))).toBe('UNDECIDABLE');
  });
});

describe('attacks on the JWS', () => {
  it.each<[string, () => string, string]>([
    [
      'alg none, without signature',
      () => `${encode('{"alg":"none","typ":"svc-receipt+jws"}')}.${parts()[1]}.`,
      'header',
    ],
    ['alg None', () => forge({ ...right(), alg: 'None' }), 'header'],
    ['alg EdDSA (another name for it)', () => forge({ ...right(), alg: 'EdDSA' }), 'header'],
    ['alg ed25519 in lower case', () => forge({ ...right(), alg: 'ed25519' }), 'header'],
    ['alg as a list', () => forge({ ...right(), alg: ['Ed25519'] }), 'header'],
    ['no alg', () => forge({ kid: signer.kid(), typ: 'svc-receipt+jws' }), 'header'],
    ['typ JWT', () => forge({ ...right(), typ: 'JWT' }), 'header'],
    ['typ with the media type prefix', () => forge({ ...right(), typ: 'application/svc-receipt+jws' }), 'header'],
    ['no typ', () => forge({ alg: 'Ed25519', kid: signer.kid() }), 'header'],
    ['no kid', () => forge({ alg: 'Ed25519', typ: 'svc-receipt+jws' }), 'header'],
    ['jku', () => forge({ ...right(), jku: 'https://evil.example/jwks' }), 'header'],
    ['x5u', () => forge({ ...right(), x5u: 'https://evil.example/cert' }), 'header'],
    ['x5c', () => forge({ ...right(), x5c: ['AAAA'] }), 'header'],
    ['crit', () => forge({ ...right(), crit: ['exp'], exp: 1 }), 'header'],
    ['crit, empty', () => forge({ ...right(), crit: [] }), 'header'],
    ['b64 false', () => forge({ ...right(), b64: false, crit: ['b64'] }), 'header'],
    ['cty', () => forge({ ...right(), cty: 'JWT' }), 'header'],
    [
      'a header that names alg twice',
      () => forge(`{"alg":"none","alg":"Ed25519","kid":"${signer.kid()}","typ":"svc-receipt+jws"}`),
      'header',
    ],
    ['a header with spaces', () => forge(JSON.stringify(right(), null, 1)), 'header'],
    ['a header that is a list', () => forge('[]'), 'header'],
    ['a header that is not JSON', () => forge('{'), 'header'],
    [
      'a header with invalid UTF-8',
      () => `${encode(Buffer.from([0x7b, 0xff, 0x7d]))}.${parts()[1]}.${parts()[2]}`,
      'header',
    ],
    [
      'a payload that is not canonical',
      () => forge(right(), JSON.stringify(JSON.parse(Buffer.from(parts()[1], 'base64url').toString()), null, 1)),
      'payload',
    ],
    [
      'a payload that names a member twice',
      () => forge(right(), Buffer.from(parts()[1], 'base64url').toString().replace('{', '{"action":1,')),
      'payload',
    ],
    ['a payload that is no receipt', () => forge(right(), '{"sub":"maria"}'), 'payload'],
    ['a payload that is half a receipt', () => forge(right(), '{"v":1}'), 'payload'],
    ['a payload that is a list', () => forge(right(), '[1]'), 'payload'],
    ['an empty signature', () => `${parts()[0]}.${parts()[1]}.`, 'signature'],
    ['a signature of zeros', () => `${parts()[0]}.${parts()[1]}.${encode(Buffer.alloc(64))}`, 'signature'],
    [
      'a longer signature',
      () => `${jws.slice(0, -86)}${encode(Buffer.concat([Buffer.from(parts()[2], 'base64url'), Buffer.from([0])]))}`,
      'signature',
    ],
    ['five parts, as of a JWE', () => `${jws}.a.b`, ''],
    ['two parts', () => `${parts()[0]}.${parts()[1]}`, ''],
    ['four parts in a view', () => JSON.stringify({ ...receiptView(jws), jws: `${jws}.a` }), 'encoding'],
  ])('%s is not valid', (_, content, name) => {
    const text = content();
    expect(verdict(text)).not.toBe('VALID');
    if (name !== '') {
      expect(verdict(text)).toBe('INVALID');
      expect(failing(text)).toContain(name);
    }
  });

  it('HS256 with the public key as the secret is not valid', () => {
    const publicKey = createPublicKey(pem);
    for (const secret of [
      publicKey.export({ type: 'spki', format: 'pem' }),
      publicKey.export({ type: 'spki', format: 'der' }),
      Buffer.from(String(publicKey.export({ format: 'jwk' }).x), 'base64url'),
    ]) {
      const signed = `${encode(canonicalJson({ ...right(), alg: 'HS256' }))}.${parts()[1]}`;
      const forged = `${signed}.${createHmac('sha256', secret).update(signed).digest('base64url')}`;
      expect(failing(forged)).toContain('header');
    }
  });

  it('an embedded key is not used, though it fits the signature', () => {
    const { privateKey, publicKey } = generateKeyPairSync('ed25519');
    const jwk = publicKey.export({ format: 'jwk' });
    const signed = `${encode(canonicalJson({ ...right(), jwk: { crv: 'Ed25519', kty: 'OKP', x: String(jwk.x) } }))}.${parts()[1]}`;
    const forged = `${signed}.${encode(sign(null, Buffer.from(signed), privateKey))}`;
    expect(check(forged)).toMatchObject({ verdict: 'INVALID', payload: null });
    expect(failing(forged)).toContain('header');
  });

  it('another key under the kid of ours is not valid', () => {
    const { privateKey } = generateKeyPairSync('ed25519');
    const signed = `${parts()[0]}.${parts()[1]}`;
    expect(failing(`${signed}.${encode(sign(null, Buffer.from(signed), privateKey))}`)).toEqual(['signature']);
  });

  it('a signature with S beyond the group order is not valid (a second signature of the same text)', () => {
    const signature = Buffer.from(parts()[2], 'base64url');
    const order = (1n << 252n) + 27742317777372353535851937790883648493n;
    let s = 0n;
    for (let at = 63; at >= 32; at -= 1) s = (s << 8n) + BigInt(signature[at]!);
    s += order;
    for (let at = 32; at < 64; at += 1) {
      signature[at] = Number(s & 0xffn);
      s >>= 8n;
    }
    expect(failing(`${parts()[0]}.${parts()[1]}.${encode(signature)}`)).toEqual(['signature']);
  });

  it('what says that something did not happen is no receipt, whoever signed it', () => {
    const payload = Buffer.from(parts()[1], 'base64url').toString();
    for (const decision of ['failed', 'unknown_effect', 'denied_policy']) {
      const said = payload.replace('"decision":"committed"', `"decision":"${decision}"`);
      expect(failing(forge(right(), said))).toEqual(['payload']);
    }
  });

  it.each(['id', 'iss', 'ws', 'iat', 'effect'])('a payload without %s is no receipt, whoever signed it', (member) => {
    const { [member]: _, ...rest }: JsonObject = JSON.parse(Buffer.from(parts()[1], 'base64url').toString());
    expect(failing(forge(right(), canonicalJson(rest)))).toEqual(['payload']);
  });

  it('a payload whose effect has no id is no receipt', () => {
    const { effect, ...rest } = JSON.parse(Buffer.from(parts()[1], 'base64url').toString());
    const { id: _, ...nameless } = effect;
    expect(failing(forge(right(), canonicalJson({ ...rest, effect: nameless })))).toEqual(['payload']);
  });

  it('a JWS of the same key for another purpose is not a receipt', () => {
    expect(failing(forge({ ...right(), typ: 'svc-checkpoint+jws' }))).toEqual(['header']);
  });
});

describe('other spellings of the same base64url', () => {
  it.each<[string, (text: string) => string]>([
    ['padding', (text) => `${text}==`],
    ['one letter of padding', (text) => `${text}=`],
    ['the letters of base64', (text) => text.replaceAll('-', '+').replaceAll('_', '/')],
    ['a line end inside', (text) => `${text.slice(0, 20)}\n${text.slice(20)}`],
    ['a space inside', (text) => `${text.slice(0, 20)} ${text.slice(20)}`],
    ['a letter that is none', (text) => `${text.slice(0, 20)}*${text.slice(20)}`],
    ['a NUL inside', (text) => `${text.slice(0, 20)}\0${text.slice(20)}`],
    ['another letter at the end', (text) => `${text.slice(0, -1)}${text.endsWith('B') ? 'C' : 'B'}`],
    ['percent encoding', (text) => text.replace(/[A-Za-z]/, (letter) => `%${letter.charCodeAt(0).toString(16)}`)],
  ])('%s: refused in the header, the payload and the signature', (_, respell) => {
    for (const place of [0, 1, 2]) {
      const altered = parts().map((part, index) => (index === place ? respell(part) : part));
      if (altered.join('.') === jws) continue;
      expect(verdict(altered.join('.')), `part ${place}`).toBe('INVALID');
    }
  });

  it('stray bits in the signature, which a forgiving decoder drops, are refused', () => {
    const [header, payload, signature] = parts();
    // 64 bytes are 86 letters, and the last one has four bits to spare.
    const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
    const last = letters.indexOf(signature.slice(-1));
    for (let bits = 1; bits < 16; bits += 1) {
      const altered = `${header}.${payload}.${signature.slice(0, -1)}${letters[last ^ bits]}`;
      expect(Buffer.from(altered.split('.')[2]!, 'base64url')).toEqual(Buffer.from(signature, 'base64url'));
      expect(failing(altered)).toEqual(['encoding']);
    }
  });
});

describe('any change', () => {
  it('of one letter of the JWS makes it not valid', () => {
    for (let at = 0; at < jws.length; at += 1) {
      const letter = jws[at] === 'A' ? 'B' : 'A';
      expect(verdict(jws.slice(0, at) + letter + jws.slice(at + 1)), `letter ${at}`).not.toBe('VALID');
    }
  });

  it('of the view makes it not valid, and is named', () => {
    const view = receiptView(jws);
    const changes: readonly [string, JsonObject][] = [
      ['ws', { ...view, ws: 'prod' }],
      ['effect', { ...view, effect: { ...(view['effect'] as JsonObject), id: 'eff_other' } }],
      ['budget', { ...view, budget: [] }],
      ['log', { ...view, log: { size: 1 } }],
      ['extra', { ...view, extra: true }],
      ['v', { ...view, v: '1' }],
      ['ledger', { ...view, ledger: { epoch: 1, seq: 18 } }],
    ];
    for (const [name, changed] of changes) {
      const result = check(JSON.stringify(changed));
      expect(result.verdict).toBe('INVALID');
      expect(result.checks.find((one) => one.name === 'view')?.detail).toContain(`"${name}"`);
    }
    const { iat: _, ...without } = view;
    expect(failing(JSON.stringify(without))).toEqual(['view']);
    const told = check(JSON.stringify(without)).checks.find((one) => one.name === 'view')?.detail;
    expect(told).toContain('"iat"');
  });

  it('shown in a report never writes to the terminal', () => {
    const hostile = { ...receiptView(jws), '\u001b[2J\u202e': 1 };
    const report = verifyReport({
      receipt: JSON.stringify(hostile),
      trust: JSON.stringify(signer.jwks()),
      disclosure: null,
    });
    expect(report.exit).toBe(1);
    expect(report.text).toMatch(/^[\n\x20-\x7e]*$/);
    const kid = forge({ ...right(), kid: '\u001b[31m\u202e' });
    expect(verifyReport({ receipt: kid, trust: JSON.stringify(signer.jwks()), disclosure: null }).text).toMatch(
      /^[\n\x20-\x7e]*$/,
    );
  });
});

describe('opening commitments', () => {
  const open = (values: JsonObject, salts: JsonObject = SALTS) => check(jws, signer.jwks(), { salts, values });

  it('shows that the receipt is about these values', () => {
    const values = {
      params: PARAMS,
      target: 'payment:pay_77',
      idem: 'refund-canary-1',
      response: { result: { refund: 're_9' }, upstream_status: 201 },
    };
    const result = open(values);
    expect(result.verdict).toBe('VALID');
    expect(result.checks.filter(({ name }) => name === 'disclosure')).toHaveLength(4);
  });

  it.each<[string, JsonObject, string]>([
    ['other params', { params: { ...PARAMS, amount: 50 } }, 'INVALID'],
    ['a number as text', { params: { ...PARAMS, amount: '5000' } }, 'INVALID'],
    ['a field that is not committed to', { comment: 'x' }, 'UNDECIDABLE'],
    ['a field that does not exist', { constructor: 'x' }, 'UNDECIDABLE'],
    ['nothing', {}, 'UNDECIDABLE'],
  ])('%s: not valid', (_, values, expected) => {
    expect(open(values).verdict).toBe(expected);
  });

  it('of what a person said who settled it: comment and evidence, each for itself', () => {
    const said = { keyId: 'key_1', user: 'maria', forced: true, comment: 'seen', evidence: { ticket: 7 } };
    const of = signer.issue(receiptInput({ settledBy: { by: 'resolve', ...said } })).jws;
    const opened = (values: JsonObject) => check(of, signer.jwks(), { salts: SALTS, values }).verdict;
    expect(opened({ comment: 'seen', evidence: { ticket: 7 } })).toBe('VALID');
    expect(opened({ comment: { ticket: 7 } })).toBe('INVALID');
    expect(opened({ evidence: 'seen' })).toBe('INVALID');
    expect(check(of).payload).toMatchObject({ effect: { settled_by: { by: 'resolve', user: 'maria', forced: true } } });
  });

  it('needs the salt', () => {
    expect(open({ params: PARAMS }, {}).verdict).toBe('UNDECIDABLE');
    expect(open({ params: PARAMS }, { params: SALTS['target']! }).verdict).toBe('INVALID');
  });
});

describe('the report', () => {
  const report = (receipt: string, trust = JSON.stringify(signer.jwks()), disclosure: string | null = null) =>
    verifyReport({ receipt, trust, disclosure });

  it('has one line per check, the verdict last, and says what it does not prove', () => {
    const { exit, text, json } = report(JSON.stringify(receiptView(jws)));
    expect(exit).toBe(0);
    expect(text.trimEnd().split('\n').at(-1)).toBe('VALID');
    for (const name of ['encoding', 'header', 'payload', 'key', 'signature', 'view'])
      expect(text).toMatch(new RegExp(`^ok +${name} `, 'm'));
    expect(text).toContain('does not prove');
    expect(json).toMatchObject({ verdict: 'VALID', payload: { ws: 'demo' } });
  });

  it('exits with 1 for what is not valid, 2 for what cannot be told', () => {
    expect(report(`${jws.slice(0, -4)}AAAA`).exit).toBe(1);
    expect(report('').exit).toBe(2);
    expect(report(jws, '{"keys":[]}').exit).toBe(2);
    expect(report(jws, 'not JSON')).toMatchObject({ exit: 2, text: expect.stringContaining('not a JWKS') });
    expect(report(jws, undefined, '[]').exit).toBe(2);
    expect(report(jws, undefined, JSON.stringify({ salts: SALTS, values: { params: {} } })).exit).toBe(1);
  });
});
