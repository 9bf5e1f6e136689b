export interface Page<T> {
  readonly items: readonly T[];
  /** The `cursor` for the next page; `null` at the end. */
  readonly next: string | null;
}

/**
 * Bytes of records on one page of effects; a page has at least one item. Records contain sealed params and answers, up
 * to 1.5 MB each. Without this limit, a page of 200 took hundreds of MB in both threads and blocked the event loop
 * while it was read.
 */
export const PAGE_BYTES = 1024 * 1024;
