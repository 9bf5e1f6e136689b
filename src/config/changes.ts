import { isDeepStrictEqual } from 'node:util';
import type { Configuration } from './configuration.ts';

/** Settings that cannot change until the next start. */
const FIXED: readonly { readonly name: string; readonly of: (configuration: Configuration) => unknown }[] = [
  { name: 'server.host', of: ({ server }) => server.host },
  { name: 'server.port', of: ({ server }) => server.port },
  { name: 'server.admin_port', of: ({ server }) => server.adminPort },
  { name: 'server.tls (with or without)', of: ({ server }) => server.tls !== null },
  { name: 'routes.listen', of: ({ listeners }) => listeners.map(({ at, tls }) => [at, tls !== null]) },
  { name: 'policies.second_person', of: ({ policies }) => policies.isOfTwo },
  { name: 'store', of: ({ store }) => store },
  { name: 'secrets', of: ({ secrets }) => secrets },
  { name: 'receipts', of: ({ receipts }) => receipts },
  { name: 'retention', of: ({ retention }) => retention },
  { name: 'limits.body', of: ({ limits }) => limits.bodyBytes },
  { name: 'limits.connections', of: ({ limits }) => limits.connections },
  { name: 'telemetry.log_level', of: ({ telemetry }) => telemetry.logLevel },
  { name: 'telemetry.access_log', of: ({ telemetry }) => telemetry.accessLog },
];

/**
 * Names of changed settings that cannot change while the gateway runs. They keep their old values, and the log says so.
 */
export function unchangeable(before: Configuration, after: Configuration): string[] {
  return FIXED.filter(({ of }) => !isDeepStrictEqual(of(before), of(after))).map(({ name }) => name);
}
