import { expectTypeOf, it } from 'vitest';
import type * as wire from '../../client/src/wire-records.ts';
import type * as pages from '../../console/src/api.ts';

/* What the console takes an answer for is what the gateway answers: `npm run types` holds them against each other. */

/** A member as the records of the client name it. */
type Name<Of> = Of extends `${infer First}_${infer Rest}` ? `${First}${Capitalize<Name<Rest>>}` : Of;
type Named<Of> = Of extends readonly (infer One)[]
  ? readonly Named<One>[]
  : Of extends object
    ? { readonly [Key in keyof Of as Name<Key>]: Named<Of[Key]> }
    : Of;

it('the pages take each answer for what it is', () => {
  expectTypeOf<wire.Claim>().toExtend<Named<pages.Claim>>();
  expectTypeOf<wire.Reservation>().toExtend<Named<pages.Reservation>>();
  expectTypeOf<wire.Pause>().toExtend<Named<pages.Pause>>();
  expectTypeOf<wire.Allowance>().toExtend<Named<pages.Allowance>>();
  expectTypeOf<wire.Passkey>().toExtend<Named<pages.Passkey>>();
  expectTypeOf<wire.ApiKey>().toExtend<Named<pages.Key>>();
  expectTypeOf<wire.Effect>().toExtend<Named<pages.Effect>>();
  expectTypeOf<wire.Approval>().toExtend<Named<pages.Approval>>();
  expectTypeOf<wire.LedgerEvent>().toExtend<Named<pages.LedgerEvent>>();
  expectTypeOf<wire.Run['stages'][number]>().toExtend<Named<pages.StageOfRun>>();
});
