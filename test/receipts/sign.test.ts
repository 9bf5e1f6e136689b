import { generateKeyPairSync } from 'node:crypto';
import { chmod, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { calculateJwkThumbprint, compactVerify, createLocalJWKSet, importJWK, type JSONWebKeySet } from 'jose';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { commit } from '../../src/effects/model/commit.ts';
import type { ApprovalRecord } from '../../src/effects/model/approval.ts';
import type { KeptResult } from '../../src/effects/model/answer.ts';
import type { SettledBy } from '../../src/effects/model/effect.ts';
import { canonicalJson } from '../../src/json/text.ts';
import type { JsonObject } from '../../src/json/value.ts';
import { openSigner, receiptPayload, type ReceiptSigner } from '../../src/receipts/sign.ts';
import { receiptView } from '../../src/receipts/view.ts';
import { verifyReceipt } from '../../src/receipts/verify.ts';
import { makeKeyFile, readKeyFile } from '../../src/secrets/key-file.ts';
import { type Bench, keyBench, PARAMS, receiptInput, SALTS } from './facts.ts';
import { commitmentIn, disclosureOf, disclosureText } from '../../src/receipts/commitments.ts';

let bench: Bench;
let signer: ReceiptSigner;
beforeEach(async () => {
  bench = await keyBench();
  signer = await bench.open();
});
afterEach(() => bench.close());

const keySet = () => signer.jwks() as unknown as JSONWebKeySet;

const vote = (user: string, verdict: 'approve' | 'reject', comment: string | null, day = 6) => ({
  user,
  verdict,
  comment,
  keyId: 'key_2',
  at: Date.UTC(2026, 4, day),
  requirements: [0],
});
const APPROVED: ApprovalRecord = {
  id: 'apr_1',
  workspace: 'demo',
  effectId: 'eff_1',
  digest: 'd',
  tool: 'payments.refund',
  target: 't',
  requester: { agentId: 'support-bot', agentOwner: null, user: null, keyId: 'key_1', keyMadeBy: null },
  requirements: [],
  votes: [
    vote('maria', 'approve', 'fine by canary'),
    vote('zoe', 'reject', null),
    vote('tom', 'approve', null, 7),
    vote('ada', 'approve', 'fine by canary'),
  ],
  status: 'used',
  createdAt: 0,
  expiresAt: 1,
  decidedAt: 1,
  stopped: null,
  costs: [],
};

describe('a receipt', () => {
  it('is a compact JWS that jose verifies with the published keys', async () => {
    const { jws } = signer.issue(receiptInput());
    const { payload, protectedHeader } = await compactVerify(jws, createLocalJWKSet(keySet()), {
      algorithms: ['Ed25519'],
    });
    expect(protectedHeader).toEqual({ alg: 'Ed25519', kid: signer.kid(), typ: 'svc-receipt+jws' });
    const text = Buffer.from(payload).toString('utf8');
    expect(canonicalJson(JSON.parse(text))).toBe(text);
    const [jwk] = keySet().keys;
    expect(await calculateJwkThumbprint(jwk!)).toBe(signer.kid());
    await expect(importJWK(jwk!, 'Ed25519')).resolves.toBeDefined();
  });

  it('says what happened, and shows no private value', async () => {
    const { jws, id } = signer.issue(receiptInput());
    const view = receiptView(jws);
    expect(id).toBe('rcp_01j0000000000000000000000a');
    await expect(
      `${JSON.stringify({ ...view, jws: '…', svc: { version: '…', node: '…' } }, null, 2)}\n`,
    ).toMatchFileSnapshot('golden/receipt.json');
    expect(view['jws']).toBe(jws);
    const text = JSON.stringify(view) + Buffer.from(jws.split('.')[1]!, 'base64url').toString();
    for (const canary of ['pay_77', 'refund-canary-1', 're_9', 'customer:secret', ...Object.values(SALTS)])
      expect(text).not.toContain(canary);
  });

  it('says by whose word a call ran that nobody was asked about, and of others nothing', () => {
    const input = receiptInput({ approval: null });
    const allowance = { id: 'alw_1', approvalId: 'apr_1', by: 'maria', use: 2 };
    const effect = { ...input.effect, trace: { ...input.effect.trace, allowance } };
    const { jws } = signer.issue({ ...input, effect });
    const text = Buffer.from(jws.split('.')[1]!, 'base64url').toString();
    expect(canonicalJson(JSON.parse(text))).toBe(text);
    expect(receiptView(jws)).toMatchObject({
      approval: [],
      allowance: { id: 'alw_1', approval_id: 'apr_1', by: 'maria', use: 2 },
    });
    expect(receiptView(signer.issue(receiptInput()).jws)).not.toHaveProperty('allowance');
  });

  it('says which limits approvers let a call go beyond, and by how much, and of others nothing', () => {
    const input = receiptInput();
    const beyond = [
      { limit: 'budget:s/"day"', by: 200 },
      { limit: 'rate:s/note', by: 1 },
    ];
    const effect = { ...input.effect, trace: { ...input.effect.trace, beyond } };
    const { jws } = signer.issue({ ...input, effect });
    const text = Buffer.from(jws.split('.')[1]!, 'base64url').toString();
    expect(canonicalJson(JSON.parse(text))).toBe(text);
    expect(receiptView(jws)).toMatchObject({ policy: { beyond } });
    expect(receiptView(signer.issue(receiptInput()).jws)['policy']).not.toHaveProperty('beyond');
  });

  it('says of the call itself who made it, through which door, with what kind of key, at which attempt, and where it stands in the ledger', async () => {
    const input = receiptInput();
    const { actor } = input.effect;
    const effect = {
      ...input.effect,
      attempt: 3,
      generation: 2,
      actor: { ...actor, keyKind: 'profile', user: 'ops', via: 'mcp' },
    } as const;
    const { id, jws } = signer.issue({ ...input, effect, ledger: { epoch: 4, seq: 17 } });
    const view = receiptView(jws);
    expect(view).toMatchObject({
      actor: { agent_id: actor.agentId, key_id: actor.keyId, key_kind: 'profile', user: 'ops', via: 'mcp' },
      effect: { attempt: 3, decision: 'committed' },
      ledger: { epoch: 4, seq: 17 },
    });
    // The key that the upstream got is that of the generation, and the attempts of one have it in common.
    const { evidence, settledBy, result } = input;
    const life = { state: 'committed', at: 1, settledBy, evidence, receipt: { id, jws }, result } as const;
    const settled = { ...effect, life: { ...life, accepted: false, responseTruncated: false } };
    const disclosure = disclosureOf(settled, input.sealed!, view, null);
    expect(disclosure.values).toMatchObject({ request: { upstream_key: `${effect.id}.2` } });
    expect(verifyReceipt({ content: jws, trust: signer.jwks(), disclosure }).verdict).toBe('VALID');
  });

  it('has every unit of a pool that was held', () => {
    const input = receiptInput();
    const uses = [
      { pool: 'gpu', units: 3 },
      { pool: 'seats', units: 1 },
    ];
    expect(receiptView(signer.issue({ ...input, effect: { ...input.effect, uses } }).jws)).toMatchObject({
      reservations: uses,
    });
  });

  it('says what the store guaranteed when it was issued, and which software issued it', () => {
    const issuer = { iss: 'urn:x', version: '9.9.9', node: '20.0.0', params: 'together' } as const;
    for (const durability of ['fsync', 'replica'])
      expect(JSON.parse(receiptPayload(receiptInput(), { ...issuer, durability: () => durability }))).toMatchObject({
        iss: 'urn:x',
        durability,
        svc: { version: '9.9.9', node: '20.0.0' },
      });
  });

  it('says what the store is when it is issued, not what it was when the gateway started', async () => {
    const options = bench.options();
    const store = { installId: '', durability: 'local' };
    const late = await openSigner({
      ...options,
      store: {
        get installId() {
          return store.installId;
        },
        health: () => ({ durability: store.durability }),
      },
    });
    Object.assign(store, { installId: 'inst_2', durability: 'replica' });
    const view = receiptView(late.issue(receiptInput()).jws);
    expect(view).toMatchObject({ iss: 'urn:svc-gateway:inst_2', durability: 'replica' });
  });

  it('commits to each value under the salt of its field', () => {
    const view = receiptView(signer.issue(receiptInput()).jws);
    expect(view['action']).toMatchObject({
      target: commit(SALTS['target']!, 'payment:pay_77'),
      params: commit(SALTS['params']!, PARAMS),
      idem: commit(SALTS['idem']!, 'refund-canary-1'),
    });
    expect(view['upstream']).toMatchObject({
      response: commit(SALTS['response']!, { upstream_status: 201, result: { refund: 're_9' } }),
      request: commit(SALTS['request']!, {
        tool_pin: 'd1gest',
        params: PARAMS,
        upstream_key: 'eff_01j0000000000000000000000b.1',
      }),
    });
    const [own, other] = view['claims'] as string[];
    expect(own).toBe((view['action'] as Record<string, unknown>)['target']);
    expect(other).not.toBe(own);
  });

  it('is the same bytes for the same input, also after a restart', async () => {
    const first = signer.issue(receiptInput());
    expect((await bench.open()).issue(receiptInput())).toEqual(first);
  });

  it('names its issuer: by the installation, or as configured', async () => {
    const issuer = (of: ReceiptSigner) => receiptView(of.issue(receiptInput()).jws)['iss'];
    expect(issuer(signer)).toBe('urn:svc-gateway:inst_1');
    expect(issuer(await bench.open('https://gateway.example'))).toBe('https://gateway.example');
  });

  it('says who settled, without words and evidence in the clear', () => {
    const settled = (settledBy: Parameters<typeof receiptInput>[0]) =>
      receiptView(signer.issue(receiptInput(settledBy)).jws)['effect'] as Record<string, unknown>;
    expect(settled({})['settled_by']).toEqual({ by: 'owner' });
    expect(settled({ settledBy: { by: 'late_answer' } })['settled_by']).toEqual({ by: 'late_answer' });
    const by = {
      by: 'resolve',
      keyId: 'key_1',
      user: 'tom',
      forced: true,
      comment: 'saw it',
      evidence: { a: 1 },
    } as const;
    expect(settled({ settledBy: by })['settled_by']).toEqual({
      by: 'resolve',
      key_id: 'key_1',
      user: 'tom',
      forced: true,
      comment: commit(SALTS['comment']!, 'saw it'),
      evidence: commit(SALTS['evidence']!, { a: 1 }),
    });
    expect(settled({ settledBy: { by: 'probe', evidence: { seen: true } } })['settled_by']).toEqual({
      by: 'probe',
      evidence: commit(SALTS['evidence']!, { seen: true }),
    });
  });

  it.each<[SettledBy, JsonObject]>([
    [{ by: 'owner' }, {}],
    [{ by: 'late_answer' }, {}],
    [{ by: 'probe', evidence: { seen: true } }, { evidence: { seen: true } }],
    [
      { by: 'resolve', comment: 'saw it', evidence: { a: 1 }, forced: false, keyId: 'key_1', user: 'tom' },
      { comment: 'saw it', evidence: { a: 1 } },
    ],
    [{ by: 'resolve', comment: null, evidence: null, forced: false, keyId: 'key_1', user: 'tom' }, {}],
  ])('opens what it commits to of who settled: %j', (settledBy, opened) => {
    const input = receiptInput({ settledBy });
    const { jws } = signer.issue(input);
    const { evidence, result } = input;
    const life = { state: 'committed', at: 1, settledBy, evidence, receipt: { id: input.id, jws }, result } as const;
    const effect = { ...input.effect, life: { ...life, accepted: false, responseTruncated: false } };
    const disclosure = disclosureOf(effect, input.sealed!, receiptView(jws), null);
    const fields = Object.entries(disclosure.values).filter(([field]) => ['comment', 'evidence'].includes(field));
    expect(Object.fromEntries(fields)).toEqual(opened);
    expect(verifyReceipt({ content: jws, trust: signer.jwks(), disclosure }).verdict).toBe('VALID');
  });

  it('names the people who approved, and what', () => {
    const input = receiptInput({ approval: APPROVED });
    const { id, jws } = signer.issue(input);
    const view = receiptView(jws);
    const params = commit(SALTS['params']!, PARAMS);
    const at = '2026-05-06T00:00:00.000Z';
    const committed = expect.stringMatching(/^sc1:/);
    expect(view['approval']).toEqual([
      { id: 'apr_1', by: 'maria', at, params, comment: committed },
      { id: 'apr_1', by: 'tom', at: '2026-05-07T00:00:00.000Z', params },
      { id: 'apr_1', by: 'ada', at, params, comment: committed },
    ]);
    expect(JSON.stringify(view)).not.toContain('canary');
    // Equal comments do not look equal, and each can be opened.
    const comments = ['approval.0.comment', 'approval.2.comment'];
    expect(new Set(comments.map((field) => commitmentIn(view, field))).size).toBe(2);
    const { sealed, evidence, settledBy, result } = input;
    const life = { state: 'committed', at: 1, settledBy, evidence, receipt: { id, jws }, result } as const;
    const effect = { ...input.effect, life: { ...life, accepted: false, responseTruncated: false } };
    const disclosure = disclosureOf(effect, sealed!, view, APPROVED);
    const checked = (values: JsonObject) =>
      verifyReceipt({ content: jws, trust: signer.jwks(), disclosure: { ...disclosure, values } }).verdict;
    expect(Object.keys(disclosure.values)).toEqual(expect.arrayContaining(comments));
    expect(checked(disclosure.values)).toBe('VALID');
    for (const field of comments) expect(checked({ ...disclosure.values, [field]: 'fine' })).toBe('INVALID');
    expect(checked({ 'approval.1.comment': 'fine by canary' })).toBe('UNDECIDABLE');
  });

  it.each([
    [undefined, 5000],
    [{ cents: 30 }, 30],
    [{ cents: 9000 }, 9000],
    [{ cents: null }, 5000],
    [{ other: 30 }, 5000],
  ])('says what was spent, where the answer says it (%j): %i', (amounts, posted) => {
    const view = receiptView(signer.issue(receiptInput(amounts === undefined ? {} : { amounts })).jws);
    expect(view).toMatchObject({ budget: [{ id: 'payments/daily', posted, unit: 'cents' }] });
  });

  it('says of a call that policy only observed what policy would have done', () => {
    const input = receiptInput();
    const observed = { would: 'denied_budget', rule: 'payments/daily' } as const;
    const trace = { ...input.effect.trace, observed };
    const { jws } = signer.issue(receiptInput({ effect: { ...input.effect, trace } }));
    expect(receiptView(jws)).toMatchObject({
      policy: { outcome: 'observe', would: 'denied_budget', would_rule: 'payments/daily' },
    });
    const unnamed = { ...input.effect.trace, observed: { would: 'denied_policy', rule: null } } as const;
    const byNoRule = signer.issue(receiptInput({ effect: { ...input.effect, trace: unnamed } }));
    expect(receiptView(byNoRule.jws)).toMatchObject({
      policy: { outcome: 'observe', would: 'denied_policy', would_rule: null },
    });
    expect(receiptView(signer.issue(input).jws)).toMatchObject({ policy: { outcome: 'permit' } });
  });

  it('leaves the answer closed in a disclosure where it cannot be read any more', () => {
    const input = receiptInput();
    const { sealed, evidence, settledBy } = input;
    if (sealed === null) throw new Error('it has its salts');
    const { id, jws } = signer.issue(input);
    const disclosed = (body: KeptResult['body']) => {
      const result: KeptResult = { kind: 'http', status: 201, headers: {}, body, truncated: false };
      const receipt = { id, jws };
      const life = { state: 'committed', at: 1, settledBy, evidence, receipt, result } as const;
      const effect = { ...input.effect, life: { ...life, accepted: false, responseTruncated: false } };
      return disclosureOf(effect, sealed, receiptView(jws), null);
    };
    expect(disclosed({ kind: 'json', value: { refund: 're_9' } })['values']).toHaveProperty('response');
    const closed = disclosed({ kind: 'sealed', value: 'sealed.by.a.lost.secret' });
    expect(closed['values']).not.toHaveProperty('response');
    expect(verifyReceipt({ content: jws, trust: signer.jwks(), disclosure: closed }).verdict).toBe('VALID');
  });

  it('opens what was asked where an approver changed it, and the headers that went with the call', () => {
    const input = receiptInput();
    if (input.sealed === null) throw new Error('it has its salts');
    const asked = { ...PARAMS, amount: 9_999 };
    const sealed = { ...input.sealed, asked, headers: { sent: { 'x-tenant': 'a' }, bound: { 'x-tenant': 'a' } } };
    const { id, jws } = signer.issue({ ...input, sealed });
    const { evidence, settledBy } = input;
    // An answer of a protocol without a status.
    const result: KeptResult = { kind: 'message', body: { kind: 'json', value: { ok: 1 } }, truncated: false };
    const receipt = { id, jws };
    const life = { state: 'committed', at: 1, settledBy, evidence, receipt, result } as const;
    const effect = { ...input.effect, life: { ...life, accepted: false, responseTruncated: false } };
    const { values } = disclosureOf(effect, sealed, receiptView(jws), null);
    expect(values['asked_params']).toEqual(asked);
    expect(values['params']).toEqual(PARAMS);
    expect(values['request']).toMatchObject({ headers: { 'x-tenant': 'a' }, params: PARAMS });
    expect(values['response']).toEqual({ result: { ok: 1 } });
    const disclosure = disclosureOf(
      { ...effect, life: { ...effect.life, result: input.result } },
      sealed,
      receiptView(jws),
      null,
    );
    expect(verifyReceipt({ content: jws, trust: signer.jwks(), disclosure })).toMatchObject({ verdict: 'VALID' });
  });

  it('opens nothing that a receipt does not commit to', () => {
    const input = receiptInput({ settledBy: { by: 'probe', evidence: { seen: true } } });
    const { sealed, evidence, settledBy, result } = input;
    if (sealed === null) throw new Error('it has its salts');
    const receipt = { id: input.id, jws: 'of before' };
    const life = { state: 'committed', at: 1, settledBy, evidence, receipt, result } as const;
    const effect = { ...input.effect, life: { ...life, accepted: false, responseTruncated: false } };
    const asked = { ...sealed, asked: { amount: 1 } };
    expect(disclosureOf(effect, asked, {}, APPROVED)).toEqual({ salts: {}, values: {} });
  });

  it('writes the params of a disclosure once, though they stand in it twice', async () => {
    let reads = 0;
    const params = {
      get 'é"'() {
        reads += 1;
        return ['a', 1];
      },
    };
    const request = { headers: { b: '1', a: '2' }, params, tool_pin: 'pin', upstream_key: 'key.1' };
    const disclosure = { salts: { params: 's' }, values: { target: 't', params, request, evidence: [params] } };
    const text = JSON.stringify(disclosure);
    reads = 0;
    // Once for the two, once for the evidence, which is another value.
    expect([await disclosureText(disclosure), reads]).toEqual([text, 2]);
    const none = { salts: {}, values: { comment: 'é', request: { tool_pin: 'pin' } } };
    expect(await disclosureText(none)).toBe(JSON.stringify(none));
  });

  it('is still issued when the sealed values are gone, and then commits to nothing', () => {
    const { jws } = signer.issue(receiptInput({ sealed: null, result: null }));
    expect(receiptView(jws)['action']).toMatchObject({ target: null, params: null, idem: null });
    expect(verifyReceipt({ content: jws, trust: signer.jwks(), disclosure: null }).verdict).toBe('VALID');
  });

  it('is still issued when the answer has no canonical form', () => {
    const input = receiptInput();
    const result = {
      kind: 'http',
      status: 200,
      headers: {},
      body: { kind: 'text', value: 'half a pair \ud83d' },
      truncated: true,
    } as const;
    const { jws } = signer.issue({ ...input, result });
    expect(receiptView(jws)['upstream']).toMatchObject({ response: null, status: 201 });
  });
});

describe('the signed text', () => {
  const word = fc.string({ unit: 'binary', maxLength: 12 });
  const maybe = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: null });
  const settledBy: fc.Arbitrary<SettledBy> = fc.oneof(
    fc.constant({ by: 'owner' } as const),
    fc.record({ by: fc.constant('probe' as const), evidence: fc.constant({ b: 1, a: 2 }) }),
    fc.record({
      by: fc.constant('resolve' as const),
      keyId: word,
      user: maybe(word),
      forced: fc.boolean(),
      comment: maybe(word),
      evidence: fc.constantFrom(null, { z: 1, y: [] }),
    }),
  );

  it('is the canonical form, whatever the effect holds', () => {
    const base = receiptInput();
    fc.assert(
      fc.property(
        fc.record({
          agentId: word,
          user: maybe(word),
          rules: fc.array(fc.record({ rule: word, unknown: fc.array(word, { maxLength: 2 }) }), { maxLength: 3 }),
          observed: maybe(fc.record({ would: fc.constant('denied_policy' as const), rule: maybe(word) })),
          votes: fc.array(fc.record({ user: word, comment: maybe(word) }), { maxLength: 3 }),
          claims: fc.array(word, { maxLength: 2 }),
          erased: fc.boolean(),
          settledBy,
        }),
        ({ agentId, user, rules, observed, votes, claims, erased, settledBy: by }) => {
          const input = receiptInput({
            settledBy: by,
            ...(erased ? { sealed: null } : {}),
            approval: {
              id: 'apr_1',
              workspace: 'demo',
              effectId: 'eff_1',
              digest: 'd',
              tool: 't',
              target: 't',
              requester: { agentId, agentOwner: null, user, keyId: 'key_1', keyMadeBy: null },
              requirements: [],
              votes: votes.map((vote) => ({ ...vote, verdict: 'approve', keyId: 'k', at: 1, requirements: [] })),
              status: 'used',
              createdAt: 0,
              expiresAt: 1,
              decidedAt: 1,
              stopped: null,
              costs: [],
            },
            effect: {
              ...base.effect,
              actor: { ...base.effect.actor, agentId, user },
              claims,
              trace: {
                ...base.effect.trace,
                matched: rules.map((rule) => ({ ...rule, effect: 'allow' })),
                observed,
              },
            },
          });
          const text = Buffer.from(signer.issue(input).jws.split('.')[1]!, 'base64url').toString('utf8');
          expect(canonicalJson(JSON.parse(text))).toBe(text);
        },
      ),
    );
  });
});

