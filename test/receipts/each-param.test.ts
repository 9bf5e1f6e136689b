import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { canonicalJson } from '../../src/json/text.ts';
import { isJsonObject, type JsonObject } from '../../src/json/value.ts';
import { commitmentIn, disclosureOf, onlyFields, commitEach } from '../../src/receipts/commitments.ts';
import { openSigner, type ReceiptSigner } from '../../src/receipts/sign.ts';
import { verifyReceipt } from '../../src/receipts/verify.ts';
import { receiptView } from '../../src/receipts/view.ts';
import { type Bench, keyBench, receiptInput } from './facts.ts';

let bench: Bench;
let signer: ReceiptSigner;
beforeAll(async () => {
  bench = await keyBench();
  signer = await openSigner({ ...bench.options(), params: 'each' });
});
afterAll(() => bench.close());

const PARAMS = { amount: 5000, 'a.b,c%': { deep: ['x'] }, note: 'canary-note', iban: 'canary-iban' };

/** A receipt of a call with these params, and what opens some fields of it. */
function disclosed(params: JsonObject, fields: readonly string[] | null, signing = signer) {
  const input = receiptInput();
  if (input.sealed === null) throw new Error('the example has a seal');
  const sealed = { ...input.sealed, params };
  const { jws } = signing.issue({ ...input, sealed });
  const payload = receiptView(jws);
  const { settledBy, evidence, result } = input;
  const life = { state: 'committed', at: 1, settledBy, evidence, receipt: { id: input.id, jws }, result } as const;
  const effect = { ...input.effect, life: { ...life, accepted: false, responseTruncated: false } };
  return { jws, payload, disclosure: onlyFields(disclosureOf(effect, sealed, payload, null), fields, payload) };
}

const verdict = (jws: string, disclosure: JsonObject) =>
  verifyReceipt({ content: jws, trust: signer.jwks(), disclosure }).verdict;

