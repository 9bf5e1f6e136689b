/** One name as a token of a JSON Pointer (RFC 6901). */
export function escapePointer(name: string): string {
  return name.replaceAll('~', '~0').replaceAll('/', '~1');
}

/**
 * A JSON Pointer (RFC 6901): `/a/0/b`.
 * @param most characters that are shown of each name, because names may come from anybody
 */
export function pointerTo(names: readonly (string | number)[], most = Number.POSITIVE_INFINITY): string {
  return names.map((name) => `/${escapePointer(String(name).slice(0, most))}`).join('');
}
