import { expect, it } from 'vitest';
import { NO_HEADERS } from '../../src/effects/model/action-call.ts';
import { NewProposal } from '../../src/effects/run/check-call.ts';

const CALL = { params: { a: 1 }, headers: NO_HEADERS, stateCheck: null, claimId: null, reservationId: null };

it('nothing is sealed before somebody needs it, and then once: a seal is another each time', () => {
  let seals = 0;
  const proposal = new NewProposal(
    {
      newId: (prefix) => `${prefix}_1`,
      newNonce: () => 'nonce',
      secrets: {
        newSalts: () => Buffer.alloc(0),
        seal: () => {
          seals += 1;
          return `seal ${seals}`;
        },
      },
    },
    'demo',
    'fingerprint',
    { ...CALL, requestIp: null },
  );
  proposal.keepFiles({ abc: 'AA==' });
  expect(seals).toBe(0);
  expect([proposal.sealedWithFiles(), proposal.sealedWithFiles()]).toEqual(['seal 1', 'seal 1']);
  expect([proposal.sealed(), proposal.sealed()]).toEqual(['seal 2', 'seal 2']);
});
