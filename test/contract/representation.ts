import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/json/value.ts';
import { type Capabilities, type OpenStore, useStore } from './fixture.ts';
import {
  admitRequest,
  claimRequest,
  committed,
  dispatched,
  newId,
  permit,
  budgetOf,
  settleRequest,
  WORKSPACE,
} from './requests.ts';

const STRINGS: readonly (readonly [string, string])[] = [
  ['an empty string', ''],
  ['a space', ' '],
  ['lower case', 'straße'],
  ['upper case', 'STRASSE'],
  ['a composed letter', 'caf\u00e9'],
  ['the same letter decomposed', 'cafe\u0301'],
  ['an emoji', '👩‍💻'],
  ['right-to-left text', 'שלום'],
  ['a NUL and what follows', 'a\u0000b'],
  ['a NUL and something else', 'a\u0000c'],
  ['control characters', '\u0001\u0002\u007f\u2028'],
  ['quotes and backslashes', `"'\\%_`],
  ['SQL', `'; DROP TABLE effects; --`],
  ['braces', '{ws}:*?[a-z]'],
  ['the name of a prototype', '__proto__'],
  ['64 KiB', 'x'.repeat(65_536)],
  ['64 KiB that differ at the end', `${'x'.repeat(65_535)}y`],
];

export function describeRepresentation(open: OpenStore, capabilities: Capabilities): void {
  describe('representation', () => {
    const at = useStore(open, capabilities);

    it('tells idempotency keys apart that differ in anything', async () => {
      const made = new Map<string, string>();
      for (const [, key] of STRINGS) {
        const { effect } = await dispatched(at.store, { idempotencyKey: key, fingerprint: 'same' });
        made.set(key, effect.id);
      }
      await at.reopen();
      for (const [what, key] of STRINGS) {
        const again = await at.store.admit(admitRequest({ idempotencyKey: key, fingerprint: 'same' }));
        expect(again, what).toMatchObject({ kind: 'existing', effect: { id: made.get(key), idempotencyKey: key } });
      }
    });

    it.each(STRINGS)('gives %s back as it was, wherever it stands', async (_, text) => {
      const metadata: JsonObject = { text, list: [text, { nested: text }] };
      const request = admitRequest({
        fingerprint: text,
        metadata,
        sealed: text,
        action: { target: text, upstream: text },
        actor: { agentId: text, user: text },
        verdict: permit([budgetOf(10, 1, { bucket: text, unit: text })]),
      });
      const admission = await at.store.admit(request);
      if (admission.kind !== 'dispatch') throw new Error(admission.kind);
      await at.store.settle(
        settleRequest(admission.effect, {
          kind: 'committed',
          receipt: { id: 'rcp_1', jws: text },
          result: {
            kind: 'http',
            status: 200,
            headers: { 'x-text': text },
            body: { kind: 'text', value: text },
            truncated: false,
          },
          accepted: false,
          responseTruncated: false,
        }),
      );
      await at.store.append(WORKSPACE, [
        { kind: 'policy.rejected', effectId: null, actor: { type: 'gateway', id: text }, data: { text } },
      ]);
      await at.reopen();
      expect(await at.store.effect(WORKSPACE, request.effectId)).toMatchObject({
        fingerprint: text,
        metadata,
        sealed: text,
        action: { target: text, upstream: text },
        actor: { agentId: text, user: text },
        holds: [{ bucket: text, unit: text }],
        life: { receipt: { jws: text }, result: { headers: { 'x-text': text }, body: { value: text } } },
      });
      expect(await at.store.budgets(WORKSPACE)).toMatchObject([{ bucket: text, unit: text, spent: 1 }]);
      expect((await at.store.ledger(WORKSPACE, 0, 100)).at(-1)).toMatchObject({ actor: { id: text }, data: { text } });
    });

    it.each(STRINGS)('claims %s as a target of its own', async (_, target) => {
      expect(await at.store.takeClaim(claimRequest(target))).toMatchObject({ kind: 'made', claim: { target } });
      expect(await at.store.takeClaim(claimRequest(`${target}.`, { agentId: 'other-bot' }))).toMatchObject({
        kind: 'made',
      });
      expect(await at.store.takeClaim(claimRequest(target, { agentId: 'other-bot' }))).toMatchObject({ kind: 'held' });
    });

    it('keeps every JSON value of metadata and results', async () => {
      const metadata: JsonObject = JSON.parse(
        '{"z":1,"a":{"__proto__":{"admin":true},"constructor":null},"n":[0,-1,1.5,1e21,9007199254740991,-9007199254740991,true,false,null,[],{}],"":""}',
      );
      const { effect } = await dispatched(at.store, { metadata });
      await at.store.settle(settleRequest(effect, committed()));
      await at.reopen();
      const read = await at.store.effect(WORKSPACE, effect.id);
      expect(JSON.stringify(read?.metadata)).toBe(JSON.stringify(metadata));
    });

    it('keeps times and numbers beyond 32 bits', async () => {
      const { effect } = await dispatched(at.store);
      const evidence = {
        code: 'http_status',
        message: '',
        answered: { kind: 'http', status: 201 } as const,
        startedAt: 2 ** 52 - 1,
        endedAt: 2 ** 52,
      };
      await at.store.settle(settleRequest(effect, { kind: 'failed', result: null }, { evidence }));
      await at.reopen();
      expect(await at.store.effect(WORKSPACE, effect.id)).toMatchObject({ life: { evidence } });
    });

    it('refuses nobody because of what another call in the same moment does', async () => {
      const taken = newId('eff');
      await dispatched(at.store, { effectId: taken });
      const answers = await Promise.allSettled([
        at.store.admit(admitRequest()),
        at.store.admit(admitRequest({ effectId: taken })),
        at.store.admit(admitRequest()),
        at.store.append(WORKSPACE, []),
      ]);
      expect(answers.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled', 'fulfilled']);
      expect((await at.store.ledger(WORKSPACE, 0, 100)).map(({ seq }) => seq)).toEqual([1, 2, 3]);
    });
  });
}
