import type { Entity } from '../effects/model/entity.ts';
import { type Budget, TextTree } from './text-tree.ts';
import { eachWord, textsWithin, wordsOf } from './words.ts';

/** Words of one entity that are found. */
const WORDS_OF_ENTITY = 300;
/** Words of a query that count. */
const WORDS_OF_QUERY = 8;
/** Words that one word of a query stands for: those that begin with it, or are like it. */
const VARIANTS = 50;
/** Places of words that one query visits. It takes a few ms for so many. */
const MAX_PLACES = 10_000;
/** Places of the vocabulary that one query visits for words with typing errors. */
const MAX_CANDIDATES = 10_000;
/** Words of all entities of a type. So many take a quarter of a gigabyte. What comes after is found by its id and its other words. */
export const MOST_WORDS = 1_000_000;
/** A word with a typing error is looked for from this many letters on, and with two from this many. */
const ONE_ERROR = 4;
const TWO_ERRORS = 8;
/** How many words of a query may have two errors: each costs a walk over much of the vocabulary. */
const MOST_TWO_ERRORS = 2;

/** What a match counts for. */
const WHOLE = 1;
const BEGINNING = 0.5;
const LIKE = 0.4;
const FARTHER = 0.2;
const IN_NAME = 3;
/** More than any words together. */
const BY_ID = 1000;

/** A place of a word: the number of the entity twice, and 1 where the word stands in its name. */
type Places = number[];

export interface Found {
  readonly id: string;
  readonly score: number;
}

/** A word of a query: where what it stands for is found, and how often. */
interface Wanted {
  readonly variants: readonly { readonly places: Places; readonly weight: number }[];
  readonly count: number;
}

/** The entities of one type, by the words of their names and attributes. What it visits for one query is bounded. */
export class SearchIndex {
  readonly #mostWords;
  readonly #words = new TextTree<Places>();
  readonly #numbers = new TextTree<number>();
  #isFull = false;
  /** Ids by number. */
  readonly #ids: (string | null)[] = [];

  /** @param mostWords words of all entities */
  constructor(mostWords = MOST_WORDS) {
    this.#mostWords = mostWords;
  }

  put({ id, name, attributes }: Entity): void {
    this.remove(id);
    const number = this.#ids.length;
    this.#ids.push(id);
    this.#numbers.set(id, number);
    let place = number * 2 + 1;
    const add = (text: string, from: number, to: number): void => this.#add(text, from, to, place);
    eachWord(name, WORDS_OF_ENTITY, add);
    place = number * 2;
    let left = WORDS_OF_ENTITY;
    for (const text of textsWithin(attributes)) {
      if (left <= 0) break;
      left -= eachWord(text, left, add);
    }
  }

  remove(id: string): void {
    const number = this.#numbers.get(id);
    if (number === undefined) return;
    this.#ids[number] = null;
    this.#numbers.delete(id);
  }

