/**
 * The same text in its own memory. A text that was cut out of a message keeps the whole message in memory. One that is
 * kept for longer than its transaction must not do that.
 */
export function ownText(text: string): string {
  return Buffer.from(text, 'utf16le').toString('utf16le');
}
