import { join } from 'node:path';
import type { LedgerEntry, ListQuery, Row } from '../../src/stores/port.ts';
import { openEmbeddedRows } from '../../src/stores/embedded/open.ts';
import type { OpenRows } from '../../src/stores/open-rows.ts';
import { changeOf, listOf, putOf, rowIn, sumOf } from './changes.ts';

const WORKSPACE = 'load';

/**
 * Opens what a load (`load.ts`) left of a store, and says what is wrong with it: something is missing that the load was
 * told, or rows, lists, figures and ledger do not agree. `null`: all is whole.
 * @param marks the lines of the load
 */
export async function faultAfter(folder: string, marks: readonly string[]): Promise<string | null> {
  const store = await openEmbeddedRows({ path: join(folder, 'data', 'store'), lockWaitMs: 10_000, worker: 'never' });
  try {
    const { problem } = store.health();
    return problem === null ? await faultIn(store, marks) : problem.message;
  } finally {
    await store.close();
  }
}

async function faultIn(store: OpenRows, marks: readonly string[]): Promise<string | null> {
  const all = await rowsOf(store, 'all');
  const running = await rowsOf(store, 'running');
  const closed = await rowsOf(store, 'closed');
  for (const line of marks) {
    const [what, id = ''] = line.split(' ');
    const version = all.get(id)?.version;
    if (what === 'begun' && version !== `${id}-a` && version !== `${id}-b`) return `${id} is gone`;
    if (what === 'ended' && version !== `${id}-b`) return `the end of ${id} is gone`;
  }
  if (all.size !== running.size + closed.size) return 'a row stands in no list, or in two';
  for (const [id, { version, text }] of all) {
    const isEnded = version === `${id}-b`;
    if (text !== (isEnded ? 'y'.repeat(2_500) : 'x'.repeat(1_500))) return `the text of ${id} is another`;
    if (!(isEnded ? closed : running).has(id)) return `${id} stands in the wrong list`;
    const wants = [{ kind: 'key', id: `key-${id}` }];
    const { rows } = await store.read(WORKSPACE, wants, []);
    if (rowIn(rows, 'key', `key-${id}`)?.text !== id) return `the key of ${id} is gone`;
  }
  const { counters } = await store.read(WORKSPACE, [], [sumOf('budget')]);
  const [counter] = counters;
  if (counter?.held !== 3 * running.size || counter.spent !== 3 * closed.size)
    return `${JSON.stringify(counter)} for ${running.size} and ${closed.size}`;
  return (await faultInLedger(store, all)) ?? (await faultInNext(store, all));
}

async function faultInLedger(store: OpenRows, rows: ReadonlyMap<string, Row>): Promise<string | null> {
  const counts = new Map<string, number>();
  const seen: LedgerEntry[] = [];
  for (;;) {
    const after = seen.at(-1)?.seq ?? null;
    const slice = await store.ledger({ workspace: WORKSPACE, about: null, order: 'up', after, limit: 500 });
    if (slice.length === 0) break;
    seen.push(...slice);
  }
  for (const [index, { seq, about }] of seen.entries()) {
    if (seq !== index + 1) return `the ledger has ${seq} after ${index}`;
    counts.set(about ?? '', (counts.get(about ?? '') ?? 0) + 1);
  }
  for (const [id, { version }] of rows)
    if (counts.get(id) !== (version === `${id}-b` ? 5 : 2)) return `${id} has ${counts.get(id)} events`;
  return counts.size === rows.size ? null : 'the ledger speaks of what is not there';
}

/** What was put is guarded, and the store goes on. */
async function faultInNext(store: OpenRows, rows: ReadonlyMap<string, Row>): Promise<string | null> {
  const { epoch } = await store.read(WORKSPACE, [], []);
  for (const id of [...rows.keys()].slice(0, 50)) {
    const answer = await store.commit(changeOf(WORKSPACE, epoch, { puts: [putOf('key', `key-${id}`, 'again')] }));
    if (answer.kind === 'done') return `the key of ${id} was taken again`;
  }
  const next = await store.commit(changeOf(WORKSPACE, epoch, { puts: [putOf('next', `${rows.size}`, 'x')] }));
  return next.kind === 'done' ? null : 'nothing can be put any more';
}

async function rowsOf(store: OpenRows, list: string): Promise<ReadonlyMap<string, Row>> {
  const rows = new Map<string, Row>();
  let after: ListQuery['after'] = null;
  for (;;) {
    const { entries, more } = await store.list(listOf(WORKSPACE, list, { limit: 200, after }));
    for (const { id, row } of entries) rows.set(id, row);
    after = entries.at(-1) ?? null;
    if (!more) return rows;
  }
}
