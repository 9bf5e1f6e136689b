import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  decodeCall,
  decodeEffect,
  decodeOutcome,
  encodeCall,
  encodeLife,
  encodeOutcome,
  encodeStages,
  encodeTerms,
  stagesOf,
} from '../../src/records/effect-text.ts';
import type { Answered, KeptResult } from '../../src/effects/model/answer.ts';
import type { EffectRecord } from '../../src/effects/model/effect.ts';

const plain = fc.array(fc.constantFrom('A', 'z', '0', '-', '_', '.'), { maxLength: 40 }).map((of) => of.join(''));
const odd = fc
  .array(fc.constantFrom('A', ' ', '"', '\\', '\0', '\n', '\x7f', 'é', '\u2028', '\ud800'), { maxLength: 40 })
  .map((of) => of.join(''));
const long = fc.oneof(plain, odd);
const sealed = fc.option(long);
/** Like a receipt, but of any bytes. */
const signed = fc.tuple(plain, fc.oneof(fc.uint8Array(), fc.string()), plain).map(([head, payload, signature]) => {
  const bytes = typeof payload === 'string' ? Buffer.from(payload, 'utf8') : Buffer.from(payload);
  return `${head}.${bytes.toString('base64url')}.${signature}`;
});

const evidence = {
  code: 'http_status',
  message: 'said "yes"',
  answered: { kind: 'http', status: 201 },
  startedAt: 1,
  endedAt: null,
} as const;

describe('the texts of an effect', () => {
  it('give back the call, whatever its seal is made of', () => {
    const rest = {
      id: 'eff_1',
      workspace: 'demo',
      idempotencyKey: 'order "42"',
      fingerprint: 'fp1:x',
      action: { type: 't', tool: 'a.b', toolDigest: 'd', upstream: 'u', kind: 'write', target: 'x:1' },
      actor: {
        agentId: 'bot',
        agentOwner: null,
        keyId: 'k',
        keyKind: 'agent',
        user: null,
        keyMadeBy: null,
        via: 'mcp',
      },
      metadata: { note: ']' },
    } as const;
    fc.assert(
      fc.property(sealed, (seal) => {
        const call = { ...rest, sealed: seal };
        expect(decodeCall(encodeCall(call))).toEqual(call);
      }),
    );
  });

  it('give back the outcome, whatever its receipt is made of', () => {
    const results: fc.Arbitrary<KeptResult> = fc.record({
      kind: fc.constant('http'),
      status: fc.constantFrom(201, 500),
      headers: fc.constantFrom<Record<string, string>[]>({}, { etag: '"x"' }),
      body: fc.oneof(
        long.map((value) => ({ kind: 'sealed' as const, value })),
        fc.constant({ kind: 'json' as const, value: ['"', 1] }),
      ),
      truncated: fc.boolean(),
    });
    const answered = fc.constantFrom<Answered | null>(null, evidence.answered, { kind: 'message' });
    fc.assert(
      fc.property(fc.oneof(sealed, signed), fc.option(results), answered, (jws, result, by) => {
        const receipt = jws === null ? null : { id: 'rcp_1', jws };
        const known = { evidence: { ...evidence, answered: by }, receipt, result };
        expect(decodeOutcome(encodeOutcome(known))).toEqual(known);
      }),
    );
  });

  it('are stored again as they came, and only where nothing of them is other', () => {
    const receipt = { id: 'rcp_1', jws: `eyJh.${Buffer.from('{"v":1}').toString('base64url')}.c2ln` };
    const body = { kind: 'sealed', value: 'AQ' } as const;
    const result = { kind: 'http', status: 201, headers: {}, body, truncated: false } as const;
    const written = encodeOutcome({ evidence, receipt, result });
    const known = decodeOutcome(written);
    expect(encodeOutcome(known)).toBe(written);
    expect(encodeOutcome({ ...known, evidence: { ...evidence, code: 'other' } }).outcome).toContain('"other"');
    expect(encodeOutcome({ ...known, result: null }).outcome).not.toContain('"AQ"');
    expect(encodeOutcome({ ...known, receipt: { ...receipt, id: 'rcp_2' } }).outcome).toContain('"rcp_2"');
    const call = encodeCall(recordSaying('x', false));
    const asked = decodeCall(call);
    expect(encodeCall(asked)).toBe(call);
    for (const other of ['id', 'idempotencyKey', 'fingerprint', 'sealed'] as const)
      expect(encodeCall({ ...asked, [other]: 'other' }), other).toContain('"other"');
    expect(encodeCall({ ...asked, actor: { ...asked.actor, agentId: 'other' } })).toContain('"other"');
    expect(encodeCall({ ...asked, action: { ...asked.action, target: 'other' } })).toContain('"other"');
    expect(encodeCall({ ...asked, metadata: { other: 1 } })).toContain('"other"');
  });

  it('have the numbers that stages and their states have in every store', () => {
    const stages = [
      ['authenticate', 'passed'],
      ['validate', 'refused'],
      ['identity', 'failed'],
      ['permission', 'unknown'],
      ['policy', 'waiting'],
      ['admission', 'skipped'],
      ['approval', 'passed'],
      ['state_check', 'passed'],
      ['execute', 'passed'],
      ['receipt', 'passed'],
      ['settle', 'passed'],
    ] as const;
    const all = stages.map(([stage, status]) => ({ stage, status, startedAt: 7, durationMs: 1, detail: null }));
    const text =
      '[[0,0,7,1],[1,1,0,1],[2,2,0,1],[3,3,0,1],[4,4,0,1],[5,5,0,1],[6,0,0,1],[7,0,0,1],[8,0,0,1],[9,0,0,1],[10,0,0,1]]';
    expect(encodeStages(all, 0)).toBe(text);
    expect(stagesOf(JSON.parse(text))).toEqual(all);
    for (const unknown of [
      [11, 0, 7, 1],
      [0, 6, 7, 1],
    ] as const)
      expect(() => stagesOf([unknown])).toThrow('no stage of an effect has the numbers');
  });

  it('of which one is lost are no effect', () => {
    const record = recordSaying('x', true);
    const texts = { call: encodeCall(record), terms: encodeTerms(record), life: encodeLife(record, 1) };
    expect(() => decodeEffect({ ...texts, known: null })).toThrow('a settled effect has lost its outcome');
    const receipt = { id: 'rcp_1', jws: `eyJh.${Buffer.from('{"v":1}').toString('base64url')}.c2ln` };
    const { outcome } = encodeOutcome({ evidence, receipt, result: null });
    expect(() => decodeOutcome({ outcome, payload: null })).toThrow('a receipt has lost its payload');
    const without = encodeOutcome({ evidence, receipt: null, result: null });
    expect(() => decodeEffect({ ...texts, known: without })).toThrow('a committed effect has lost its receipt');
  });

  it('keep the payload of a receipt as the text that it is, on one line', () => {
    const payload = '{"effect":{"id":"eff_é"},"v":1}';
    const jws = `eyJh.${Buffer.from(payload).toString('base64url')}.c2ln`;
    const texts = encodeOutcome({ evidence, receipt: { id: 'rcp_1', jws }, result: null });
    expect(texts.payload).toBe(payload);
    expect(texts.outcome).not.toContain(jws.split('.')[1]);
    const [, encoded = ''] = jws.split('.');
    const odd = [`${jws}.`, `a.${encoded}=.c`, 'a.b', `a.${Buffer.from('1\n2').toString('base64url')}.c`, 'a._w.c'];
    for (const each of odd)
      expect(encodeOutcome({ evidence, receipt: { id: 'rcp_1', jws: each }, result: null }).payload).toBeNull();
  });

  it('are what JSON.stringify writes, and make the record again', () => {
    fc.assert(
      fc.property(long, fc.boolean(), (text, isCommitted) => {
        const record = recordSaying(text, isCommitted);
        const { life } = record;
        const known = life.state === 'committed' ? life : null;
        const texts = {
          call: encodeCall(record),
          terms: encodeTerms({ ...record, stages: record.stages.slice(0, 1) }),
          life: encodeLife(record, 1),
        };
        const outcome = known === null ? null : encodeOutcome(known);
        for (const each of [...Object.values(texts), outcome?.outcome ?? '1'])
          expect(each).toBe(JSON.stringify(JSON.parse(each)));
        expect(decodeEffect({ ...texts, known: outcome })).toEqual({ record, admittedStages: 1 });
      }),
    );
  });
});

