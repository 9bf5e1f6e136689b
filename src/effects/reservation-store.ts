import type { LedgerActor } from './model/ledger.ts';
import type { ReservationRecord } from './model/reservation.ts';

/** The reservation, or what is in the way. */
export type ReservationResult =
  | { readonly kind: 'made'; readonly reservation: ReservationRecord }
  | { readonly kind: 'full'; readonly free: number }
  | { readonly kind: 'too_many'; readonly limit: number };

/** Reservations: units of a pool that an agent holds. */
export interface ReservationStore {
  makeReservation(request: {
    readonly id: string;
    readonly workspace: string;
    readonly pool: string;
    readonly capacity: number;
    readonly units: number;
    readonly agentId: string;
    readonly keyId: string;
    readonly ttlMs: number;
    readonly actor: LedgerActor;
  }): Promise<ReservationResult>;
  releaseReservation(workspace: string, id: string, actor: LedgerActor): Promise<ReservationRecord | null>;
  reservation(workspace: string, id: string): Promise<ReservationRecord | null>;
  reservations(workspace: string): Promise<readonly ReservationRecord[]>;
}
