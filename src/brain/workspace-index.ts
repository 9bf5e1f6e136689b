import { type Entity, type EntityLink, type EntityRef, entityName } from '../effects/model/entity.ts';
import { SearchIndex, type Found } from './search-index.ts';
import { type Budget, TextTree } from './text-tree.ts';

/** A link between a hit and another entity. */
export interface Linked extends EntityRef {
  readonly rel: string;
  readonly direction: 'outgoing' | 'incoming';
}

const NOTHING = { found: [], more: false } as const;
/** Left-overs that do not matter. */
const FEW_DEAD = 5000;

/** What is found in one workspace: words by type, and links in both directions. It has no content of entities. */
export class WorkspaceIndex {
  readonly #types = new Map<string, SearchIndex>();
  /**
   * Links of each entity, by its name, as one text: the ids of a million links that were read from JSON stay in a table
   * of the engine as long as they are held, and it holds the thread for 80 ms when it grows.
   */
  readonly #outgoing = new TextTree<string>();
  /**
   * Who names an entity, by its name and the type of who does. Links that are gone stay here until the index is built
   * anew; `outgoing` says whether one is still there.
   */
  readonly #incoming = new TextTree<EntityRef[]>();

  put(entity: Entity): void {
    const { type, id, links } = entity;
    const name = entityName(entity);
    const known = new Set(this.#linksOf(name).map(entityName));
    this.#outgoing.set(name, textOfLinks(links));
    for (const link of links) {
      const target = entityName(link);
      if (known.has(target)) continue;
      known.add(target);
      const key = `${target}\n${type}`;
      const others = this.#incoming.get(key);
      if (others === undefined) this.#incoming.set(key, [{ type, id }]);
      else others.push({ type, id });
    }
    const index = this.#types.get(type) ?? new SearchIndex();
    this.#types.set(type, index);
    index.put(entity);
  }

  remove(ref: EntityRef): void {
    this.#outgoing.delete(entityName(ref));
    this.#types.get(ref.type)?.remove(ref.id);
  }

  types(): readonly string[] {
    return [...this.#types].flatMap(([type, index]) => (index.size().live > 0 ? [type] : [])).toSorted();
  }

  search(type: string, query: string, limit: number): { readonly found: readonly Found[]; readonly more: boolean } {
    return this.#types.get(type)?.search(query, limit) ?? NOTHING;
  }

  /**
   * Linked entities of a type, outgoing ones first; `more` says whether there are others, or may be.
   * @param budget links that may be visited
   */
  linked(
    of: EntityRef,
    type: string,
    limit: number,
    budget: Budget,
  ): { readonly linked: readonly Linked[]; readonly more: boolean } {
    const name = entityName(of);
    const linked: Linked[] = [];
    const seen = new Set<string>();
    const take = (rel: string, ref: EntityRef, direction: Linked['direction']): void => {
      const key = `${direction}\n${rel}\n${ref.id}`;
      if (ref.type !== type || seen.has(key) || this.#outgoing.get(entityName(ref)) === undefined) return;
      seen.add(key);
      linked.push({ rel, type: ref.type, id: ref.id, direction });
    };
    for (const link of this.#linksOf(name)) take(link.rel, link, 'outgoing');
    const from = this.#incoming.get(`${name}\n${type}`) ?? [];
    let visited = 0;
    for (const other of from) {
      if (linked.length > limit || budget.left <= 0) break;
      visited += 1;
      const links = this.#linksOf(entityName(other));
      budget.left -= 1 + links.length;
      for (const link of links) if (link.id === of.id && link.type === of.type) take(link.rel, other, 'incoming');
    }
    return { linked: linked.slice(0, limit), more: linked.length > limit || visited < from.length };
  }

  /** Whether so much of it is left over from entities of before that it should be built anew. */
  isWorn(): boolean {
    let live = 0;
    let dead = 0;
    for (const index of this.#types.values()) {
      const size = index.size();
      live += size.live;
      dead += size.dead;
    }
    return dead > FEW_DEAD && dead > live;
  }

  #linksOf(name: string): readonly EntityLink[] {
    return linksIn(this.#outgoing.get(name) ?? '');
  }
}

/** No type, id or word for a link has a line break. */
function textOfLinks(links: readonly EntityLink[]): string {
  return links.map(({ rel, type, id }) => `${rel}\n${type}\n${id}`).join('\n');
}

function linksIn(text: string): EntityLink[] {
  if (text === '') return [];
  const parts = text.split('\n');
  return Array.from({ length: parts.length / 3 }, (_, at) => ({
    rel: parts[3 * at] ?? '',
    type: parts[3 * at + 1] ?? '',
    id: parts[3 * at + 2] ?? '',
  }));
}
