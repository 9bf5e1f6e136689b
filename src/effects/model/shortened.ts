/** The beginning of a long text, which says by its end that there is more. No character is cut in half. */
export function shortened(text: string, most: number): string {
  return text.length <= most ? text : `${beginning(text, most)}…`;
}

/** At most so many characters, none cut in half. */
export function beginning(text: string, most: number): string {
  return text.slice(0, most).replace(/[\uD800-\uDBFF]$/, '');
}
