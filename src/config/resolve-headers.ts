import { HEADER_PLACEHOLDERS, isNeverSent } from '../effects/run/header-names.ts';
import { at, type Judge } from './judge.ts';
import type { GatewayFile } from './schema.ts';
import type { HeaderSettings } from '../effects/upstream.ts';

export function resolveHeaders(written: GatewayFile['upstreams'][number]['headers'], judge: Judge): HeaderSettings {
  const names = (field: 'forward' | 'drop' | 'volatile'): readonly string[] =>
    written[field].map((name) => name.toLowerCase());
  for (const [index, name] of names('forward').entries())
    if (isNeverSent(name))
      judge.error('forbidden_header', at(written, 'forward', index), [
        `The header '${name}' is never sent on`,
        'it belongs to the connection or to the gateway',
      ]);
  const set: Record<string, string> = {};
  for (const [written_name, value] of Object.entries(written.set)) {
    const name = written_name.toLowerCase();
    const steps = ['set', written_name];
    if (!/^[a-z0-9!#$%&+.^_|~-]{1,100}$/.test(name) || isNeverSent(name) || NOT_SET.includes(name))
      judge.error('forbidden_header', at(written, ...steps), [
        `The header '${written_name}' cannot be set here`,
        name === 'authorization' ? 'write credentials: { header, value } in the upstream' : null,
      ]);
    if (!/^[\u0020-\u007e\u0080-\u00ff]*$/.test(value) || value.trim() !== value)
      judge.error('bad_header_value', at(written, ...steps), 'The value cannot stand in a header');
    for (const [, placeholder = ''] of value.matchAll(/\{([a-z_]+)\}/g))
      judge.known('placeholder', at(written, ...steps), placeholder, new Set(HEADER_PLACEHOLDERS));
    if (Object.hasOwn(set, name))
      judge.error('header_twice', at(written, ...steps), `The header '${name}' is set twice`);
    set[name] = value;
  }
  return { forward: names('forward'), drop: names('drop'), volatile: names('volatile'), set };
}

/**
 * Headers that `headers.set` must not name: the gateway sets them from what it knows of a request, or as credentials.
 */
const NOT_SET: readonly string[] = ['authorization', 'content-type'];
