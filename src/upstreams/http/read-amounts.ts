import { Gathered } from '../../bytes/gathered.ts';
import type { Amounts } from '../../effects/model/answer.ts';
import type { Tool } from '../../effects/model/tool.ts';
import type { Json } from '../../json/value.ts';
import { parseJson, valueAt } from './answer.ts';
import { createEventScan } from './events.ts';

/** The most bytes of an event that are looked into. */
const MOST_EVENT = 65_536;

/** What an answer in JSON says was spent. @param json `undefined` if it is no JSON */
export function amountsIn(paths: NonNullable<Tool['actual']>, json: Json | undefined): Amounts {
  return added(paths, (path) => (json === undefined ? undefined : valueAt(json, path)));
}

export function createEventAmounts(paths: NonNullable<Tool['actual']>) {
  const scan = createEventScan();
  const found = new Map<string, Json>();
  const wanted = [...new Set(Object.values(paths).flat(2))].map((path) => ({
    path,
    // As it stands in JSON. Most events have none of the names and are not parsed.
    name: `${JSON.stringify(path.slice(path.lastIndexOf('.') + 1))}`,
  }));
  const begun = new Gathered();
  let isTooLong = false;

  const read = (bytes: Buffer): void => {
    if (!wanted.some(({ name }) => bytes.includes(name))) return;
    for (const event of bytes.toString('utf8').split(/\r\n\r\n|\n\n|\r\r/)) {
      const here = wanted.filter(({ name }) => event.includes(name));
      if (here.length === 0) continue;
      const json = parseJson(Buffer.from(dataOf(event)));
      for (const { path } of here) {
        const value = json === undefined ? undefined : valueAt(json, path);
        if (value !== undefined) found.set(path, value);
      }
    }
  };
  return {
    take(piece: Buffer): void {
      const over = scan.over(piece);
      if (over > 0) {
        // What it may have said is not known, and what came before may be out of date.
        if (isTooLong) found.clear();
        const first = piece.subarray(0, over);
        read(begun.takenWith(first));
        isTooLong = false;
      }
      const rest = piece.subarray(over);
      isTooLong ||= begun.byteLength + rest.byteLength > MOST_EVENT;
      if (isTooLong) begun.take();
      else begun.add(rest);
    },
    amounts: (): Amounts => added(paths, (path) => found.get(path)),
  };
}

function dataOf(event: string): string {
  return event
    .split(/\r\n|\n|\r/)
    .filter((line) => line.startsWith('data:'))
    .map((line) => line.slice('data:'.length))
    .join('\n');
}

function added(paths: NonNullable<Tool['actual']>, at: (path: string) => Json | undefined): Amounts {
  return Object.fromEntries(
    Object.entries(paths).map(([unit, each]) => {
      const values = each.map((some) => some.map(at).find((value) => value !== undefined));
      const sum = values.reduce<number>((total, value) => total + (isAmount(value) ? value : Number.NaN), 0);
      return [unit, isAmount(sum) ? sum : null];
    }),
  );
}

function isAmount(value: Json | undefined): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
}
