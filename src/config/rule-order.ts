/** The segments of a path: literal text, or `null` for a param. */
export type Segments = readonly (string | null)[];

/**
 * Whether some path fits both, and none of the two comes before the other: `/users/me` comes before `/users/:id`, but of
 * `/a/:b` and `/:a/b` neither does.
 */
export function isAmbiguous(a: Segments, b: Segments): boolean {
  const overlap =
    a.length === b.length && a.every((segment, index) => segment === null || b[index] === null || segment === b[index]);
  return overlap && isWithin(a, b) === isWithin(b, a);
}

/** Whether all that fits the one fits the other. */
export function isWithin(one: Segments, other: Segments): boolean {
  return one.length === other.length && other.every((segment, index) => segment === null || segment === one[index]);
}
