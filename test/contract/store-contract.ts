import { describe, expect, it } from 'vitest';
import { LEDGER_KINDS } from '../../src/effects/model/ledger.ts';
import { describeAdmission } from './admission.ts';
import { describeGenerations } from './generations.ts';
import { describeApprovals } from './approvals.ts';
import { describeAllowances } from './allowances.ts';
import { describeChangedCalls } from './changed-calls.ts';
import { describeBeyondLimits } from './beyond-limits.ts';
import { describeBudgets } from './budgets.ts';
import { type Capabilities, kindsSeen, type OpenStore } from './fixture.ts';
import { describeEntities } from './entities.ts';
import { describeErasure } from './erasure.ts';
import { describeGranted } from './granted.ts';
import { describeHoldings } from './holdings.ts';
import { describeKeys } from './keys.ts';
import { describePasskeys } from './passkeys.ts';
import { describeLeftOvers } from './left-overs.ts';
import { describeLedger } from './ledger.ts';
import { describeLedgerPages } from './ledger-pages.ts';
import { describeProbing } from './probing.ts';
import { describeNotifications } from './notifications.ts';
import { describeObserving } from './observing.ts';
import { describeRepresentation } from './representation.ts';
import { describeRetention } from './retention.ts';
import { describeSettlement } from './settlement.ts';

/** Every promise of the port `EffectStore`, for one store. All stores are held to the same ones. */
export function describeStoreContract(name: string, open: OpenStore, capabilities: Capabilities): void {
  const left =
    capabilities.noClock === null
      ? ''
      : ` (but for those that need a clock of the test's own: ${capabilities.noClock})`;
  describe(`${name} keeps the store's promises${left}`, () => {
    describeAdmission(open, capabilities);
    describeGenerations(open, capabilities);
    describeSettlement(open, capabilities);
    describeProbing(open, capabilities);
    describeLeftOvers(open, capabilities);
    describeBudgets(open, capabilities);
    describeBeyondLimits(open, capabilities);
    describeApprovals(open, capabilities);
    describeChangedCalls(open, capabilities);
    describeAllowances(open, capabilities);
    describeGranted(open, capabilities);
    describeErasure(open, capabilities);
    describeHoldings(open, capabilities);
    describeLedger(open, capabilities);
    describeLedgerPages(open, capabilities);
    describeKeys(open, capabilities);
    describePasskeys(open, capabilities);
    describeEntities(open, capabilities);
    describeNotifications(open, capabilities);
    describeObserving(open, capabilities);
    describeRepresentation(open, capabilities);
    // All of it is about time that passes.
    if (capabilities.noClock === null) describeRetention(open, capabilities);
    it('fsck was silent about every event of effects and their money', () => {
      const ofEffects = LEDGER_KINDS.filter((kind) =>
        /^(effect|approval|allowance|state|execution|budget|receipt)\./.test(kind),
      );
      expect(ofEffects.filter((kind) => !kindsSeen.has(kind))).toEqual([]);
    });
  });
}