describe('receipt keys', () => {
  it('are made on first start, for their owner only, and found again', async () => {
    const files = await readdir(bench.folder);
    expect(files).toEqual([expect.stringMatching(new RegExp(`^receipt-\\d{13}-${signer.kid()}\\.pem$`))]);
    expect((await stat(join(bench.folder, files[0]!))).mode & 0o777).toBe(0o600);
    expect((await stat(bench.folder)).mode & 0o777).toBe(0o700);
    expect((await bench.open()).kid()).toBe(signer.kid());
  });

  it('rotate: the new one signs, the old one still verifies, its private half is gone', async () => {
    const before = signer.issue(receiptInput());
    const old = signer.kid();
    await signer.rotate();
    await signer.rotate();
    expect(signer.kid()).not.toBe(old);
    const kids = keySet().keys.map(({ kid }) => kid);
    expect(kids).toHaveLength(3);
    expect(kids[0]).toBe(signer.kid());
    const after = signer.issue(receiptInput());
    for (const content of [before.jws, after.jws])
      expect(verifyReceipt({ content, trust: signer.jwks(), disclosure: null }).verdict).toBe('VALID');
    const again = await bench.open();
    expect(again.jwks()).toEqual(signer.jwks());
    const files = await readdir(bench.folder);
    expect(files.filter((name) => name.endsWith('.pub.pem'))).toHaveLength(2);
    const texts = await Promise.all(files.map((name) => readFile(join(bench.folder, name), 'utf8')));
    expect(texts.filter((text) => text.includes('PRIVATE KEY'))).toHaveLength(1);
  });

  it('are published with when they were made, and when the next one took their place, in seconds', async () => {
    const made = signer.jwks().keys[0]?.['iat'];
    const times = [1, 2].map((hours) => Math.floor(Date.now() / 1000) + hours * 3600);
    vi.useFakeTimers({ toFake: ['Date'] });
    try {
      for (const time of times) {
        vi.setSystemTime(time * 1000);
        await signer.rotate();
      }
    } finally {
      vi.useRealTimers();
    }
    const [first, second] = times;
    const published = [
      [second, undefined],
      [first, second],
      [made, first],
    ];
    for (const { keys } of [signer.jwks(), (await bench.open()).jwks()])
      expect(keys.map(({ iat, exp }) => [iat, exp])).toEqual(published);
  });

  it('verify what they signed also where a rotation broke off after the new one was made', async () => {
    const { jws } = signer.issue(receiptInput());
    const { keys, ...others } = bench.options();
    const make: typeof keys.make = (file, text) =>
      file.endsWith('.pub.pem') ? Promise.reject(new Error('the disk is full')) : keys.make(file, text);
    const breaking = await openSigner({ ...others, keys: { ...keys, make } });
    await expect(breaking.rotate()).rejects.toThrow('the disk is full');
    const again = await bench.open();
    expect(verifyReceipt({ content: jws, trust: again.jwks(), disclosure: null }).verdict).toBe('VALID');
  });

  it('rotate also where the clock was set back: the key made last signs', async () => {
    const old = signer.kid();
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() - 86_400_000 });
    try {
      await signer.rotate();
    } finally {
      vi.useRealTimers();
    }
    expect(signer.kid()).not.toBe(old);
    expect((await bench.open()).kid()).toBe(signer.kid());
  });

  it('publish no private half', () => {
    for (const key of keySet().keys)
      expect(
        Object.keys(key)
          .filter((name) => name !== 'exp')
          .sort(),
      ).toEqual(['alg', 'crv', 'iat', 'kid', 'kty', 'use', 'x']);
  });

  it('are refused when others may read them, when they are damaged, or are not what their name says', async () => {
    const [name = ''] = await readdir(bench.folder);
    const file = join(bench.folder, name);
    const pem = await readFile(file, 'utf8');
    await chmod(file, 0o644);
    await expect(bench.open()).rejects.toThrow(/chmod 600/);
    await chmod(file, 0o600);
    await writeFile(file, pem.slice(0, 60));
    await expect(bench.open()).rejects.toThrow(/not a key in PEM form/);
    await writeFile(file, '');
    await expect(bench.open()).rejects.toThrow(/not a key in PEM form/);
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    await writeFile(file, privateKey.export({ type: 'pkcs8', format: 'pem' }));
    await expect(bench.open()).rejects.toThrow(/not an Ed25519 key/);
    const other = await keyBench();
    await other.open();
    const [foreign = ''] = await readdir(other.folder);
    await writeFile(file, await readFile(join(other.folder, foreign), 'utf8'));
    await expect(bench.open()).rejects.toThrow(/does not hold the key that its name says/);
    await other.close();
  });

  it('say so when their folder is none', async () => {
    const file = join(bench.folder, 'file');
    await writeFile(file, '');
    const keys = { path: file, read: readKeyFile, make: makeKeyFile };
    const opening = openSigner({
      keys,
      issuer: null,
      store: { installId: 'i', health: () => ({ durability: 'fsync' }) },
      version: '0',
    });
    await expect(opening).rejects.toThrow(`${file}, where the receipt keys are kept, cannot be read (ENOTDIR).`);
  });

  it('leave other files in their folder alone', async () => {
    await writeFile(join(bench.folder, 'master'), 'not a receipt key');
    expect((await bench.open()).kid()).toBe(signer.kid());
  });
});
