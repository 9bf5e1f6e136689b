const CHANGED = Buffer.from('notifications/tools/list_changed');

/**
 * Listens to the bytes of a stream for a server's word that its tools have changed, wherever the bytes are parted. It
 * only makes the gateway look: a false alarm costs nothing else.
 */
export function announcements(heard: () => void): (piece: Buffer) => void {
  let last = Buffer.alloc(0);
  return (piece) => {
    const text = last.byteLength === 0 ? piece : Buffer.concat([last, piece]);
    const at = text.lastIndexOf(CHANGED);
    if (at !== -1) heard();
    const from = Math.max(at === -1 ? 0 : at + CHANGED.byteLength, text.byteLength - CHANGED.byteLength + 1);
    last = Buffer.from(text.subarray(from));
  };
}