  /** How many entities there are, and how many numbers were given to ones that are gone or were put again. */
  size(): { readonly live: number; readonly dead: number } {
    return { live: this.#numbers.size(), dead: this.#ids.length - this.#numbers.size() };
  }

  /** Best first; `more` says whether others were found, or may be: the vocabulary is full. */
  search(query: string, limit: number): { readonly found: readonly Found[]; readonly more: boolean } {
    const best: Found[] = [];
    let count = 0;
    for (const [number, score] of this.#scoresOf(query)) {
      const id = this.#ids[number];
      if (id === null || id === undefined) continue;
      count += 1;
      insert(best, { id, score }, limit);
    }
    return { found: best, more: this.#isFull || count > best.length };
  }

  /** A word that an entity has more than once counts where it stands first. */
  #add(text: string, from: number, to: number, place: number): void {
    const places = this.#words.get(text, from, to);
    if (places === undefined) {
      if (this.#words.size() < this.#mostWords) this.#words.set(text, [place], from, to);
      else this.#isFull = true;
    } else if ((places.at(-1) ?? 0) >>> 1 !== place >>> 1) places.push(place);
  }

  /** What a word of a query stands for. `farther` says whether two errors may be looked for. */
  #wanted(word: string, budget: Budget, farther: () => boolean): Wanted {
    const variants = new Map<Places, number>();
    const take = (places: Places, weight: number): void => {
      if (variants.size < VARIANTS && !variants.has(places)) variants.set(places, weight);
    };
    const whole = this.#words.get(word);
    if (whole !== undefined) take(whole, WHOLE);
    if (word.length > 1) for (const places of this.#words.beginningWith(word, VARIANTS)) take(places, BEGINNING);
    if (whole === undefined && word.length >= ONE_ERROR) {
      for (const other of swapped(word)) {
        const places = this.#words.get(other);
        if (places !== undefined) take(places, LIKE);
      }
      for (const places of this.#words.like(word, 1, budget)) take(places, LIKE);
      if (variants.size === 0 && word.length >= TWO_ERRORS && farther())
        for (const places of this.#words.like(word, 2, budget)) take(places, FARTHER);
    }
    const list = [...variants].map(([places, weight]) => ({ places, weight }));
    return { variants: list, count: list.reduce((sum, { places }) => sum + places.length, 0) };
  }

  #scoresOf(query: string): ReadonlyMap<number, number> {
    let errors = MOST_TWO_ERRORS;
    const asked = [...new Set(wordsOf(query, 2 * WORDS_OF_QUERY))].slice(0, WORDS_OF_QUERY);
    const budget = { left: MAX_CANDIDATES };
    const all = asked.map((word) =>
      this.#wanted(word, budget, () => {
        errors -= 1;
        return errors >= 0;
      }),
    );
    const scores = new Map<number, number>();
    let left = MAX_PLACES;
    // Rare words first: they say most, and a word that is nearly everywhere is then only looked for in what they found.
    for (const { variants, count } of all.toSorted((one, other) => one.count - other.count)) {
      if (count === 0) continue;
      const rarity = Math.log(1 + this.#ids.length / count);
      if (count > left && scores.size > 0) {
        const [first] = variants;
        if (first !== undefined) addWhereFound(scores, first.places, first.weight * rarity);
        continue;
      }
      // A word has one place in an entity; several variants of it count as the best of them.
      const best = variants.length === 1 ? null : new Map<number, number>();
      for (const { places, weight } of variants)
        for (const place of places) {
          if (left === 0) break;
          left -= 1;
          const score = weight * rarity * ((place & 1) === 1 ? IN_NAME : 1);
          const number = place >>> 1;
          if (best === null) scores.set(number, (scores.get(number) ?? 0) + score);
          else if (score > (best.get(number) ?? 0)) best.set(number, score);
        }
      if (best !== null) for (const [number, score] of best) scores.set(number, (scores.get(number) ?? 0) + score);
    }
    for (const piece of [query.trim(), ...query.trim().split(/\s+/, WORDS_OF_QUERY)]) {
      const number = this.#numbers.get(piece);
      if (number !== undefined) scores.set(number, BY_ID);
    }
    return scores;
  }
}

/** Adds to what was found already, where it has a word too. */
function addWhereFound(scores: Map<number, number>, places: Places, score: number): void {
  for (const [number, before] of scores) {
    const place = places[lowerBound(places, number * 2)];
    if (place === undefined || place >>> 1 !== number) continue;
    scores.set(number, before + score * ((place & 1) === 1 ? IN_NAME : 1));
  }
}

/** The first index whose place is not below `least`. Numbers only grow, so places are in order. */
function lowerBound(places: Places, least: number): number {
  let from = 0;
  let to = places.length;
  while (from < to) {
    const middle = (from + to) >>> 1;
    if ((places[middle] ?? 0) < least) from = middle + 1;
    else to = middle;
  }
  return from;
}

/** Keeps the best, in order. Equal ones are ordered by id, so that the same question has the same answer. */
function insert(best: Found[], found: Found, limit: number): void {
  let at = best.length;
  for (let before = best[at - 1]; before !== undefined && isBetter(found, before); before = best[at - 1]) at -= 1;
  if (at >= limit) return;
  best.splice(at, 0, found);
  if (best.length > limit) best.pop();
}

function isBetter(one: Found, other: Found): boolean {
  return one.score === other.score ? one.id < other.id : one.score > other.score;
}

/** The word with each two neighbouring letters exchanged. */
function swapped(word: string): string[] {
  return Array.from(
    { length: word.length - 1 },
    (_, at) => `${word.slice(0, at)}${word[at + 1] ?? ''}${word[at] ?? ''}${word.slice(at + 2)}`,
  );
}
