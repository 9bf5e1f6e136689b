import { beginning } from '../effects/model/shortened.ts';
import { type Json, isJsonArray, isJsonObject } from '../json/value.ts';

/** Letters of a word that count. */
const MAX_WORD = 32;

/**
 * Characters that are folded at once. Marks that follow a letter are put in order, and a thousand in a row take a
 * thousand times a thousand steps: 16,000 held the thread for 170 ms.
 */
const FOLDED_AT_ONCE = 512;
const SPACE = /\s/;

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
  const words: string[] = [];
  for (const piece of ASCII.test(text) ? [text.toLowerCase()] : foldedPieces(text))
    for (const [run] of piece.matchAll(RUN)) {
      if (words.length >= most) return words;
      if (UNSPACED.test(run)) words.push(...pairsOf(run).slice(0, most - words.length));
      else words.push(run.length <= MAX_WORD ? run : beginning(run, MAX_WORD));
    }
  return words;
}

/** A text in pieces, each in lower case and without accents; cut at spaces, or where there are none. */
function* foldedPieces(text: string): Generator<string> {
  for (let from = 0; from < text.length; ) {
    let to = Math.min(from + FOLDED_AT_ONCE, text.length);
    if (to < text.length) {
      let space = to;
      while (space > from && !SPACE.test(text[space] ?? '')) space -= 1;
      if (space > from) to = space;
      else if (/[\uD800-\uDBFF]/.test(text[to - 1] ?? '')) to -= 1;
    }
    yield text.slice(from, to).normalize('NFKD').replace(MARKS, '').normalize('NFC').toLowerCase();
    from = to;
  }
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
