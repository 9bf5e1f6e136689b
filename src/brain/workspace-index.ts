import { type Entity, type EntityLink, type EntityRef, entityName } from '../effects/model/entity.ts';
import { createSearchIndex, type Found, type SearchIndex } from './search-index.ts';

/** Links that are looked at for one hit. */
const LINKS_OF_HIT = 1000;

/** A link between a hit and another entity. */
export interface Linked extends EntityRef {
  readonly rel: string;
  readonly direction: 'outgoing' | 'incoming';
}

/** What is found in one workspace: words by type, and links in both directions. It has no content of entities. */
export interface WorkspaceIndex {
  put(entity: Entity): void;
  remove(ref: EntityRef): void;
  search(type: string, query: string, limit: number): { readonly found: readonly Found[]; readonly more: boolean };
  /** Linked entities of a type, outgoing ones first; `more` says whether there are others. */
  linked(of: EntityRef, type: string, limit: number): { readonly linked: readonly Linked[]; readonly more: boolean };
  /** Whether so much of it is left over from entities of before that it should be built anew. */
  isWorn(): boolean;
}

const NOTHING = { found: [], more: false } as const;
/** Left-overs that do not matter. */
const FEW_DEAD = 5000;

export function createWorkspaceIndex(): WorkspaceIndex {
  const types = new Map<string, SearchIndex>();
  /** Links of each entity, by its name. */
  const outgoing = new Map<string, readonly EntityLink[]>();
  /**
   * Who names an entity, by its name and the type of who does. Links that are gone stay here until the index is built
   * anew; `outgoing` says whether one is still there.
   */
  const incoming = new Map<string, EntityRef[]>();

  function put(entity: Entity): void {
    const { type, id, links } = entity;
    const name = entityName(entity);
    const known = new Set((outgoing.get(name) ?? []).map(entityName));
    outgoing.set(name, links);
    for (const link of links) {
      const target = entityName(link);
      if (known.has(target)) continue;
      known.add(target);
      const key = `${target}\n${type}`;
      const others = incoming.get(key);
      if (others === undefined) incoming.set(key, [{ type, id }]);
      else others.push({ type, id });
    }
    const index = types.get(type) ?? createSearchIndex();
    types.set(type, index);
    index.put(entity);
  }

  return {
    put,
    remove(ref) {
      outgoing.delete(entityName(ref));
      types.get(ref.type)?.remove(ref.id);
    },
    search: (type, query, limit) => types.get(type)?.search(query, limit) ?? NOTHING,
    linked(of, type, limit) {
      const name = entityName(of);
      const linked: Linked[] = [];
      const seen = new Set<string>();
      const take = (rel: string, ref: EntityRef, direction: Linked['direction']): void => {
        const key = `${direction}\n${rel}\n${ref.id}`;
        if (ref.type !== type || seen.has(key) || !outgoing.has(entityName(ref))) return;
        seen.add(key);
        linked.push({ rel, type: ref.type, id: ref.id, direction });
      };
      for (const link of outgoing.get(name) ?? []) take(link.rel, link, 'outgoing');
      const from = incoming.get(`${name}\n${type}`) ?? [];
      let looked = 0;
      for (const other of from) {
        if (linked.length > limit || looked >= LINKS_OF_HIT) break;
        looked += 1;
        for (const link of outgoing.get(entityName(other)) ?? [])
          if (entityName(link) === name) take(link.rel, other, 'incoming');
      }
      return { linked: linked.slice(0, limit), more: linked.length > limit || looked < from.length };
    },
    isWorn() {
      let live = 0;
      let dead = 0;
      for (const index of types.values()) {
        const size = index.size();
        live += size.live;
        dead += size.dead;
      }
      return dead > FEW_DEAD && dead > live;
    },
  };
}
