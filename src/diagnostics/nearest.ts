/**
 * The candidate that a misspelt word most probably means; `null` where none is close. At most a third of the word may
 * differ (insertions, deletions, replacements, swapped neighbours). Case and `-` or `_` do not count.
 */
export function nearest(word: string, candidates: Iterable<string>): string | null {
  const wanted = folded(word);
  if (wanted.length > 80) return null;
  let best: string | null = null;
  let bestDistance = Math.max(1, Math.floor(wanted.length / 3)) + 1;
  for (const candidate of candidates) {
    if (Math.abs(candidate.length - wanted.length) >= bestDistance) continue;
    const distance = editDistance(wanted, folded(candidate));
    if (distance < bestDistance && distance < candidate.length) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/** A hint with the result of {@link nearest}, or `null`. */
export function didYouMean(word: string, candidates: Iterable<string>): string | null {
  const best = nearest(word, candidates);
  return best === null ? null : `did you mean '${best}'?`;
}

function folded(text: string): string {
  return text.toLowerCase().replaceAll('-', '_');
}

/** Optimal string alignment distance: edits and swaps of neighbours, no part edited twice. Three rows are enough. */
function editDistance(a: string, b: string): number {
  let beforePrevious: number[] = [];
  let previous = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const current = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = (previous[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      let least = Math.min((previous[j] ?? 0) + 1, (current[j - 1] ?? 0) + 1, replaced);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        least = Math.min(least, (beforePrevious[j - 2] ?? 0) + 1);
      current.push(least);
    }
    beforePrevious = previous;
    previous = current;
  }
  return previous[b.length] ?? 0;
}
