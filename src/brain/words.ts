import { type Json, isJsonArray, isJsonObject } from '../json/value.ts';

/** Letters of a word that count. */
const MAX_WORD = 32;

/** Scripts that are written without spaces: every two characters in a row are a word. */
const UNSPACED = /[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Thai}\p{sc=Lao}\p{sc=Khmer}\p{sc=Myanmar}]/u;
const RUN = /[\p{L}\p{N}]+/gu;
const MARKS = /\p{M}+/gu;
const ASCII = /^[\0-\x7f]*$/;

/**
 * The words of a text as the index has them: lower case, without accents, compatibility forms as the usual ones.
 * @param most stop after so many
 */
export function wordsOf(text: string, most: number): string[] {
  const folded = ASCII.test(text)
    ? text.toLowerCase()
    : text.normalize('NFKD').replace(MARKS, '').normalize('NFC').toLowerCase();
  const words: string[] = [];
  for (const [run] of folded.matchAll(RUN)) {
    if (words.length >= most) break;
    if (UNSPACED.test(run)) words.push(...pairsOf(run).slice(0, most - words.length));
    else words.push(run.length <= MAX_WORD ? run : cut(run));
  }
  return words;
}

/** Never through the middle of a character. */
function cut(run: string): string {
  return run.slice(0, MAX_WORD).replace(/[\uD800-\uDBFF]$/, '');
}

function pairsOf(run: string): string[] {
  const characters = Array.from(run);
  const [only] = characters;
  if (characters.length === 1 && only !== undefined) return [only];
  return characters.slice(1).map((character, index) => `${characters[index] ?? ''}${character}`);
}

/** The texts and numbers within a value. Names of members are no content. */
export function textsWithin(value: Json): string[] {
  const texts: string[] = [];
  const open: Json[] = [value];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    if (typeof next === 'string') texts.push(next);
    else if (typeof next === 'number') texts.push(String(next));
    else if (isJsonArray(next)) open.push(...next);
    else if (isJsonObject(next)) open.push(...Object.values(next));
  }
  return texts;
}
