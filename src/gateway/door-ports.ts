import { createDoorCheck, createEntrances } from '../api/listeners.ts';
import type { InvalidKeyLimiter } from '../api/invalid-key-limiter.ts';
import { plainProblem, renderProblem } from '../api/problem.ts';
import type { RunResult } from '../effects/model/outcome.ts';
import type { EffectPorts } from '../effects/ports.ts';
import { newId } from '../effects/run/ids.ts';
import { problem, type RunRequest } from '../effects/model/run-request.ts';
import type { Authenticator } from '../identity/authenticate.ts';
import { parseKey } from '../identity/key-format.ts';
import { createReadJudge } from '../proxy/judge-read.ts';
import type { Identified } from '../identity/identified.ts';
import type { ProxyPorts, ProxySettings } from '../proxy/ports.ts';
import { receiptView } from '../receipts/view.ts';
import type { Spool } from '../upstreams/http/spool.ts';
import type { Upstreams } from '../upstreams/upstreams.ts';
import type { Held, InForce } from './in-force.ts';
import type { LivePauseView, PinView } from './views.ts';
import type { EntityFacts } from '../brain/facts.ts';
import type { Lists } from '../api/lists.ts';
import { problemOf } from '../api/server.ts';
import { previewEffect } from '../effects/run/preview-effect.ts';
import type { Directory } from '../identity/directory.ts';
import type { ControlPorts, Installation } from '../mcp/control/ports.ts';
import type { ReceiptSigner } from '../receipts/sign.ts';
import type { FastifyBaseLogger } from 'fastify';
import type { SecondOpinion } from '../policy/second-opinion.ts';
import { policyInputs } from './core-ports.ts';
import type { ApiSettings } from '../api/ports.ts';

