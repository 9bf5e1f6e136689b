import { fieldsOf, textsOf } from './connection.ts';
import type { Fleet } from './fleet.ts';
import type { Calls } from './calls.ts';
import { keyOf } from './names.ts';
import { noteOf } from './scripts.ts';

/** Digests of what a gateway has in force. */
export interface InForceDigests {
  readonly policies: string;
  readonly configuration: string;
}

/** The place where the gateways of an installation announce what each has in force. */
export interface Board {
  /** Announces it to the others, and again if it has disappeared. Call it once the policies have been activated. */
  announce(digests: InForceDigests): void;
  /** Reads what the others announce. */
  look(): Promise<void>;
  /** The other gateways that are registered, by name. */
  others(): ReadonlyMap<string, InForceDigests>;
}

/** Hash in the installation: gateway → digests. The script `note` writes it, and `leave` removes the entry. */
const BOARD = 'on';

export function createBoard(calls: Pick<Calls, 'commands' | 'evaluate'>, fleet: Fleet, gatewayId: string): Board {
  let own: string | null = null;
  let others: ReadonlyMap<string, InForceDigests> = new Map();

  async function look(): Promise<void> {
    const [board, registered] = await calls.commands('', [
      ['HGETALL', keyOf('', BOARD)],
      ['HKEYS', keyOf('', 'gw')],
    ]);
    const there = fieldsOf(textsOf(board));
    others = new Map(
      textsOf(registered).flatMap((gateway) => {
        const said = there.get(gateway);
        return said === undefined || gateway === gatewayId ? [] : [[gateway, JSON.parse(said) as InForceDigests]];
      }),
    );
    if (own === null || there.get(gatewayId) === own || !fleet.attached().has('')) return;
    await calls.evaluate('note', '', noteOf({ announced: own }));
  }

  return {
    announce(digests) {
      own = JSON.stringify(digests satisfies InForceDigests);
      // What cannot be announced now is announced at the next look.
      void look().catch(() => undefined);
    },
    look,
    others: () => others,
  };
}
