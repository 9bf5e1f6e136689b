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
const UNSPACED = /[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Thai}\p{sc=Lao}\p{sc=Khmer}\p{sc=Myanmar}]/gu;
const WORD = /[\p{L}\p{N}]/gu;
const NO_WORD = /[^\p{L}\p{N}]/gu;
const MARKS = /\p{M}+/gu;
const ASCII = /^[\0-\x7f]*$/;

/**
 * Finds the words of a text as the index has them: lower case, without accents, compatibility forms as the usual ones. Each
 * is a place in a text, since every string of two characters stays in a table of the engine, which holds the thread for
 * 100 ms when it grows for a million of them.
 * @param most stop after so many
 * @returns how many
 */
export function eachWord(text: string, most: number, take: (text: string, from: number, to: number) => void): number {
  let count = 0;
  for (const piece of ASCII.test(text) ? [text.toLowerCase()] : foldedPieces(text)) {
    let unspaced = -1;
    for (let from = next(WORD, piece, 0); from < piece.length; ) {
      if (count >= most) return count;
      const to = next(NO_WORD, piece, from);
      if (unspaced < from) unspaced = next(UNSPACED, piece, from);
      if (unspaced < to) {
        let at = from;
        let second = from + widthAt(piece, from);
        do {
          const after = second < to ? second + widthAt(piece, second) : to;
          take(piece, at, after);
          count += 1;
          [at, second] = [second, after];
        } while (second < to && count < most);
      } else {
        take(piece, from, Math.min(to, endWithin(piece, from)));
        count += 1;
      }
      from = next(WORD, piece, to);
    }
  }
  return count;
}

/** The same as strings. */
export function wordsOf(text: string, most: number): string[] {
  const words: string[] = [];
  eachWord(text, most, (piece, from, to) => words.push(piece.slice(from, to)));
  return words;
}

/** Where the next character that an expression matches stands; the end of the text if there is none. */
function next(character: RegExp, text: string, from: number): number {
  character.lastIndex = from;
  if (!character.test(text)) return text.length;
  const last = character.lastIndex - 1;
  return last > from && widthAt(text, last - 1) === 2 ? last - 1 : last;
}

/** Where a word from here on ends at the latest: no character is cut in half. */
function endWithin(text: string, from: number): number {
  return from + MAX_WORD - (widthAt(text, from + MAX_WORD - 1) - 1);
}

function widthAt(text: string, at: number): number {
  return (text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1;
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
