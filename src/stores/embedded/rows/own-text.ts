/**
 * The same text in memory of its own. A text that was cut out of a message keeps the whole message in memory; one that is
 * kept for longer than its transaction must not.
 */
export function ownText(text: string): string {
  return Buffer.from(text, 'utf16le').toString('utf16le');
}
