import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Answered, KeptMessage, KeptResult, MessageAnswer } from '../../src/effects/model/answer.ts';
import { NO_HEADERS } from '../../src/effects/model/action-call.ts';
import type { Evidence } from '../../src/effects/model/effect.ts';
import { NO_FILES } from '../../src/effects/model/files.ts';
import type { RunOutcome } from '../../src/effects/model/outcome.ts';
import type { Dispatch, UpstreamPort, UpstreamResult } from '../../src/effects/upstream.ts';
import { runEffect } from '../../src/effects/run/run-effect.ts';
import type { Json } from '../../src/json/value.ts';
import { verifyReceipt } from '../../src/receipts/verify.ts';
import { type Rig, startRig } from '../api/rig.ts';

/*
 * An upstream of another kind: a function in this process. It takes params and gives back a message, or breaks off.
 * What it says goes through the core, the store and the receipts as they are; nothing here is of any protocol.
 */

let rig: Rig;
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.close());

/** What the function does with a payment of this name. */
const REFUSES = 'pay_closed';
const BREAKS_OFF = 'pay_stuck';

const done: string[] = [];
const answers: MessageAnswer[] = [];

function refundInProcess({ params, effectId }: Dispatch): Json {
  if (params['payment_id'] === REFUSES) return { isError: true, content: [{ type: 'text', text: 'It is closed.' }] };
  done.push(effectId);
  if (params['payment_id'] === BREAKS_OFF) throw new Error('the worker ended in the middle');
  return { isError: false, content: [{ type: 'text', text: `refund ${done.length}` }] };
}

/** A value whose members may not be read, beside those that are named and those that JSON.stringify looks for. */
function guarded<Of extends object>(value: Of, ...may: readonly (keyof Of & string)[]): Of {
  const open: readonly string[] = [...may, 'toJSON'];
  return new Proxy(value, {
    get(target, name, receiver) {
      if (typeof name === 'string' && !open.includes(name)) throw new Error(`the core asked an answer for ${name}`);
      return Reflect.get(target, name, receiver);
    },
  });
}

const inProcess: UpstreamPort = {
  readState: async () => ({ kind: 'read', state: { status: 'open' } }),
  async send(dispatch): Promise<UpstreamResult> {
    const seen = (code: string, message: string, hasAnswered: boolean): Evidence => ({
      code,
      message,
      answered: hasAnswered ? guarded<Answered>({ kind: 'message' }, 'kind') : null,
      startedAt: 1_000,
      endedAt: 2_000,
    });
    const gate = dispatch.gate();
    if (gate !== 'go') return { kind: 'held_back', by: gate, evidence: seen('not_dispatched', 'held back', false) };
    try {
      const message = refundInProcess(dispatch);
      const answer = guarded<MessageAnswer>({ kind: 'message', message });
      answers.push(answer);
      const kept: KeptMessage = { kind: 'message', body: { kind: 'json', value: message }, truncated: false };
      const result = guarded<KeptResult>(kept, 'kind', 'body', 'truncated');
      const isError = JSON.stringify(message).startsWith('{"isError":true');
      if (isError) return { kind: 'failed', evidence: seen('tool_error', 'the tool says no', true), answer, result };
      const evidence = seen('tool_result', 'the tool answered', true);
      return { kind: 'committed', evidence, answer, result, accepted: false, responseTruncated: false };
    } catch (error) {
      return { kind: 'unknown', evidence: seen('broke_off', String(error), false) };
    }
  },
};

let calls = 0;

async function refund(paymentId: string, key = `in-process-${(calls += 1)}`): Promise<RunOutcome> {
  const principal = await rig.ports.authenticate(rig.keys.account);
  if ('failure' in principal) throw new Error(principal.failure);
  const result = await runEffect(
    { ...rig.core, upstream: inProcess },
    {
      principal,
      via: 'effects_api',
      workspace: 'demo',
      agentId: 'bot',
      actionType: null,
      tool: 'payments.refund',
      target: null,
      params: { payment_id: paymentId, amount: 100, currency: 'EUR' },
      files: NO_FILES,
      headers: NO_HEADERS,
      idempotencyKey: key,
      stateCheck: null,
      claimId: null,
      reservationId: null,
      metadata: null,
      proxied: null,
      requestIp: null,
      stages: [],
    },
  );
  if (result.kind !== 'outcome') throw new Error(JSON.stringify(result));
  return result.outcome;
}

const shown = async (id: string) => (await rig.send('GET', `/v1/workspaces/demo/effects/${id}`)).json['effect'];
const ledgerOf = async (id: string) =>
  (await rig.core.store.effectLedger('demo', id)).map(({ kind, data }) => ({ kind, data }));

describe('an upstream of another kind', () => {
  test('its answer commits an effect, is handed on untouched, and is under the receipt', async () => {
    const outcome = await refund('pay_1');
    if (outcome.decision !== 'committed') throw new Error(outcome.decision);
    const message = { isError: false, content: [{ type: 'text', text: `refund ${done.length}` }] };
    expect(done.at(-1)).toBe(outcome.effectId);
    expect(outcome.answer).toBe(answers.at(-1));

    const effect = await shown(outcome.effectId);
    expect(effect).toMatchObject({
      state: 'committed',
      result: message,
      evidence: { code: 'tool_result', status: null },
    });
    expect(effect).not.toHaveProperty('upstream_status');
    expect(await ledgerOf(outcome.effectId)).toContainEqual({
      kind: 'execution.succeeded',
      data: { attempt: 1, code: 'tool_result', status: null },
    });

    const record = await rig.core.store.effect('demo', outcome.effectId);
    const disclosure = record === null ? null : rig.ports.receipts.disclosure(record, outcome.receipt.jws, null);
    expect(disclosure).toHaveProperty('values.response', { result: message });
    const trust = rig.ports.receipts.jwks();
    const verified = verifyReceipt({ content: outcome.receipt.jws, trust, disclosure });
    expect(verified.verdict).toBe('VALID');
    expect(rig.ports.receipts.view(outcome.receipt.jws)['upstream']).toMatchObject({ status: null });
  });

  test('a duplicate gets the message that was kept, and nothing runs again', async () => {
    const first = await refund('pay_2', 'twice');
    const before = done.length;
    const again = await refund('pay_2', 'twice');
    expect(done).toHaveLength(before);
    expect(again).toMatchObject({
      decision: 'duplicate_blocked',
      effectId: first.effectId,
      result: { kind: 'message', body: { kind: 'json', value: { isError: false } }, truncated: false },
    });
  });

  test('its refusal fails the effect and is kept', async () => {
    const outcome = await refund(REFUSES);
    expect(outcome).toMatchObject({ decision: 'failed', reason: { code: 'upstream_refused' } });
    expect(await shown(outcome.effectId)).toMatchObject({
      state: 'failed',
      result: { isError: true },
      evidence: { code: 'tool_error', status: null },
    });
    expect((await ledgerOf(outcome.effectId)).map(({ kind }) => kind)).toContain('execution.failed');
  });

  test('that breaks off in the middle leaves an unknown effect', async () => {
    const before = done.length;
    const outcome = await refund(BREAKS_OFF);
    expect(done).toHaveLength(before + 1);
    expect(outcome.decision).toBe('unknown_effect');
    expect(await shown(outcome.effectId)).toMatchObject({
      state: 'unknown',
      evidence: { code: 'broke_off', status: null },
    });
    expect((await ledgerOf(outcome.effectId)).map(({ kind }) => kind)).toContain('execution.lost');
  });
});
