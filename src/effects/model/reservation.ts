import type { ClaimRecord } from './claim.ts';
/** Units of a pool set aside for an agent. */
export interface ReservationRecord
  extends Pick<ClaimRecord, 'id' | 'workspace' | 'agentId' | 'createdAt' | 'expiresAt'> {
  readonly pool: string;
  readonly units: number;
  readonly keyId: string;
}
