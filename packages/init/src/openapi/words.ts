/** Control characters, invisible formatting characters, line separators, private use, unpaired surrogates. */
const UNSAFE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu;

/** Text of a document on one line, without characters that could mislead a reader or control a terminal. */
export function plainText(text: string, most: number): string {
  return text
    .slice(0, 10 * most)
    .replace(/\s+/g, ' ')
    .replace(UNSAFE, '')
    .trim()
    .slice(0, most)
    .replace(UNSAFE, '');
}

/** The most characters of a word made from a text of the document. */
const MOST_WORD = 90;

/** Makes a word that may be in the name of a tool or of a path param: a letter first, then letters, digits and `_`. */
export function word(text: string): string {
  const clean = text.replace(/[^A-Za-z0-9]+/g, '_').replace(/^_+|_+$/g, '');
  return (/^[A-Za-z]/.test(clean) ? clean : `x_${clean}`).slice(0, MOST_WORD).replace(/_+$/, '');
}

/** `getPaymentById` becomes `get_payment_by_id`, `createHTTPRoute` `create_http_route`. */
export function snakeWord(text: string): string {
  return word(text.replace(/([a-z0-9])([A-Z])/g, '$1_$2').replace(/([A-Z]+)([A-Z][a-z])/g, '$1_$2')).toLowerCase();
}
