import type { RequestFault } from '../effects/model/run-request.ts';
import { pointerTo } from '../json/pointer.ts';
import { type QueryPairs, REPEATED } from '../upstreams/http/query.ts';

/** A query, read strictly. */
export interface ReadQuery {
  /** Decoded names and values in their order, without `api_key`. */
  readonly pairs: QueryPairs;
  /** The keys in the query, for authentication. */
  readonly keys: readonly string[];
  /** What goes on: the original bytes without `api_key`, and without a `?` if nothing is left. */
  readonly forwarded: string;
  /** What is ambiguous about it. */
  readonly faults: readonly RequestFault[];
  /** Names that stand more than once: ambiguous unless a tool declares a list. */
  readonly repeated: readonly RequestFault[];
}

const NOTHING: ReadQuery = { pairs: [], keys: [], forwarded: '', faults: [], repeated: [] };

/**
 * Reads the query of a request line. A name that appears more than once, in any case, is told apart, because servers
 * differ in which of two they use.
 * @param text without the `?`; `null` if there is none
 * @param keyNames parameters that carry keys. `api_key` never goes on, even if it is not among them
 */
export function readQuery(text: string | null, keyNames: readonly string[] = ['api_key']): ReadQuery {
  if (text === null || text === '') return NOTHING;
  const pairs: (readonly [string, string])[] = [];
  const folded = new Set<string>();
  const keys: string[] = [];
  const kept: string[] = [];
  const faults: RequestFault[] = [];
  const repeated: RequestFault[] = [];
  const faultOf = (name: string, message: string): RequestFault => ({
    path: `/query${pointerTo([name])}`,
    message,
  });
  const add = (name: string, message: string): void => {
    faults.push(faultOf(name, message));
  };
  if (!/^[\x21-\x7e]*$/.test(text) || text.includes('#'))
    add('', 'the query has a character that must be percent-encoded');
  for (const pair of text.split('&')) {
    const equals = pair.indexOf('=');
    const name = decode(equals === -1 ? pair : pair.slice(0, equals));
    const value = equals === -1 ? '' : decode(pair.slice(equals + 1));
    const asKey = name?.toLowerCase() ?? '';
    if (asKey === 'api_key' || keyNames.includes(asKey)) {
      if (name !== null && keyNames.includes(name) && value !== null) keys.push(value);
      continue;
    }
    kept.push(pair);
    if (pair === '') continue;
    if (name === null || value === null) add('', 'a name or value of the query is not percent-encoded UTF-8');
    else if (pair.includes(';')) add(name, 'has a ";", which some servers take for a separator; percent-encode it');
    else if (name === '' || name === '__proto__') add(name, 'is not a name');
    else {
      if (folded.has(name.toLowerCase())) repeated.push(faultOf(name, REPEATED));
      folded.add(name.toLowerCase());
      pairs.push([name, value]);
    }
  }
  return { pairs, keys, forwarded: kept.join('&'), faults, repeated };
}

function decode(text: string): string | null {
  if (!/[%+]/.test(text)) return text;
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    return null;
  }
}
