/** One line of the product, and what somebody might write instead. */
export interface PlantedFault {
  readonly name: string;
  readonly file: string;
  readonly text: string;
  readonly instead: string;
  readonly why: string;
  readonly test: string;
  readonly pattern?: string;
}

export function plantedFaults(): readonly PlantedFault[];
export function staleness(fault: PlantedFault, read: (file: string) => string | null): string | null;
