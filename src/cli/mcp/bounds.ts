/** Bytes that several readers together may hold. */
export class Allowance {
  #left: number;

  constructor(most: number) {
    this.#left = most;
  }

  /** @returns whether there was as much left; else nothing was taken */
  take(bytes: number): boolean {
    if (bytes > this.#left) return false;
    this.#left -= bytes;
    return true;
  }

  giveBack(bytes: number): void {
    this.#left += bytes;
  }
}

/** At most some lines at once, and one more each second: who says something over and over fills no log. */
export function sparing(log: (line: string) => void): (line: string) => void {
  let left = MOST_AT_ONCE;
  let at = Date.now();
  let unsaid = 0;
  return (line) => {
    const seconds = Math.floor((Date.now() - at) / 1_000);
    if (seconds !== 0) {
      at = Date.now();
      left = Math.min(MOST_AT_ONCE, left + Math.max(0, seconds));
    }
    if (left === 0) {
      unsaid += 1;
      return;
    }
    left -= 1;
    log(unsaid === 0 ? line : `${line} (and ${unsaid} lines more before)`);
    unsaid = 0;
  };
}

const MOST_AT_ONCE = 20;
