interface Closable {
  close(): Promise<void>;
}

/** A store that can be ended and opened again on the same data, as a restart does. */
export async function reopening<Store extends Closable>(
  open: () => Promise<Store>,
  remove: () => void,
): Promise<{ readonly store: Store; reopen(): Promise<Store>; close(): Promise<void> }> {
  let store = await open();
  return {
    get store() {
      return store;
    },
    async reopen() {
      await store.close();
      store = await open();
      return store;
    },
    async close() {
      await store.close();
      remove();
    },
  };
}
