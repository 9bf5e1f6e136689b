/** Sessions of people, and links that open one. They are in the store, so that they are good at every gateway. */
export interface SessionStore {
  /** @param id a digest: what a browser sends is not in the store */
  putSession(
    id: string,
    session: {
      /** Sealed by whoever keeps it; a store does not read it. */
      readonly text: string;
      /** ms, by the store's clock. From then on it counts as absent. */
      readonly until: number;
      /** The key that it acts for. Of one key, only the latest are kept. */
      readonly keyId: string;
    },
  ): Promise<void>;
  /** The text of a session; `null` where there is none, or its time is over. */
  session(id: string): Promise<string | null>;
  /** Ends a session. @returns its text; of several who ask at once, one gets it */
  takeSession(id: string): Promise<string | null>;
}
