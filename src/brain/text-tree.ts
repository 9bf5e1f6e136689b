/** What a walk may still look at. Several walks can share one. */
export interface Budget {
  left: number;
}

interface Node<Value> {
  /** Where what stands between the parent and here begins in the {@link Letters}, and how long it is. */
  from: number;
  length: number;
  value: Value | undefined;
  children: Children<Value> | null;
}

/**
 * Nodes by the first character of what stands between: the first {@link FEW}, and those beyond them in pages, one for each
 * upper half of a character. A `Map` copies all that it has when it grows, and hundreds may have to in one step: with
 * 2,000 children each that held the thread for 280 ms.
 */
type Children<Value> = (Map<number, Node<Value>> | undefined)[];
const FEW = 128;

const pageOf = (character: number): number => 1 + (character >>> 8);

function childAt<Value>(children: Children<Value> | null, character: number): Node<Value> | undefined {
  if (children === null) return undefined;
  return children[0]?.get(character) ?? children[pageOf(character)]?.get(character);
}

function* allOf<Value>(children: Children<Value>): Generator<Node<Value>> {
  for (const page of children) if (page !== undefined) yield* page.values();
}

/**
 * Errors between the text of a node and each beginning of the text that is looked for: two bits for each of the five
 * that are at most two characters shorter or longer, the shortest lowest. All others have more errors than may be. As
 * a number it costs no memory, and a search has ten thousand of them.
 */
type Row = number;
const FARTHEST = 2;
const PLACES = 2 * FARTHEST + 1;
const TOO_MANY = 3;

/** A node that a search for similar texts came to. */
interface Open<Value> {
  readonly node: Node<Value>;
  readonly depth: number;
  readonly row: Row;
  /** The least in the row. */
  readonly least: number;
  /** The children that go on without another error were looked at. */
  readonly isRest: boolean;
}

/** Characters of a block of {@link Letters}. */
const BLOCK = 1024;

/**
 * The characters of all texts of a tree, each written once. As strings, those of two would stay in a table of the engine,
 * which holds the thread for 100 ms when it grows for a million of them.
 */
class Letters {
  readonly #blocks: Uint16Array[] = [];
  #end = 0;

  /** @returns where they begin */
  add(text: string, from: number, to: number): number {
    const start = this.#end;
    for (let at = from; at < to; at += 1, this.#end += 1) {
      let block = this.#blocks[Math.floor(this.#end / BLOCK)];
      if (block === undefined) this.#blocks.push((block = new Uint16Array(BLOCK)));
      block[this.#end % BLOCK] = text.charCodeAt(at);
    }
    return start;
  }

  at(place: number): number {
    return this.#blocks[Math.floor(place / BLOCK)]?.[place % BLOCK] ?? 0;
  }
}

/**
 * Values by text: a radix tree. It serves as a map too, where there may be a million entries: a `Map` copies all that it
 * has when it grows, which holds the thread for 70 ms and more. Here a step costs what its text is long, whatever texts
 * there are: children are found by their first character, not by trying one after the other.
 */
export class TextTree<Value> {
  readonly #letters = new Letters();
  readonly #root: Node<Value> = { from: 0, length: 0, value: undefined, children: null };
  #size = 0;

  /** @param from where the text begins in what is given, and `to` where it ends */
  get(text: string, from = 0, to = text.length): Value | undefined {
    return this.#find(text, from, to)?.value;
  }

  set(text: string, value: Value, from = 0, to = text.length): void {
    const node = this.#nodeOf(text, from, to);
    if (node.value === undefined) this.#size += 1;
    node.value = value;
  }

  /** The place of the text stays; the value goes. */
  delete(text: string): void {
    const node = this.#find(text, 0, text.length);
    if (node?.value === undefined) return;
    node.value = undefined;
    this.#size -= 1;
  }

  /** How many texts have a value. */
  size(): number {
    return this.#size;
  }

  /** Values of texts that begin so, `most` of them. */
  beginningWith(text: string, most: number): Value[] {
    let node = this.#root;
    for (let at = 0; at < text.length; ) {
      const child = childAt(node.children, text.charCodeAt(at));
      if (child === undefined) return [];
      const same = this.#same(child, text, at, text.length);
      at += same;
      if (same < child.length && at < text.length) return [];
      node = child;
    }
    const values: Value[] = [];
    collect(node, most, values);
    return values;
  }

