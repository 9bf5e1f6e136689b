import type { FastifyBaseLogger } from 'fastify';
import type { EntityFacts } from '../brain/facts.ts';
import type { Reason } from '../effects/model/decision.ts';
import type { Note } from '../effects/model/note.ts';
import type { RunResult } from '../effects/model/outcome.ts';
import type { RunRequest } from '../effects/model/run-request.ts';
import type { Verdict } from '../effects/model/verdict.ts';
import type { CoreSettings, EffectPorts, JudgeInput } from '../effects/ports.ts';
import { newId, randomPooled } from '../effects/run/ids.ts';
import { runEffect } from '../effects/run/run-effect.ts';
import { Running } from '../effects/run/running.ts';
import { type EffectStore, StoreUnavailable } from '../effects/store.ts';
import { authorize, type Directory } from '../identity/directory.ts';
import { evaluatePolicies, summariesOf } from '../policy/evaluate.ts';
import type { PolicyInput } from '../policy/input.ts';
import { SecondOpinion } from '../policy/second-opinion.ts';
import type { ReceiptSigner } from '../receipts/sign.ts';
import type { Secrets } from '../secrets/vault.ts';
import type { SpillJournal } from '../stores/journal/spill.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { Upstreams } from '../upstreams/upstreams.ts';
import type { Drain } from './drain.ts';
import { within } from './exit-stack.ts';
import type { Held, InForce } from './in-force.ts';
import type { LivePauseView, PinView } from './views.ts';
import { sealedSettlement } from './sealed-store.ts';

/** How long after its admission a call may still be sent, ms (assumption A1 in docs/operating/README.md). */
const DISPATCH_WINDOW_MS = 2000;

/**
 * A clock in ms that never stops. Each step is the larger one of what the monotonic and the wall clock say: the first
 * may stop while the machine sleeps, and the second may be set back.
 */
export function createElapsed(): () => number {
  let monotonic = performance.now();
  let wall = Date.now();
  let total = 0;
  return () => {
    const monotonicNow = performance.now();
    const wallNow = Date.now();
    total += Math.max(monotonicNow - monotonic, wallNow - wall);
    monotonic = monotonicNow;
    wall = wallNow;
    return total;
  };
}

/**
 * Completes what a decision depends on with what the configuration says: the environment, and the mode.
 * @param entities what the company brain is known to say
 */
export function policyInputs(
  held: Held,
  directory: Directory,
  entities: Pick<EntityFacts, 'view'>,
  pins: Pick<PinView, 'stateOf'>,
): (input: JudgeInput, entity?: PolicyInput['entity'], pin?: PolicyInput['pin']) => PolicyInput {
  return (
    { agent, key, tool, workspace, target, params, headers, requestIp, now },
    entity = entities.view(workspace).entity,
    pin = pins.stateOf(tool),
  ) => {
    const { configuration, upstreamEnv } = held.inForce;
    const env = tool.env ?? upstreamEnv.get(tool.upstream) ?? directory.envOf(workspace);
    const { mode } = configuration.policies;
    // This runs for every call: a literal with all members costs a tenth of a spread.
    return { agent, key, tool, pin, env, workspace, target, params, headers, requestIp, now, mode, entity };
  };
}

/** Asks json-rules-engine about some decisions. What it says otherwise is logged, counted, and a note in `/readyz`. */
export function secondOpinionOf(held: Held, metrics: Metrics, logger: FastifyBaseLogger): SecondOpinion {
  return new SecondOpinion({
    everyMs: () => held.inForce.configuration.policies.secondOpinionMs,
    elapsed: () => performance.now(),
    later: (run) => setImmediate(run),
    found({ rule, tool, policyVersion, here, engine }) {
      metrics.differed(rule);
      logger.error(
        { alert: 'policy_difference', rule, tool, policy_version: policyVersion, here, engine },
        'json-rules-engine judges a rule otherwise than this gateway',
      );
    },
    failed: (err) => {
      metrics.alerted('second_opinion_failed');
      logger.error({ alert: 'second_opinion_failed', err }, 'json-rules-engine could not evaluate a rule');
    },
  });
}

export function opinionNotes(held: Held, opinion: SecondOpinion): readonly Note[] {
  return opinion.differences(held.inForce.policies.version).map(({ rule, tool, here }) => ({
    part: 'policies',
    message: `The rule ${rule} ${here ? 'matched' : 'did not match'} a call of ${tool}; json-rules-engine says otherwise. Do not rely on the rule, and report it.`,
  }));
}

/** A refusal that no rule can lift, in observe mode either. */
function withoutPolicy(reason: Reason, policyVersion: string): Verdict {
  return {
    kind: 'deny',
    decision: 'denied_policy',
    reason,
    trace: { policyVersion, matched: [], shadow: [], observed: null },
  };
}

function coreSettings({ resolve }: InForce['configuration'], bodyBytes: number): CoreSettings {
  return {
    dispatchWindowMs: DISPATCH_WINDOW_MS,
    allowForce: resolve.allowForce,
    // As much as the effects API could take: base64 needs four bytes for three.
    filesKeptBytes: Math.floor((bodyBytes / 4) * 3),
  };
}

/** Makes the settings anew only when the configuration is another. `limits.body` is that of the start, as at the doors. */
function currentSettings(held: Held): () => CoreSettings {
  const { bodyBytes } = held.inForce.configuration.limits;
  let known: { readonly configuration: InForce['configuration']; readonly settings: CoreSettings } | null = null;
  return () => {
    const { configuration } = held.inForce;
    if (known?.configuration !== configuration)
      known = { configuration, settings: coreSettings(configuration, bodyBytes) };
    return known.settings;
  };
}