/** Connects the rooms to what the data plane needs. */
export function proxyPorts(parts: {
  readonly core: EffectPorts;
  readonly held: Held;
  readonly authenticate: Authenticator['authenticate'];
  /** Shared with the control plane. */
  readonly limiter: InvalidKeyLimiter;
  readonly pauses: LivePauseView;
  readonly upstreams: Upstreams;
  readonly spool: Spool;
  readonly run: (request: RunRequest) => Promise<RunResult>;
  readonly preferredWait: ProxyPorts['preferredWait'];
  readonly heard: ProxyPorts['heard'];
  readonly shadowed: (rules: readonly string[]) => void;
  readonly observed: (would: string) => void;
  readonly access: ProxyPorts['access'];
  readonly settings: () => ApiSettings;
}): ProxyPorts {
  const { core, held, pauses, upstreams } = parts;
  const entranceOf = createEntrances(() => held.inForce.configuration.routes);
  const listeners = new Set<() => void>();
  const changed = (): void => {
    for (const listener of listeners) listener();
  };
  core.store.onKeysChanged(changed);
  pauses.onChange(changed);

  return {
    routes: () => held.inForce.configuration.routes,
    catalog: () => held.inForce.catalog,
    entranceOf,
    doorFault: createDoorCheck(parts.settings, entranceOf),
    identify: (key, address) => identify(parts, key, address),
    evaluateRead: createReadJudge({
      authorize: core.authorize,
      judge: core.judge,
      policyVersion: core.policyVersion,
      pauses,
      isFresh: (workspace) => pauses.isLoaded(workspace) && core.store.health().ready,
      now: () => core.store.now(),
    }),
    run: parts.run,
    preferredWait: parts.preferredWait,
    append: (workspace, events) => core.store.append(workspace, events),
    stream: (id) => upstreams.stream(id),
    heard: parts.heard,
    place: (kind, upstream, workspace, agentId) => upstreams.place(kind, upstream, `${workspace}\n${agentId}`),
    upstream: upstreams.settings,
    receiptView,
    renderProblem: (problem, { id, method, keyed }) => {
      const changes = method !== 'GET' && method !== 'HEAD';
      const { publicUrl } = parts.settings();
      // For a read without an idempotency key, there is no earlier run that could have happened.
      return renderProblem(problem, {}, { publicUrl, requestId: id, run: changes || keyed, changes });
    },
    policyMode: core.policyMode,
    observed: parts.observed,
    access: parts.access,
    shadowed: parts.shadowed,
    settings: currentSettings(parts.settings, held),
    spool: parts.spool,
    now: core.store.now,
    newId,
    onAccessChanged(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
  };
}

type Limits = InForce['configuration']['limits'];

/** Makes the settings anew only when what they are made of has changed. */
function currentSettings(ownSettings: () => ApiSettings, held: Held): () => ProxySettings {
  let known: { readonly own: ApiSettings; readonly limits: Limits; readonly settings: ProxySettings } | null = null;
  // That of the start, as at the other doors.
  const { bodyBytes } = held.inForce.configuration.limits;
  return () => {
    const own = ownSettings();
    const { limits } = held.inForce.configuration;
    if (own !== known?.own || limits !== known.limits)
      known = { own, limits, settings: settingsOf(own, { ...limits, bodyBytes }) };
    return known.settings;
  };
}

function settingsOf({ publicUrl, queryKey, jsonLimits }: ApiSettings, limits: Limits): ProxySettings {
  const { bodyBytes, uploadBytes, uploadFileBytes, spoolBytes } = limits;
  const uploads = { file: uploadFileBytes, request: uploadBytes, all: spoolBytes, fields: bodyBytes };
  return { publicUrl, queryKey, jsonLimits, bodyLimit: bodyBytes, uploads };
}

/** Who a key belongs to. Synchronous if the key is in the cache and the pauses of its workspace are known. */
export function identify(
  {
    authenticate,
    limiter,
    pauses,
  }: {
    readonly authenticate: Authenticator['authenticate'];
    readonly limiter: InvalidKeyLimiter;
    readonly pauses: LivePauseView;
  },
  key: string,
  address: string,
): Identified | Promise<Identified> {
  const handle = parseKey(key)?.handle ?? null;
  const wait = limiter.check(address, handle);
  if (wait !== null) return problem('too_many_requests', 'This address has sent too many invalid keys.', wait);
  const judge = (found: Awaited<ReturnType<Authenticator['authenticate']>>): Identified | Promise<Identified> => {
    if ('failure' in found) {
      limiter.failed(address);
      return problem('invalid_key', 'The key is malformed, unknown, expired or revoked.');
    }
    limiter.passed(handle);
    const known: Identified = { kind: 'principal', principal: found };
    const workspace = found.kind === 'administrative' ? null : found.workspace;
    // The pauses of a workspace are loaded before its first request passes.
    if (workspace === null || pauses.isLoaded(workspace)) return known;
    return pauses.refresh(workspace).then(() => known, unavailable);
  };
  const found = authenticate(key);
  return found instanceof Promise ? found.then(judge, unavailable) : judge(found);
}

function unavailable(): Identified {
  return problem('store_unavailable', 'The store cannot be reached, so nothing was sent.', 1000);
}

const LOOPBACK = /^(?:localhost|127\.\d+\.\d+\.\d+|::1)$/;

export function mcpControlPorts(
  parts: Pick<ControlPorts, 'brain' | 'openParams' | 'probe' | 'settings'> & {
    readonly core: EffectPorts;
    readonly held: Held;
    readonly directory: Directory;
    readonly lists: Lists;
    readonly authenticate: Authenticator['authenticate'];
    readonly limiter: InvalidKeyLimiter;
    readonly pauses: LivePauseView;
    readonly pins: PinView;
    readonly entities: Pick<EntityFacts, 'view'>;
    readonly signer: ReceiptSigner;
    readonly opinion: Pick<SecondOpinion, 'offer'>;
    readonly health: {
      readonly impediments: () => Installation['impediments'];
      readonly notes: () => Installation['notes'];
    };
    readonly logger: FastifyBaseLogger;
  },
): ControlPorts {
  const { core, held, directory, lists, logger, health, settings } = parts;
  return {
    store: core.store,
    identify: (key, address) => identify(parts, key, address),
    problemOf: (error, request) => {
      const problem =
        error instanceof Error
          ? problemOf(error)
          : plainProblem('internal', 'Something went wrong inside the gateway.');
      if (problem.code === 'internal')
        logger.error({ err: error, request_id: request.id }, 'a request failed inside the gateway');
      return problem;
    },
    renderProblem: (problem, { id, keyed }) =>
      renderProblem(problem, {}, { publicUrl: settings().publicUrl, requestId: id, run: keyed, changes: false }),
    probe: parts.probe,
    preview: (request, isOfCalls) => previewEffect(core, request, isOfCalls),
    policyInput: policyInputs(held, directory, parts.entities, parts.pins),
    secondOpinion: (policies, input) => parts.opinion.offer('simulation', policies, input),
    directory,
    catalog: () => held.inForce.catalog,
    brain: parts.brain,
    pins: parts.pins,
    policies: () => ({ set: held.inForce.policies, mode: held.inForce.configuration.policies.mode }),
    openParams: parts.openParams,
    receipts: { view: receiptView, jwks: () => parts.signer.jwks() },
    running: core.running,
    inLine: (keyId, make) => lists.make({ principal: { keyId } }, make),
    installation: () => {
      const { server, auth, secrets } = held.inForce.configuration;
      return {
        entrance:
          server.tls !== null
            ? 'tls'
            : server.publicUrl?.startsWith('https://') === true
              ? 'tls_before'
              : LOOPBACK.test(server.host)
                ? 'loopback'
                : 'plain',
        queryKey: auth.queryKey,
        previousSecrets: secrets.previous.length,
        impediments: health.impediments(),
        notes: health.notes(),
      };
    },
    settings,
    called: (request, { keyId, tool, outcome, code }) =>
      logger.info({ request_id: request.id, key_id: keyId, tool, outcome, code }, 'mcp tool'),
  };
}