  /**
   * Values of texts that become this one by at most so many insertions, removals and replacements of characters. Those
   * with the fewest errors first, as far as the budget lasts.
   */
  like(text: string, errors: 1 | 2, budget: Budget): Value[] {
    const values: Value[] = [];
    // By the errors that there are at least: what has few is looked at before what has more.
    const open = Array.from({ length: errors + 1 }, (): Open<Value>[] => []);
    open[0]?.push({ node: this.#root, depth: 0, row: FIRST_ROW, least: 0, isRest: false });
    for (const [least, ones] of open.entries())
      for (let one = ones.pop(); one !== undefined; one = ones.pop()) {
        const { node, depth, isRest } = one;
        if (!isRest && node.value !== undefined && errorsAt(one.row, text.length - depth) <= errors)
          values.push(node.value);
        if (node.children === null) continue;
        const expected = charactersAfter(one, text);
        for (const child of isRest ? allOf(node.children) : childrenAt(node.children, expected)) {
          if (isRest && expected.includes(this.#letters.at(child.from))) continue;
          if (budget.left <= 0) return values;
          budget.left -= 1;
          const row = rowAfter(one, child, this.#letters, text, errors);
          const fewest = leastOf(row);
          open[fewest]?.push({ node: child, depth: depth + child.length, row, least: fewest, isRest: false });
        }
        // Any other character is one more error.
        if (!isRest) open[least + 1]?.push({ ...one, isRest: true });
      }
    return values;
  }

  #find(text: string, from: number, to: number): Node<Value> | null {
    let node = this.#root;
    for (let at = from; at < to; at += node.length) {
      const child = childAt(node.children, text.charCodeAt(at));
      if (child === undefined || this.#same(child, text, at, to) < child.length) return null;
      node = child;
    }
    return node;
  }

  /** The node of a text; made where there is none. */
  #nodeOf(text: string, from: number, to: number): Node<Value> {
    let node = this.#root;
    for (let at = from; at < to; ) {
      const child = childAt(node.children, text.charCodeAt(at));
      if (child === undefined) {
        const made = { from: this.#letters.add(text, at, to), length: to - at, value: undefined, children: null };
        return this.#addChild(node, made);
      }
      const same = this.#same(child, text, at, to);
      if (same < child.length) this.#split(child, same);
      node = child;
      at += same;
    }
    return node;
  }

  #addChild(to: Node<Value>, child: Node<Value>): Node<Value> {
    const character = this.#letters.at(child.from);
    const children = (to.children ??= []);
    const page = (children[0]?.size ?? 0) < FEW ? 0 : pageOf(character);
    (children[page] ??= new Map()).set(character, child);
    return child;
  }

  /** How many characters of a node stand in the text from `at` on. */
  #same({ from, length }: Node<Value>, text: string, at: number, to: number): number {
    const most = Math.min(length, to - at);
    let same = 0;
    while (same < most && this.#letters.at(from + same) === text.charCodeAt(at + same)) same += 1;
    return same;
  }

  /** Makes two nodes of one, the first with so many of its characters. */
  #split(node: Node<Value>, characters: number): void {
    const { from, length, value, children } = node;
    node.length = characters;
    node.value = undefined;
    node.children = null;
    this.#addChild(node, { from: from + characters, length: length - characters, value, children });
  }
}

function collect<Value>(node: Node<Value>, most: number, into: Value[]): void {
  if (into.length >= most) return;
  if (node.value !== undefined) into.push(node.value);
  if (node.children === null) return;
  for (const child of allOf(node.children)) {
    if (into.length >= most) return;
    collect(child, most, into);
  }
}

/** Errors in the row for a beginning that is so much longer than the text of the node. */
function errorsAt(row: Row, longer: number): number {
  return Math.abs(longer) > FARTHEST ? TOO_MANY : (row >>> (2 * (longer + FARTHEST))) & 3;
}

/** The characters with which a text goes on without another error than it has at least. */
function charactersAfter<Value>({ row, depth, least }: Open<Value>, text: string): readonly number[] {
  const characters: number[] = [];
  for (let longer = -FARTHEST; longer <= FARTHEST && depth + longer < text.length; longer += 1) {
    if (errorsAt(row, longer) !== least) continue;
    const character = text.charCodeAt(depth + longer);
    if (!characters.includes(character)) characters.push(character);
  }
  return characters;
}

function childrenAt<Value>(children: Children<Value>, characters: readonly number[]): readonly Node<Value>[] {
  return characters.flatMap((character) => childAt(children, character) ?? []);
}

/** Of the empty text: as many errors as characters. */
const FIRST_ROW: Row = rowOf([TOO_MANY, TOO_MANY, 0, 1, 2]);

function rowOf(errors: readonly number[]): Row {
  return errors.reduce((row, count, place) => row | (count << (2 * place)), 0);
}

/** The row after a node (Levenshtein). It ends early where there are more errors than may be, whatever follows. */
function rowAfter<Value>(
  { row, depth }: Open<Value>,
  node: Node<Value>,
  letters: Letters,
  text: string,
  errors: 1 | 2,
): Row {
  let before = row;
  for (let index = 0; index < node.length && leastOf(before) <= errors; index += 1) {
    const character = letters.at(node.from + index);
    const shortest = depth + index + 1 - FARTHEST;
    let next = 0;
    let left = TOO_MANY;
    for (let place = 0; place < PLACES; place += 1) {
      const length = shortest + place;
      let count = TOO_MANY;
      if (length >= 0 && length <= text.length) {
        const removed = place + 1 < PLACES ? ((before >>> (2 * place + 2)) & 3) + 1 : TOO_MANY;
        const replaced = ((before >>> (2 * place)) & 3) + (text.charCodeAt(length - 1) === character ? 0 : 1);
        count = Math.min(TOO_MANY, removed, left + 1, length === 0 ? TOO_MANY : replaced);
      }
      next |= count << (2 * place);
      left = count;
    }
    before = next;
  }
  return before;
}

function leastOf(row: Row): number {
  let least = TOO_MANY;
  for (let rest = row, place = 0; place < PLACES; rest >>>= 2, place += 1) least = Math.min(least, rest & 3);
  return least;
}
