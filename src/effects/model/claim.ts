/** An exclusive right of an agent on a target. Active while its time runs, or while an effect extends it. */
export interface ClaimRecord {
  readonly id: string;
  readonly workspace: string;
  readonly target: string;
  readonly agentId: string;
  readonly createdAt: number;
  /** End of the time asked for; `createdAt` for a claim that lives only as long as its call. */
  readonly expiresAt: number;
  /** Effects that run under this claim. */
  readonly runningEffects: readonly string[];
  /** An unknown effect extends the claim to here. */
  readonly extendedUntil: number;
  /** The key that took it last; absent of a claim that a call took for itself, and of records of before. */
  readonly keyId?: string;
}
