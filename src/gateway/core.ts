import type { ApiPorts } from '../api/ports.ts';
import { createInvalidKeyLimiter } from '../api/invalid-key-limiter.ts';
import { createLists } from '../api/lists.ts';
import { ConsoleSessions } from '../console/sessions.ts';
import type { EffectPorts } from '../effects/ports.ts';
import { createProbe } from '../effects/run/probe-effect.ts';
import { StoreUnavailable } from '../effects/store.ts';
import { type Authenticator, createAuthenticator } from '../identity/authenticate.ts';
import { createPasskeys } from '../identity/passkeys/passkeys.ts';
import { createVerifier } from '../identity/passkeys/verifier.ts';
import { corePorts, runnerOf } from './core-ports.ts';
import type { Drain } from './drain.ts';
import type { ExitStack } from './exit-stack.ts';
import type { FilesInForce } from './files-in-force.ts';
import type { Ground } from './ground.ts';
import type { OwnSettings } from './in-force.ts';
import { outcomeOfProbe } from './prober.ts';
import type { Signals } from './signals.ts';
import type { TakeUp } from './take-up.ts';
import type { Views } from './views.ts';

/** For tests that stop or break the gateway at a point of their choice. */
export interface GatewayHooks {
  readonly decorate: (ports: EffectPorts) => EffectPorts;
}

export type Core = ReturnType<typeof openCore>;

/** Opens what all doors call: who asks, the path of a call, probes, and what is sealed for people. */
export function openCore(
  hooks: GatewayHooks,
  ground: Ground,
  views: Views,
  signals: Signals,
  files: FilesInForce,
  own: OwnSettings,
  takeUp: Pick<TakeUp, 'isDone'>,
  drain: Drain,
  opened: ExitStack,
) {
  const { store, secrets, logger } = ground;
  const { metrics } = signals;
  const ports = hooks.decorate(
    corePorts({
      ...ground,
      ...views,
      ...signals,
      upstream: views.upstreams,
      policies: files.reloader,
      alert: (what, effectId, err) =>
        logger.error({ alert: what, effect_id: effectId, err }, 'somebody has to look at this'),
    }),
  );
  const elapsed = (): number => performance.now();
  const authenticator = createAuthenticator({
    store,
    users: views.directory,
    peppers: [secrets.keyPepper, ...secrets.previousPeppers],
    elapsed,
  });
  opened.push(() => authenticator.close());
  const authenticate: Authenticator['authenticate'] = (key) =>
    takeUp.isDone() ? authenticator.authenticate(key) : Promise.reject(new StoreUnavailable('The store is not ready.'));
  const stillValid: ApiPorts['stillValid'] = (keyId) => authenticator.stillValid(keyId);
  const run = runnerOf(ports, metrics, drain);
  const probing = createProbe(ports);
  const probe: ApiPorts['probe'] = async (call) => {
    const result = await drain.running(probing(call));
    metrics.probed('caller', outcomeOfProbe(result));
    return result;
  };
  const openParams: ApiPorts['openParams'] = ({ sealed, workspace, id, fingerprint }) =>
    sealed === null ? null : secrets.open(sealed, { workspace, effectId: id, fingerprint });
  const verifier = createVerifier();
  opened.push(() => verifier.close());
  return {
    ports,
    authenticate,
    stillValid,
    invalidKeys: createInvalidKeyLimiter(elapsed),
    lists: createLists(store.turns),
    run,
    probe,
    openParams,
    sessions: new ConsoleSessions({ store, seals: secrets, stillValid, settings: own.read }),
    passkeys: createPasskeys({ store, seals: secrets, verifier }),
  };
}
