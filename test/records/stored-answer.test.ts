import { describe, expect, it } from 'vitest';
import type { KeptResult } from '../../src/effects/model/answer.ts';
import type { EffectRecord, Evidence } from '../../src/effects/model/effect.ts';
import { decodeEffect, decodeOutcome, encodeLife, encodeOutcome } from '../../src/records/effect-text.ts';
import { settlementTexts } from '../../src/records/settlement-text.ts';
import { receiptInput } from '../receipts/facts.ts';

/*
 * The bytes below were written by versions that knew no upstream but HTTP, and kept stages by name. They are in stores.
 */
const SETTLED =
  '["http_status","said \\"yes\\"",201,1,null,"rcp_1","jws",{"status":201,"headers":{"etag":"x"},"body":{"kind":"sealed","value":"s"},"truncated":false},"digest"]';
const UNANSWERED = '["reset","cut",null,1,2,null,null,null,null]';
const LOST =
  '{"state":"unknown","at":5,"lease":{"fence":{"epoch":1,"n":1,"nonce":"n"},"owner":"o","admittedAt":1,"dispatchBy":2,"leaseEnd":3,"quiesceUntil":4},"evidence":{"sent":"digest","code":"http_status","message":"m","status":500,"startedAt":1,"endedAt":2}}';
const SPILLED =
  '{"workspace":"demo","effectId":"eff_1","fence":{"epoch":1,"n":1,"nonce":"n"},"outcome":{"kind":"failed","result":{"status":422,"headers":{},"body":{"kind":"text","value":"no"},"truncated":true}},"settledBy":{"by":"owner"},"evidence":{"sent":"digest","code":"http_status","message":"m","status":422,"startedAt":1,"endedAt":2},"stages":[]}';
/** In stores of format 1, the outcome of a settled effect could stand in its life. */
const OF_FORMAT_1 =
  '{"state":"failed","at":5,"settledBy":{"by":"owner"},"evidence":{"code":"http_status","message":"m","status":422,"startedAt":1,"endedAt":2},"result":{"status":422,"headers":{},"body":{"kind":"json","value":{}},"truncated":false}}';

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
  return decodeEffect({ call: CALL, terms, life: text, said: null }).record;
};

describe('answers over HTTP are stored as they always were', () => {
  it('beside a settled effect', () => {
    const said = decodeOutcome({ outcome: SETTLED, payload: null });
    expect(said.evidence.answered).toEqual({ kind: 'http', status: 201 });
    expect(said.result).toMatchObject({ kind: 'http', status: 201, headers: { etag: 'x' } });
    expect(encodeOutcome(said)).toEqual({ outcome: SETTLED, payload: null });
    const unanswered = decodeOutcome({ outcome: UNANSWERED, payload: null });
    expect(unanswered).toMatchObject({ evidence: { answered: null }, result: null });
    expect(encodeOutcome(unanswered)).toEqual({ outcome: UNANSWERED, payload: null });
  });

  it('with the names of their stages', () => {
    const named = '["execute","failed",7,0.5,"http_status"],["settle","passed",9,null,null]';
    const life = `[1,{"state":"denied","at":5,"refusal":{}},1,1,1,false,false,"none",[],[],[${named}]]`;
    const terms = `[{"policyVersion":"","matched":[],"shadow":[],"observed":null},[],[["policy","passed",5,1,"a/b"]]]`;
    const { record } = decodeEffect({ call: CALL, terms, life, said: null });
    expect(record.stages).toEqual([
      { stage: 'policy', status: 'passed', startedAt: 5, durationMs: 1, detail: 'a/b' },
      { stage: 'execute', status: 'failed', startedAt: 7, durationMs: 0.5, detail: 'http_status' },
      { stage: 'settle', status: 'passed', startedAt: 9, durationMs: null, detail: null },
    ]);
    expect(() =>
      decodeEffect({ call: CALL, terms: terms.replace('"policy","passed"', '11,0'), life, said: null }),
    ).toThrow('no stage of an effect has the numbers 11 and 0');
  });

  it('in an unknown effect, and in a settled one of format 1', () => {
    const lost = recordOf(LOST);
    expect(lost.life).toMatchObject({ evidence: SEEN });
    expect(encodeLife(lost, 0, false)).toContain(LOST);
    const failed = recordOf(OF_FORMAT_1);
    expect(failed.life).toMatchObject({ evidence: { answered: { status: 422 } }, result: { kind: 'http' } });
    expect(encodeLife(failed, 0, false)).toContain(OF_FORMAT_1);
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
    const said = { evidence, receipt: { id: 'rcp_1', jws: 'jws' }, result };
    expect(decodeOutcome(encodeOutcome(said))).toEqual(said);
    const { effect } = receiptInput();
    const lease = effect.life.state === 'executing' ? effect.life.lease : null;
    if (lease === null) throw new Error(effect.life.state);
    const life = { state: 'unknown', at: 5, lease, evidence } as const;
    const text = encodeLife({ ...effect, life }, 0, false);
    expect(recordOf(JSON.stringify(JSON.parse(text)[1])).life).toEqual(life);
    const settlement = { ...settlementTexts.read(SPILLED), evidence, outcome: { kind: 'failed', result } } as const;
    expect(settlementTexts.read(settlementTexts.write(settlement))).toEqual(settlement);
  });
});
