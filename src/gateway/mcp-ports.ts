import type { EntityFacts } from '../brain/facts.ts';
import type { Lists } from '../api/lists.ts';
import type { InvalidKeyLimiter } from '../api/invalid-key-limiter.ts';
import { plainProblem, renderProblem } from '../api/problem.ts';
import { problemOf } from '../api/server.ts';
import type { EffectPorts } from '../effects/ports.ts';
import { previewEffect } from '../effects/run/preview-effect.ts';
import type { Authenticator } from '../identity/authenticate.ts';
import type { Directory } from '../identity/directory.ts';
import type { ControlPorts, Installation } from '../mcp/control/ports.ts';
import type { ReceiptSigner } from '../receipts/sign.ts';
import { receiptView } from '../receipts/view.ts';
import type { FastifyBaseLogger } from 'fastify';
import type { SecondOpinion } from '../policy/second-opinion.ts';
import { policyInputs } from './core-ports.ts';
import type { Held } from './in-force.ts';
import type { LivePauseView } from './pause-view.ts';
import type { PinView } from './pin-view.ts';
import { identify } from './proxy-ports.ts';

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
