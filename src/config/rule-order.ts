/** Stands for the rest of a path, of one segment or more: `*path`. */
export const REST = Symbol('rest');

/** The segments of a path: literal text, or `null` for a param; the last one may be the rest of the path. */
export type Segments = readonly (string | null | typeof REST)[];

/**
 * Whether some path fits both, and none of the two comes before the other: `/users/me` comes before `/users/:id`, and both
 * before `/users/*path`, but of `/a/:b` and `/:a/b` neither does.
 */
export function isAmbiguous(a: Segments, b: Segments): boolean {
  const [shorter, longer] = a.length < b.length ? [a, b] : [b, a];
  const overlap =
    (shorter.length === longer.length || (shorter.at(-1) === REST && longer.at(-1) !== '')) &&
    shorter.every((segment, index) => isOpen(segment) || isOpen(longer[index]) || segment === longer[index]);
  return overlap && isWithin(a, b) === isWithin(b, a);
}

/** Whether all that fits the one fits the other. */
export function isWithin(one: Segments, other: Segments): boolean {
  const isLong = other.at(-1) === REST ? one.length >= other.length && one.at(-1) !== '' : one.length === other.length;
  return isLong && other.every((segment, index) => fitsIn(one[index], segment));
}

function isOpen(segment: Segments[number] | undefined): boolean {
  return segment === null || segment === REST;
}

function fitsIn(one: Segments[number] | undefined, other: Segments[number]): boolean {
  return other === REST || (other === null ? one !== REST : one === other);
}
