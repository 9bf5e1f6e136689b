import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { decodeTime } from 'ulid';

const HOUR_MS = 3_600_000;

/** Clocks of three gateways: an hour behind, right, and an hour ahead, ms. */
export const AN_HOUR_APART = [-HOUR_MS, 0, HOUR_MS] as const;

const PRELOAD = pathToFileURL(join(process.cwd(), 'test', 'system', 'clock-offset.mjs')).href;

/** Environment of the gateway at a place whose wall clock is an hour off the next one's. */
export function clockOf(gateway: number): Readonly<Record<string, string>> {
  return {
    NODE_OPTIONS: [process.env['NODE_OPTIONS'], `--import ${PRELOAD}`].filter(Boolean).join(' '),
    SVC_TEST_CLOCK_OFFSET_MS: String(AN_HOUR_APART[gateway] ?? 0),
  };
}

/** What the clock of a gateway said when it made an id, off this machine's by so many ms. Ids are made of the wall clock. */
export function offsetSeenIn(id: string): number {
  return decodeTime(id.slice(id.indexOf('_') + 1).toUpperCase()) - Date.now();
}
