import type { Fleet } from './fleet.ts';
import type { Calls } from './calls.ts';
import { noteOf } from './scripts.ts';

export interface InForceDigests {
  readonly policies: string;
  readonly configuration: string;
}

/** Hash in the installation: gateway → digests. The script `note` writes it, and `leave` removes the entry. */
export const ANNOUNCEMENTS = 'on';

export function createAnnouncements(calls: Pick<Calls, 'evaluate'>, fleet: Fleet, gatewayId: string) {
  let own: string | null = null;
  let others: ReadonlyMap<string, InForceDigests> = new Map();

  async function announceOwn(): Promise<void> {
    if (own !== null && fleet.attached().has('')) await calls.evaluate('note', '', noteOf({ announced: own }));
  }

  return {
    /** Announces it to the others. Call it once the policies have been activated. */
    announce(digests: InForceDigests): void {
      own = JSON.stringify(digests satisfies InForceDigests);
      // What cannot be announced now is announced at the next look.
      void announceOwn().catch(() => undefined);
    },
    /** Takes what gateways announce in the store, and announces again what has disappeared from there. */
    async read(announced: ReadonlyMap<string, string>, registered: readonly string[]): Promise<void> {
      others = new Map(
        registered.flatMap((gateway) => {
          const text = announced.get(gateway);
          return text === undefined || gateway === gatewayId ? [] : [[gateway, JSON.parse(text) as InForceDigests]];
        }),
      );
      if (announced.get(gatewayId) !== own) await announceOwn();
    },
    /** The other gateways that are registered, by name. */
    others: (): ReadonlyMap<string, InForceDigests> => others,
  };
}
