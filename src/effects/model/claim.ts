/**
 * The exclusive right of an agent on a target. It is active until its time ends, and as long as an effect extends it.
 */
export interface ClaimRecord {
  readonly id: string;
  readonly workspace: string;
  readonly target: string;
  readonly agentId: string;
  readonly createdAt: number;
  /** End of the requested time; equal to `createdAt` for a claim that lasts only as long as its call. */
  readonly expiresAt: number;
  readonly runningEffects: readonly string[];
  /** Time until which an unknown effect extends the claim. */
  readonly extendedUntil: number;
  /** The key that took it last. Absent when a call took the claim for itself. */
  readonly keyId?: string;
}

/** Units of a pool set aside for an agent. */
export interface ReservationRecord
  extends Pick<ClaimRecord, 'id' | 'workspace' | 'agentId' | 'createdAt' | 'expiresAt'> {
  readonly pool: string;
  readonly units: number;
  readonly keyId: string;
}
