import { setTimeout } from 'node:timers/promises';
import { loadConfiguration } from '../../src/config/load.ts';
import type { EffectRecord } from '../../src/effects/model/effect.ts';
import { newId } from '../../src/effects/run/ids.ts';
import { type Admission, type AdmitRequest, type EffectStore, StoreUnavailable } from '../../src/effects/store.ts';
import { openStore } from '../../src/gateway/open-store.ts';
import { openSecrets, type Secrets } from '../../src/secrets/vault.ts';
import { until } from '../redis/servers.ts';
import type { TestGateway } from './gateway.ts';
import type { World } from './world.ts';

/** Admissions under way at a time. */
const AT_ONCE = 200;

/** A call that was in flight when its gateway died. */
export interface InFlight {
  readonly key: string;
  readonly id: string;
}

/** The call that all of them repeat, each under a key of its own. */
export function note(key: string): Record<string, unknown> {
  return { action_type: 'mcp.tool_call', tool: 'notes.add', params: { text: 'in flight' }, idempotency_key: key };
}

/**
 * Leaves a killed gateway with `count` effects in flight. The first is a call that the upstream never answers; the
 * others are admitted on the store as that one was, because so many calls cannot be made in a test's time.
 */
export async function dieInFlight(
  world: World,
  count: number,
  env: Readonly<Record<string, string>> = {},
): Promise<readonly InFlight[]> {
  const { gateway, upstream } = world;
  await upstream.mode({ mode: 'never', times: 1, path: '/v1/notes' });
  const first = world.run(note('in-flight-0')).catch(() => null);
  await until(async () => (await upstream.counts()).requests > 0);
  const { body } = await world.get('/effects?state=executing');
  const id: string = body.effects[0].id;
  gateway.kill('SIGKILL');
  await first;

  const { secrets, store } = await openStoreOf(gateway, env);
  try {
    const template = await store.effect('demo', id);
    if (template?.sealed === null || template === null) throw new Error('the first call is not on record');
    const plain = secrets.open(template.sealed, { ...template, effectId: id });
    if (plain === null) throw new Error('the seal of the first call does not open');
    const made: InFlight[] = [{ key: 'in-flight-0', id }];
    for (let from = 1; from < count; from += AT_ONCE) {
      const length = Math.min(AT_ONCE, count - from);
      const calls = Array.from({ length }, (_, n) => ({ key: `in-flight-${from + n}`, id: newId('eff') }));
      await Promise.all(
        calls.map(({ key, id: effectId }) =>
          admit(store, template, key, effectId, secrets.seal(plain, { ...template, effectId })),
        ),
      );
      made.push(...calls);
    }
    return made;
  } finally {
    await store.close();
  }
}

/** Opens the store that a gateway has left, as that gateway would. `env`: beside what every test gateway is given. */
export async function openStoreOf(
  gateway: TestGateway,
  env: Readonly<Record<string, string>>,
): Promise<{ readonly store: EffectStore; readonly secrets: Secrets }> {
  const { configuration } = await loadConfiguration(gateway.configFile, {
    environment: {
      ...process.env,
      SVC_TEST_DATA: gateway.dataFolder,
      SVC_TEST_POLICIES: gateway.policyFolder,
      ...env,
    },
  });
  const secrets = await openSecrets(configuration.secrets);
  return { secrets, store: await openStore(configuration, secrets.keySeals) };
}

async function admit(store: EffectStore, like: EffectRecord, key: string, id: string, sealed: string): Promise<void> {
  const { workspace, fingerprint, action, actor, trace, stages, metadata, holds } = like;
  const obligations = holds.map(({ budget, unit, bucket, window, amount }) => {
    const [, start, end] = window.split(':').map(Number);
    if (start === undefined || end === undefined) throw new Error(`${window} is not a calendar window`);
    const limit = Number.MAX_SAFE_INTEGER;
    const within = { kind: 'calendar', start, end } as const;
    return {
      kind: 'budget',
      rule: 'note',
      budget,
      unit,
      bucket,
      sharing: 'shared',
      window: within,
      limit,
      amount,
    } as const;
  });
  const request: AdmitRequest = {
    workspace,
    effectId: id,
    approvalId: newId('apr'),
    idempotencyKey: key,
    generationMs: null,
    fingerprint,
    action,
    actor,
    verdict: { kind: 'permit', mode: 'enforce', obligations, approvals: [], trace },
    approvalDigest: '',
    dispatches: null,
    pausedBy: null,
    seen: { policy: trace.policyVersion, pauses: 0 },
    times: { dispatchWindowMs: 2000, timeoutMs: 120_000, maxProcessingMs: 60_000, idempotentForMs: null },
    owner: 'a gateway that died',
    nonce: newId('n'),
    claimId: null,
    reservationId: null,
    metadata,
    sealed,
    stages,
  };
  const admission = await admitAgain(store, request);
  if (admission.kind !== 'dispatch') throw new Error(`not admitted: ${JSON.stringify(admission)}`);
}

/** Admits, again where the machine was too busy to answer: the same request with the same nonce is admitted once. */
async function admitAgain(store: EffectStore, request: AdmitRequest, left = 10): Promise<Admission> {
  try {
    return await store.admit(request);
  } catch (error) {
    if (!(error instanceof StoreUnavailable) || left === 0) throw error;
    await setTimeout(500);
    return admitAgain(store, request, left - 1);
  }
}