/** A record with a text wherever one may stand. */
function recordSaying(text: string, isCommitted: boolean): EffectRecord {
  const fence = { epoch: 1, n: 2, nonce: text };
  const lease = { fence, owner: text, admittedAt: 1, dispatchBy: 2, leaseEnd: 3, quiesceUntil: 4 };
  const evidence = {
    code: text,
    message: text,
    answered: { kind: 'http', status: 201 },
    startedAt: 1,
    endedAt: null,
  } as const;
  const result = {
    kind: 'http',
    status: 201,
    headers: {},
    body: { kind: 'sealed', value: text },
    truncated: false,
  } as const;
  return {
    id: 'eff_1',
    workspace: text,
    idempotencyKey: text,
    fingerprint: text,
    action: { type: text, tool: text, toolDigest: text, upstream: text, kind: 'write', target: text },
    actor: { agentId: text, agentOwner: text, keyId: text, keyKind: 'agent', user: null, keyMadeBy: text, via: 'mcp' },
    createdAt: 1,
    life: isCommitted
      ? {
          state: 'committed',
          at: 5,
          settledBy: { by: 'resolve', keyId: text, user: null, forced: true, comment: text, evidence: text },
          evidence,
          receipt: { id: text, jws: text },
          result,
          accepted: true,
          responseTruncated: false,
        }
      : { state: 'executing', lease },
    attempt: 2,
    unsent: isCommitted ? 1 : 0,
    generation: 1,
    firstDispatchAt: null,
    mayHaveHappened: false,
    closed: false,
    holds: [{ budget: text, unit: text, bucket: text, window: text, amount: 3 }],
    holdState: 'held',
    claims: [text],
    uses: [{ pool: text, units: 1 }],
    trace: { policyVersion: text, matched: [], shadow: [text], observed: null },
    stages: [
      { stage: 'policy', status: 'passed', startedAt: 1, durationMs: 0.25, detail: text },
      { stage: 'execute', status: 'failed', startedAt: 2, durationMs: null, detail: null },
      { stage: 'settle', status: 'waiting', startedAt: 1, durationMs: 0, detail: text },
    ],
    metadata: { [text]: text },
    sealed: text,
  };
}
