const CURSOR = /^[0-9a-z]{1,11}(?:\.[0-9a-z_]{1,64})?$/;

/**
 * Whether a text has the form of the cursors that stores make. A store would treat any other text as the start of the
 * list, so a client that pages would never reach the end.
 */
export function isCursor(text: string): boolean {
  return CURSOR.test(text);
}
