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

const CURSOR = /^[0-9a-z]{1,11}(?:\.[0-9a-z_]{1,64})?$/;

/**
 * Whether a text has the form of the cursors that stores make. A store would treat any other text as the start of the
 * list, so a client that pages would never reach the end.
 */
export function isCursor(text: string): boolean {
  return CURSOR.test(text);
}
