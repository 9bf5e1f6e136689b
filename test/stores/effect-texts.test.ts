import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeCall, decodeOutcome, encodeCall, encodeOutcome } from '../../src/records/effect-text.ts';

const plain = fc.array(fc.constantFrom('A', 'z', '0', '-', '_', '.'), { maxLength: 40 }).map((of) => of.join(''));
const odd = fc
  .array(fc.constantFrom('A', ' ', '"', '\\', '\0', '\n', '\x7f', 'é', '\u2028', '\ud800'), { maxLength: 40 })
  .map((of) => of.join(''));
const long = fc.oneof(plain, odd);
const sealed = fc.option(long);

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
    const evidence = { code: 'http_status', message: 'said "yes"', status: 201, startedAt: 1, endedAt: null };
    const result = { status: 201, headers: {}, body: { kind: 'json', value: ['"', 1] }, truncated: false } as const;
    fc.assert(
      fc.property(sealed, fc.boolean(), (jws, isKept) => {
        const said = { evidence, receipt: jws === null ? null : { id: 'rcp_1', jws }, result: isKept ? result : null };
        expect(decodeOutcome(encodeOutcome(said))).toEqual(said);
      }),
    );
  });
});
