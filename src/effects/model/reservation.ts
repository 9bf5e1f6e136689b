/** Units of a pool set aside for an agent. */
export interface ReservationRecord {
  readonly id: string;
  readonly workspace: string;
  readonly pool: string;
  readonly agentId: string;
  readonly units: number;
  readonly createdAt: number;
  readonly expiresAt: number;
  readonly keyId: string;
}