describe('one param of a call', () => {
  it('is opened, and the file holds nothing of the others but their digests', () => {
    for (const [name, value] of Object.entries(PARAMS)) {
      const { jws, disclosure } = disclosed(PARAMS, [`params.${name}`]);
      expect(disclosure?.values).toEqual({ [`params.${name}`]: value });
      expect(verdict(jws, disclosure ?? {}), name).toBe('VALID');
      const others = Object.entries(PARAMS).filter(([other]) => other !== name);
      const text = JSON.stringify(disclosure);
      for (const [other, hidden] of others) {
        expect(text).not.toContain(other);
        expect(text).not.toContain(canonicalJson(hidden));
      }
      expect(disclosure?.leaves?.['params']).toHaveLength(4);
    }
  });

  it('is shown by svc verify, and of a long one the beginning', () => {
    const shown = (note: string) => {
      const { jws, disclosure } = disclosed({ ...PARAMS, note }, ['params.note']);
      const { checks } = verifyReceipt({ content: jws, trust: signer.jwks(), disclosure });
      return checks.find(({ name }) => name === 'disclosure')?.detail;
    };
    expect(shown('canary')).toBe('params.note is what the receipt commits to: "canary".');
    const long = shown(`${'n'.repeat(5_000)}end`) ?? '';
    expect(long).toContain('n'.repeat(150));
    expect(long).not.toContain('end');
    expect(long.length).toBeLessThan(300);
  });

  it('has a salt from which neither those of the others follow nor that of all', () => {
    const salts = Object.keys(PARAMS).map(
      (name) => disclosed(PARAMS, [`params.${name}`]).disclosure?.salts[`params.${name}`],
    );
    expect(new Set(salts).size).toBe(4);
    expect(salts).not.toContain(disclosed(PARAMS, ['params']).disclosure?.salts['params']);
  });

  it('is committed to as the documentation says, which takes no line of ours to check', () => {
    const { payload, disclosure } = disclosed(PARAMS, ['params.amount']);
    const sha = (...parts: readonly (Buffer | string)[]) =>
      createHash('sha256')
        .update(Buffer.concat(parts.map((part) => Buffer.from(part))))
        .digest();
    const own = disclosure?.salts['params.amount'];
    const leaves = disclosure?.leaves?.['params'];
    if (typeof own !== 'string' || !Array.isArray(leaves))
      throw new Error('a disclosure of one param has the digests of all');
    const salt = Buffer.from(own, 'base64url');
    expect(leaves).toContain(sha(salt, '["amount",5000]').toString('base64url'));
    const bytes = leaves.map((leaf) => Buffer.from(String(leaf), 'base64url')).toSorted(Buffer.compare);
    expect(commitmentIn(payload, 'params')).toBe(`sm1:${sha('sm1:', ...bytes).toString('base64url')}`);
  });

  it('all of them are opened together too, and any edit is seen', () => {
    const { jws, disclosure } = disclosed(PARAMS, ['params', 'target']);
    expect(disclosure).not.toHaveProperty('leaves');
    expect(verdict(jws, disclosure ?? {})).toBe('VALID');
    const values = disclosure?.values ?? {};
    for (const params of [{ ...PARAMS, amount: 5001 }, { ...PARAMS, more: 1 }, { amount: 5000 }, {}, [], 'x'])
      expect(verdict(jws, { ...disclosure, values: { ...values, params } }), JSON.stringify(params)).toBe('INVALID');
  });

  it.each<[string, (good: Good) => JsonObject, string]>([
    ['another value', (good) => ({ ...good, values: { 'params.amount': 50 } }), 'INVALID'],
    ['the number as a text', (good) => ({ ...good, values: { 'params.amount': '5000' } }), 'INVALID'],
    [
      'under another name',
      ({ salts, leaves }) => ({
        salts: { 'params.fee': salts['params.amount'] ?? null },
        values: { 'params.fee': 5000 },
        leaves,
      }),
      'INVALID',
    ],
    ['a leaf left out', (good) => ({ ...good, leaves: { params: good.all.slice(1) } }), 'INVALID'],
    ['a leaf twice', (good) => ({ ...good, leaves: { params: [...good.all, good.all[0] ?? ''] } }), 'INVALID'],
    ['a leaf more', (good) => ({ ...good, leaves: { params: [...good.all, 'A'.repeat(43)] } }), 'INVALID'],
    [
      'a leaf in another spelling',
      (good) => ({ ...good, leaves: { params: [`${good.all[0]}=`, ...good.all.slice(1)] } }),
      'INVALID',
    ],
    ['leaves that are none', (good) => ({ ...good, leaves: { params: [1, null, {}] } }), 'INVALID'],
    ['no leaves', ({ salts, values }) => ({ salts, values }), 'UNDECIDABLE'],
    ['leaves of something else', (good) => ({ ...good, leaves: { asked_params: good.all } }), 'UNDECIDABLE'],
    ['no salt', (good) => ({ ...good, salts: {} }), 'UNDECIDABLE'],
    ['a salt that is too short', (good) => ({ ...good, salts: { 'params.amount': 'AAAA' } }), 'INVALID'],
    [
      'a param as if it were all',
      (good) => ({ salts: { params: good.salts['params.amount'] ?? null }, values: { params: { amount: 5000 } } }),
      'INVALID',
    ],
  ])('%s: not valid', (_, edit, expected) => {
    const { jws, disclosure } = disclosed(PARAMS, ['params.amount']);
    const { salts = {}, values = {}, leaves = {} } = disclosure ?? {};
    const all = leaves['params'];
    const texts = Array.isArray(all) ? all.map(String) : [];
    expect(verdict(jws, edit({ salts, values, leaves, all: texts }))).toBe(expected);
  });

  it('of another call is not of this one', () => {
    const other = disclosed({ ...PARAMS, note: 'other' }, ['params.amount']).disclosure ?? {};
    expect(verdict(disclosed(PARAMS, null).jws, other)).toBe('INVALID');
  });

  it('has a commitment for all params that there can be, and each opens', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue(), { minKeys: 1, maxKeys: 8 }), (made) => {
        const params: unknown = JSON.parse(JSON.stringify(made));
        fc.pre(isJsonObject(params as JsonObject) && JSON.stringify(params).isWellFormed());
        const of = params as JsonObject;
        const { jws, payload } = disclosed(of, null);
        expect(commitmentIn(payload, 'params')).toMatch(/^sm1:/);
        for (const name of Object.keys(of)) {
          if (name === '') continue;
          const { disclosure } = disclosed(of, [`params.${name}`]);
          expect(verdict(jws, disclosure ?? {})).toBe('VALID');
        }
      }),
    );
  });

  it('is opened with all others where there are more than 256, or none', () => {
    const salt = Buffer.alloc(16, 1);
    const many = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, n) => [`p${n}`, n]));
    expect(commitEach(salt, many(256))).toMatch(/^sm1:/);
    expect(commitEach(salt, many(257))).toBeNull();
    expect(commitEach(salt, {})).toBeNull();
    const { jws, payload, disclosure } = disclosed(many(257), ['params']);
    expect(commitmentIn(payload, 'params')).toMatch(/^sc1:/);
    expect(verdict(jws, disclosure ?? {})).toBe('VALID');
    expect(disclosed(many(257), ['params.p1']).disclosure).toBeNull();
  });

  it('where they are committed to together, nothing opens one of them', async () => {
    const together = await bench.open();
    const { jws, payload, disclosure } = disclosed(PARAMS, ['params.amount'], together);
    expect(commitmentIn(payload, 'params')).toMatch(/^sc1:/);
    expect(disclosure).toBeNull();
    const made = disclosed(PARAMS, ['params.amount']).disclosure ?? {};
    expect(verdict(jws, made)).toBe('UNDECIDABLE');
  });
});

interface Good {
  readonly salts: JsonObject;
  readonly values: JsonObject;
  readonly leaves: JsonObject;
  /** The leaves. */
  readonly all: readonly string[];
}
