/** What a walk may still look at. Several walks can share one. */
export interface Budget {
  left: number;
}

interface Node<Value> {
  /** What stands between the parent and here. */
  label: string;
  value: Value | undefined;
  /** By the first character of their labels. */
  children: Map<number, Node<Value>> | null;
}

/** Errors that are looked for at most: what {@link Row} has places for. */
export type Errors = 1 | 2;

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

/**
 * Values by text: a radix tree. It serves as a map too, where there may be a million entries: a `Map` copies all that it
 * has when it grows, which holds the thread for 70 ms and more. Here a step costs what its text is long, whatever texts
 * there are: children are found by their first character, not by trying one after the other.
 */
export class TextTree<Value> {
  readonly #root: Node<Value> = { label: '', value: undefined, children: null };
  #size = 0;

  get(text: string): Value | undefined {
    return this.#find(text)?.value;
  }

  set(text: string, value: Value): void {
    const node = this.#nodeOf(text);
    if (node.value === undefined) this.#size += 1;
    node.value = value;
  }

  /** The place of the text stays; the value goes. */
  delete(text: string): void {
    const node = this.#find(text);
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
      const child = node.children?.get(text.charCodeAt(at));
      if (child === undefined) return [];
      const same = sameBeginning(child.label, text, at);
      at += same;
      if (same < child.label.length && at < text.length) return [];
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
  like(text: string, errors: Errors, budget: Budget): Value[] {
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
        for (const child of isRest ? node.children.values() : childrenAt(node.children, expected)) {
          if (isRest && expected.includes(child.label.charCodeAt(0))) continue;
          if (budget.left <= 0) return values;
          budget.left -= 1;
          const row = rowAfter(one, child.label, text, errors);
          const fewest = leastOf(row);
          open[fewest]?.push({ node: child, depth: depth + child.label.length, row, least: fewest, isRest: false });
        }
        // Any other character is one more error.
        if (!isRest) open[least + 1]?.push({ ...one, isRest: true });
      }
    return values;
  }

  #find(text: string): Node<Value> | null {
    let node = this.#root;
    for (let at = 0; at < text.length; ) {
      const child = node.children?.get(text.charCodeAt(at));
      if (child === undefined || !text.startsWith(child.label, at)) return null;
      node = child;
      at += child.label.length;
    }
    return node;
  }

  /** The node of a text; made where there is none. */
  #nodeOf(text: string): Node<Value> {
    let node = this.#root;
    for (let at = 0; at < text.length; ) {
      const child = node.children?.get(text.charCodeAt(at));
      if (child === undefined) {
        const made: Node<Value> = { label: text.slice(at), value: undefined, children: null };
        addChild(node, made);
        return made;
      }
      const same = sameBeginning(child.label, text, at);
      if (same < child.label.length) split(child, same);
      node = child;
      at += same;
    }
    return node;
  }
}

function addChild<Value>(to: Node<Value>, child: Node<Value>): void {
  to.children ??= new Map();
  to.children.set(child.label.charCodeAt(0), child);
}

/** How many characters of a label stand in the text from `at` on. */
function sameBeginning(label: string, text: string, at: number): number {
  const most = Math.min(label.length, text.length - at);
  let same = 0;
  while (same < most && label.charCodeAt(same) === text.charCodeAt(at + same)) same += 1;
  return same;
}

/** Makes two nodes of one, the first with so many characters of its label. */
function split<Value>(node: Node<Value>, characters: number): void {
  const { label, value, children } = node;
  node.label = label.slice(0, characters);
  node.value = undefined;
  node.children = null;
  addChild(node, { label: label.slice(characters), value, children });
}

function collect<Value>(node: Node<Value>, most: number, into: Value[]): void {
  if (into.length >= most) return;
  if (node.value !== undefined) into.push(node.value);
  if (node.children === null) return;
  for (const child of node.children.values()) {
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

function childrenAt<Value>(
  children: ReadonlyMap<number, Node<Value>>,
  characters: readonly number[],
): readonly Node<Value>[] {
  return characters.flatMap((character) => children.get(character) ?? []);
}

/** Of the empty text: as many errors as characters. */
const FIRST_ROW: Row = rowOf([TOO_MANY, TOO_MANY, 0, 1, 2]);

function rowOf(errors: readonly number[]): Row {
  return errors.reduce((row, count, place) => row | (count << (2 * place)), 0);
}

/** The row after a label (Levenshtein). It ends early where there are more errors than may be, whatever follows. */
function rowAfter<Value>({ row, depth }: Open<Value>, label: string, text: string, errors: Errors): Row {
  let before = row;
  for (let index = 0; index < label.length && leastOf(before) <= errors; index += 1) {
    const character = label.charCodeAt(index);
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
