/** mulberry32: a seed gives the same numbers again. */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** A seed of its own for another matter, so that how often one draws changes nothing for the other. */
export function seedFor(seed: number, matter: number): number {
  return Math.imul(seed ^ (matter * 0x9e3779b9), 0x85ebca6b) >>> 0;
}
