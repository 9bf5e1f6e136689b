import { createSecureContext, type SecureContext } from 'node:tls';
import type { UpstreamTls } from '../../effects/upstream.ts';

const contexts = new WeakMap<UpstreamTls, SecureContext>();

/**
 * The keys and certificates of settings, parsed once and shared by all connections that have these settings.
 * @throws what `createSecureContext` throws
 */
export function contextOf(tls: UpstreamTls): SecureContext {
  let context = contexts.get(tls);
  if (context === undefined) {
    const { ca, client, minVersion } = tls;
    // Without `ca`, Node trusts its own CAs; with it, only these.
    context = createSecureContext({ minVersion, ...(ca === null ? {} : { ca }), ...client });
    contexts.set(tls, context);
  }
  return context;
}

/** Whether connections that were opened with one are as good as those of the other. */
export function sameTls(left: UpstreamTls | null, right: UpstreamTls | null): boolean {
  if (left === null || right === null) return left === right;
  return (
    left.ca === right.ca &&
    left.client?.cert === right.client?.cert &&
    left.client?.key === right.client?.key &&
    left.serverName === right.serverName &&
    left.minVersion === right.minVersion
  );
}
