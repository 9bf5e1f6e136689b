import { fieldsOf, textsOf } from './connection.ts';
import type { Fleet } from './fleet.ts';
import type { Calls } from './calls.ts';
import { fromPlainText, keyOf, metaKey } from './names.ts';

/** What a gateway has in force, as digests. */
export interface InForceDigests {
  readonly policies: string;
  readonly configuration: string;
}

/** Where the gateways of an installation say what each has in force. */
export interface Board {
  /** Says it to the others, and again where it is no longer there. Call it when the policies have been activated. */
  announce(digests: InForceDigests): void;
  /** Looks at what the others say. */
  look(): Promise<void>;
  /** The other gateways that are registered, by name. */
  others(): ReadonlyMap<string, InForceDigests>;
  /** Version of the policies that admissions must have seen; `null` until it is known. */
  policies(): string | null;
  leave(): Promise<void>;
}

/** Hash in the installation: gateway → digests. */
const BOARD = 'on';

export function createBoard(frame: Pick<Calls, 'commands'>, fleet: Fleet, gatewayId: string): Board {
  let own: string | null = null;
  let policies: string | null = null;
  let others: ReadonlyMap<string, InForceDigests> = new Map();
  let told = 0;

  async function look(): Promise<void> {
    const before = told;
    const [board, registered, version] = await frame.commands('', [
      ['HGETALL', keyOf('', BOARD)],
      ['HKEYS', keyOf('', 'gw')],
      ['HGET', metaKey(''), 'policy'],
    ]);
    const there = fieldsOf(textsOf(board));
    others = new Map(
      textsOf(registered).flatMap((gateway) => {
        const said = there.get(gateway);
        return said === undefined || gateway === gatewayId ? [] : [[gateway, JSON.parse(said) as InForceDigests]];
      }),
    );
    // A look that began before this gateway activated its own is out of date.
    if (before === told && typeof version === 'string') policies = fromPlainText(version);
    if (own === null || there.get(gatewayId) === own || !fleet.attached().has('')) return;
    await frame.commands('', [
      ['HSET', keyOf('', BOARD), gatewayId, own],
      ['PUBLISH', keyOf('', 'changes'), `${fleet.installId()} gateway`],
    ]);
  }

  return {
    announce(digests) {
      own = JSON.stringify(digests satisfies InForceDigests);
      ({ policies } = digests);
      told += 1;
      // What cannot be said now is said at the next look.
      void look().catch(() => undefined);
    },
    look,
    others: () => others,
    policies: () => policies,
    async leave() {
      if (fleet.attached().has('')) await frame.commands('', [['HDEL', keyOf('', BOARD), gatewayId]]);
    },
  };
}