/** Runs calls of all doors: each is counted, and the gateway stops only when it has ended. */
export function runnerOf(
  ports: EffectPorts,
  metrics: Metrics,
  drain: Drain,
): (request: RunRequest) => Promise<RunResult> {
  return (request) => {
    drain.begin();
    return runEffect(ports, request, (result) => {
      drain.end();
      if (result?.kind !== 'outcome') return;
      const { decision, reason, observed, repeat } = result.outcome;
      metrics.decided(decision, reason.code, request.via);
      if (observed !== null && !repeat) metrics.observed(observed.would, request.via);
    });
  };
}

export function corePorts(parts: {
  readonly store: EffectStore;
  readonly upstream: Upstreams;
  readonly held: Held;
  readonly directory: Directory;
  readonly pauses: LivePauseView;
  readonly pins: PinView;
  readonly entities: EntityFacts;
  readonly secrets: Secrets;
  readonly signer: ReceiptSigner;
  readonly spill: SpillJournal;
  readonly metrics: Metrics;
  readonly opinion: Pick<SecondOpinion, 'offer' | 'next'>;
  readonly silent: EffectPorts['silent'];
  readonly alert: EffectPorts['alert'];
  readonly owner: EffectPorts['owner'];
  /** Takes on the policies that are in force in the store. */
  readonly policies: { readonly follow: () => Promise<void>; readonly hindrance: () => string | null };
}): EffectPorts {
  const { held, directory, pauses, secrets, signer } = parts;
  const policyInput = policyInputs(held, directory, parts.entities, parts.pins);
  const catchUp = followPolicy(() => held.inForce.policies.version, parts.policies);
  return {
    store: parts.store,
    upstream: parts.upstream,
    place: (upstream, workspace, agentId) => parts.upstream.place('calls', upstream, `${workspace}\n${agentId}`),
    catalog: () => held.inForce.catalog,
    authorize: (principal, request) => authorize(directory, principal, request),
    judge(input, exceeded = null) {
      const pin = parts.pins.stateOf(input.tool);
      const quarantine = pin === null ? null : parts.pins.refusal(input.tool);
      if (quarantine !== null) return withoutPolicy(quarantine, held.inForce.policies.version);
      const view = parts.entities.view(input.workspace);
      const { policies } = held.inForce;
      const whole = policyInput(input, view.entity, pin);
      const verdict = evaluatePolicies(policies, whole, exceeded);
      // Asked here, so that calls which are not in the sample pay for one comparison.
      if (input.now >= parts.opinion.next.call) parts.opinion.offer('call', policies, whole);
      const entities = view.seen();
      return entities === null ? verdict : { ...verdict, trace: { ...verdict.trace, entities } };
    },
    summarize: (input, asking) =>
      summariesOf(held.inForce.policies, policyInput(input, parts.entities.view(input.workspace).entity), asking),
    seeTool: (tool) => parts.pins.known(tool),
    mayRead: (tool) => parts.pins.refusal(tool),
    policyVersion: () => held.inForce.policies.version,
    policyMode: () => held.inForce.configuration.policies.mode,
    pauses,
    async refresh(workspace, entities = [], policy = null) {
      if (entities.length > 0) await parts.entities.read(workspace, entities);
      await pauses.refresh(workspace);
      await catchUp(policy);
    },
    secrets,
    issueReceipt: (facts) => signer.issue(facts),
    spill: (request) => parts.spill.write(sealedSettlement(request, secrets)),
    newId,
    newNonce: () => randomPooled(12).toString('base64url'),
    elapsed: createElapsed(),
    owner: parts.owner,
    running: new Running(),
    settings: currentSettings(held),
    silent: parts.silent,
    alert: (what, effectId, cause) => {
      parts.metrics.alerted(what);
      parts.alert(what, effectId, cause);
    },
  };
}

/** What could not be taken on is tried again for a call after this long at the earliest, ms. */
const READ_AGAIN_MS = 1000;
/** A call waits so long for policies that are being taken on, ms. */
const WAIT_MS = 5000;

/**
 * Follows the policy in force: a stale admission names it. Limits stand in the store with it, so a gateway that has
 * another one admits nothing until it has taken on the one in force.
 * @param version of the policies that this gateway evaluates
 * @returns takes on the policies that another gateway has put in force, of this version as far as is known. It throws
 * StoreUnavailable where they cannot be taken on, or not in time, with the reason
 */
export function followPolicy(
  version: () => string,
  take: { readonly follow: () => Promise<void>; readonly hindrance: () => string | null },
  waitMs = WAIT_MS,
): (named: string | null) => Promise<void> {
  let inForce: string | null = null;
  let reading: Promise<void> | null = null;
  let last: { readonly wanted: string; readonly at: number } | null = null;

  return async (named) => {
    inForce = named ?? inForce;
    if (inForce === null || inForce === version()) return;
    const why = take.hindrance();
    const isNews = last === null || last.wanted !== inForce || performance.now() - last.at >= READ_AGAIN_MS;
    if (reading === null && (why === null || isNews)) {
      last = { wanted: inForce, at: performance.now() };
      reading = take.follow().finally(() => {
        reading = null;
      });
    }
    if (reading !== null && !(await within(reading, waitMs)))
      throw new StoreUnavailable('The policies in force in the store are still being taken on.');
    // What was named may be of before; whether it is, admission says.
    const hindrance = take.hindrance();
    if (inForce !== version() && hindrance !== null) throw new StoreUnavailable(hindrance);
  };
}
