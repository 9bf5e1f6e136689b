import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createRecentRows } from '../../src/records/recent-rows.ts';
import { loadDriver, type SqlDatabase } from '../../src/stores/embedded/driver.ts';
import { FORMS } from '../../src/stores/threads/operations.ts';
import { type Form, Decoder, Encoder } from '../../src/stores/threads/operations.ts';
import { ensureRowTables } from '../../src/stores/embedded/tables/schema.ts';
import { openRowSession, type RowSession } from '../../src/stores/embedded/tables/session.ts';
import { ABSENT, type Answer, type SumName } from '../../src/stores/port.ts';
import { changeOf, putOf } from '../port/changes.ts';

/** Messages that cross, and how long each is. */
const MESSAGES = 100;
const LONG = 1024 * 1024;
/** Of all of them, what may stay in memory, bytes. */
const MOST_KEPT = 10 * LONG;

let database: SqlDatabase;
let session: RowSession;
beforeAll(async () => {
  database = (await loadDriver())(':memory:');
  ensureRowTables(database);
  database.exec("INSERT INTO meta (one, install_id, epoch, boots, clock, commits) VALUES (1, 'test', 1, 1, 0, 0)");
  session = openRowSession(database, new Set());
});
afterAll(() => database.close());

/** Bytes in use once garbage is collected. */
function used(): number {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
  return process.memoryUsage().heapUsed;
}

function sumName(index: number): SumName {
  const name = `the-figure-that-has-the-number-${index}`;
  return { name, span: { kind: 'until', end: 1e15 }, group: `the-group-that-has-the-number-${index}` };
}

/** What another thread sent, as it arrives: one text that all texts are cut out of. */
function arrived<T>(form: Form<T>, value: T): T {
  const message = new Encoder();
  form(message, value);
  return form(new Decoder(message.take() ?? ''));
}

it('a change leaves its rows and figures in the memory of the store’s thread, and not the message that brought it', () => {
  const before = used();
  for (let index = 0; index < MESSAGES; index += 1) {
    const id = `effect-number-${index}`;
    const change = changeOf('the-only-workspace', 1, {
      id: `change-number-${index}`,
      guards: [{ kind: 'key', id: `key-number-${index}`, version: ABSENT }],
      puts: [putOf('effect', id, 'x'.repeat(LONG))],
      sums: [{ ...sumName(index), text: id, hold: 1, spend: 0, limit: null, most: null }],
    });
    const commit = (): Answer => session.commit(arrived(FORMS.commit.asked, change));
    expect(session.transact(() => 1000, commit).kind).toBe('done');
  }
  expect(used() - before).toBeLessThan(MOST_KEPT);
});

it('a look at figures leaves them in the memory of the store’s thread, and not the message that asked for them', () => {
  session.forget();
  const before = used();
  for (let index = 0; index < MESSAGES; index += 1) {
    const wanted = [{ kind: 'effect', id: 'x'.repeat(LONG) }];
    const asked = { workspace: 'the-only-workspace', wants: wanted, sums: [sumName(index)], isShown: false };
    const { workspace, wants, sums } = arrived(FORMS.read.asked, asked);
    expect(session.read(workspace, wants, sums).counters).toMatchObject([{ held: 1 }]);
  }
  expect(used() - before).toBeLessThan(MOST_KEPT);
});

it('the gateway remembers a row that it was shown, and not the answer that it stood in', () => {
  const recent = createRecentRows();
  const before = used();
  for (let index = 0; index < MESSAGES; index += 1) {
    const long = { kind: 'effect', id: 'always-the-same', row: { version: 'version-of-it', text: 'x'.repeat(LONG) } };
    const short = {
      kind: 'pause',
      id: `pause-number-${index}`,
      row: { version: `version-number-${index}`, text: 'short' },
    };
    const seen = arrived(FORMS.read.answer, { now: 1, epoch: 1, rows: [long, short], counters: [] });
    recent.learn('the-only-workspace', seen.rows, recent.tick());
  }
  expect(recent.get('the-only-workspace', 'pause', 'pause-number-7')?.text).toBe('short');
  expect(used() - before).toBeLessThan(MOST_KEPT);
});
