/** Something that people should look at although the gateway takes calls, as `/readyz` says it. */
export interface Note {
  readonly part: string;
  /** What is so, and what goes on from there. */
  readonly message: string;
  /** Since when, ms; absent where the gateway does not know. */
  readonly since?: number;
}
