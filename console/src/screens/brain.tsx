import { useInfiniteQuery, useQuery } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { Link, useSearchParams } from 'wouter-preact';
import { ask, type Entity, type EntityHit, of } from '../api.ts';
import { Text, Time, valueText, visible } from '../format.tsx';
import { Copies, curlOf, Empty, Fault, Head } from '../parts.tsx';
import { useCurrent } from '../session.tsx';
import { Facts } from './effect.tsx';

/** What agents and policies may know of the organisation: listed by what changed last, or searched. */
export function BrainScreen(): JSX.Element {
  const { workspace } = useCurrent();
  const [query, setQuery] = useSearchParams();
  const type = query.get('type') ?? '';
  const words = query.get('query') ?? '';
  const base = `${of(workspace)}/brain`;
  const search = new URLSearchParams({ query: words, entity_type: type, limit: '50' });
  const isSearch = words !== '' && type !== '';
  const listed = useInfiniteQuery({
    queryKey: [workspace, 'brain', type],
    queryFn: ({ pageParam }) => {
      const asked = new URLSearchParams({
        limit: '50',
        ...(type && { type }),
        ...(pageParam && { cursor: pageParam }),
      });
      return ask<{ entities: Entity[]; next_cursor: string | null }>('GET', `${base}/entities?${asked}`);
    },
    initialPageParam: '',
    getNextPageParam: ({ next_cursor: next }) => next,
    enabled: !isSearch,
  });
  const found = useQuery({
    queryKey: [workspace, 'brain', type, words],
    queryFn: () => ask<{ entities: EntityHit[]; truncated: boolean }>('GET', `${base}/search?${search}`),
    enabled: isSearch,
  });
  const entities = isSearch
    ? (found.data?.entities ?? [])
    : (listed.data?.pages ?? []).flatMap((page) => page.entities);
  const isThere = (isSearch ? found.data : listed.data) !== undefined;
  const submit = (event: JSX.TargetedSubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    const given = new FormData(event.currentTarget);
    const next = Object.fromEntries(
      ['type', 'query'].flatMap((name) => {
        const value = given.get(name);
        return typeof value === 'string' && value.trim() !== '' ? [[name, value.trim()]] : [];
      }),
    );
    setQuery(next);
  };
  return (
    <>
      <Head
        title="Company brain"
        does="What agents and policies may know of the organisation. A call is decided on the versions that stand here."
      />
      <form class="filters" role="search" onSubmit={submit} key={`${type} ${words}`}>
        <label>
          Type
          <input name="type" defaultValue={type} placeholder="customer" autocomplete="off" required={words !== ''} />
        </label>
        <label>
          Words, or an id
          <input name="query" type="search" defaultValue={words} maxLength={200} autocomplete="off" />
        </label>
        <button type="submit">Search</button>
      </form>
      {words !== '' && type === '' && <p class="banner">A search is for entities of one type: name it.</p>}
      <Fault of={isSearch ? found.error : listed.error} />
      {isThere && entities.length === 0 && (
        <Empty title={type === '' && words === '' ? 'The brain knows nothing yet' : 'Nothing is like that'}>
          {type === '' && words === '' ? (
            <p>
              Name files of entities under <code>brain: files</code> in the configuration, or put some with{' '}
              <code>PUT {base}/entities</code>.
            </p>
          ) : (
            <p>
              <Link href={`/${workspace}/brain`}>Show all</Link>
            </p>
          )}
        </Empty>
      )}
      {entities.length > 0 && (
        <ol class="stack" aria-label={isSearch ? 'Entities, best first' : 'Entities, those that changed last first'}>
          {entities.map((entity) => (
            <EntityCard key={`${entity.type} ${entity.id}`} entity={entity} />
          ))}
        </ol>
      )}
      {isSearch && found.data?.truncated === true && <p class="faint">There are more. More words find fewer.</p>}
      {!isSearch && listed.hasNextPage && (
        <button type="button" disabled={listed.isFetching} onClick={() => void listed.fetchNextPage()}>
          Show more
        </button>
      )}
      <Copies
        curl={curlOf('GET', isSearch ? `${base}/search?${search}` : `${base}/entities`)}
        cli="svc config check gateway.yaml"
      />
    </>
  );
}

function EntityCard({ entity }: { readonly entity: Entity | EntityHit }): JSX.Element {
  const { workspace } = useCurrent();
  const { type, id, name, attributes, links, version, updated_at: at } = entity;
  return (
    <li class="card">
      <header>
        <h2>
          <Text>{name}</Text>
        </h2>
        <span class="faint">
          <Text>{type}</Text> <Text mono>{id}</Text>
        </span>
      </header>
      <Facts
        of={[
          ...Object.entries(attributes).map(([of, value]) => [visible(of), <Text>{valueText(value)}</Text>] as const),
          ...links.map(
            (link) =>
              [
                visible(link.rel),
                <Link href={`/${workspace}/brain?${new URLSearchParams({ type: link.type, query: link.id })}`}>
                  <Text>{`${link.type} ${link.id}`}</Text>
                </Link>,
              ] as const,
          ),
        ]}
      />
      <p class="faint small">
        Version {version}, <Time at={at} />
        {'source' in entity && (
          <>
            {entity.source.kind === 'file' ? ', from ' : `, put by ${entity.source.by.type} `}
            <Text mono>
              {entity.source.kind === 'file' ? `${entity.source.file}:${entity.source.line}` : entity.source.by.id}
            </Text>
          </>
        )}
      </p>
    </li>
  );
}
