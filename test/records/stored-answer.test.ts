import { describe, expect, it } from 'vitest';
import type { KeptResult } from '../../src/effects/model/answer.ts';
import type { EffectRecord, Evidence } from '../../src/effects/model/effect.ts';
import { decodeEffect, decodeOutcome, encodeLife, encodeOutcome } from '../../src/records/effect-text.ts';
import { settlementTexts } from '../../src/records/settlement-text.ts';
import { receiptInput } from '../receipts/facts.ts';

/*
 * Answers over HTTP are stored without the name of their kind.
 */
const SETTLED =
  '["http_status","said \\"yes\\"",201,1,null,"rcp_1","jws",{"status":201,"headers":{"etag":"x"},"body":{"kind":"sealed","value":"s"},"truncated":false},"digest"]';
const UNANSWERED = '["reset","cut",null,1,2,null,null,null,null]';
const LOST =
  '{"state":"unknown","at":5,"lease":{"fence":{"epoch":1,"n":1,"nonce":"n"},"owner":"o","admittedAt":1,"dispatchBy":2,"leaseEnd":3,"quiesceUntil":4},"evidence":{"sent":"digest","code":"http_status","message":"m","status":500,"startedAt":1,"endedAt":2}}';
const SPILLED =
  '{"workspace":"demo","effectId":"eff_1","fence":{"epoch":1,"n":1,"nonce":"n"},"outcome":{"kind":"failed","result":{"status":422,"headers":{},"body":{"kind":"text","value":"no"},"truncated":true}},"settledBy":{"by":"owner"},"evidence":{"sent":"digest","code":"http_status","message":"m","status":422,"startedAt":1,"endedAt":2},"stages":[]}';
const SEEN: Evidence = {
  sent: 'digest',
  code: 'http_status',
  message: 'm',
  answered: { kind: 'http', status: 500 },
  startedAt: 1,
  endedAt: 2,
};

const CALL =
  '["eff_1","demo","k","fp",["t","a.b","d","u","write","x:1"],["bot",null,"key",  "agent",null,null,"proxy"],null,null]';

const recordOf = (life: string): EffectRecord => {
  const terms = '[{"policyVersion":"","matched":[],"shadow":[],"observed":null},[],[]]';
  const text = `[1,${life},1,1,1,false,false,"none",[],[],[]]`;
  return decodeEffect({ call: CALL, terms, life: text, known: null }).record;
};

describe('answers over HTTP are stored as they always were', () => {
  it('beside a settled effect', () => {
    const known = decodeOutcome({ outcome: SETTLED, payload: null });
    expect(known.evidence.answered).toEqual({ kind: 'http', status: 201 });
    expect(known.result).toMatchObject({ kind: 'http', status: 201, headers: { etag: 'x' } });
    expect(encodeOutcome(known)).toEqual({ outcome: SETTLED, payload: null });
    const unanswered = decodeOutcome({ outcome: UNANSWERED, payload: null });
    expect(unanswered).toMatchObject({ evidence: { answered: null }, result: null });
    expect(encodeOutcome(unanswered)).toEqual({ outcome: UNANSWERED, payload: null });
  });

  it('in an unknown effect', () => {
    const lost = recordOf(LOST);
    expect(lost.life).toMatchObject({ evidence: SEEN });
    expect(encodeLife(lost, 0)).toContain(LOST);
  });

  it('in a settlement that waits for the store', () => {
    const request = settlementTexts.read(SPILLED);
    expect(request).toMatchObject({
      evidence: { answered: { kind: 'http', status: 422 } },
      outcome: { result: { kind: 'http', status: 422, truncated: true } },
    });
    expect(settlementTexts.write(request)).toBe(SPILLED);
  });
});

describe('answers of another kind', () => {
  const evidence: Evidence = { ...SEEN, answered: { kind: 'message' } };
  const result: KeptResult = { kind: 'message', body: { kind: 'json', value: { isError: true } }, truncated: false };

  it('name it, and are read as they were', () => {
    const known = { evidence, receipt: { id: 'rcp_1', jws: 'jws' }, result };
    expect(decodeOutcome(encodeOutcome(known))).toEqual(known);
    const { effect } = receiptInput();
    const lease = effect.life.state === 'executing' ? effect.life.lease : null;
    if (lease === null) throw new Error(effect.life.state);
    const life = { state: 'unknown', at: 5, lease, evidence } as const;
    const text = encodeLife({ ...effect, life }, 0);
    expect(recordOf(JSON.stringify(JSON.parse(text)[1])).life).toEqual(life);
    const settlement = { ...settlementTexts.read(SPILLED), evidence, outcome: { kind: 'failed', result } } as const;
    expect(settlementTexts.read(settlementTexts.write(settlement))).toEqual(settlement);
  });
});
