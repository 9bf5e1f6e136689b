import { createHash } from 'node:crypto';
import type { JsonObject } from '../../json/value.ts';
import { filledIn, judgeProbe, type ProbeFinding } from '../checks/judge-probe.ts';
import { type KeptResult, stateOfAnswer, statusShown } from '../model/answer.ts';
import type { EffectRecord, Life } from '../model/effect.ts';
import { NO_FILES } from '../model/files.ts';
import { isoTime } from '../model/iso-time.ts';
import type { LedgerActor } from '../model/ledger.ts';
import { ledgerActor } from '../model/principal.ts';
import type { Probe, Tool } from '../model/tool.ts';
import type { EffectPorts } from '../ports.ts';
import { problem } from '../model/run-request.ts';
import { type ResolveCall, type ResolveResult, settleUnknown, whileReachable } from './resolve-effect.ts';

/** Somebody asks for the probe of an effect that they may see. */
export type ProbeCall = Pick<ResolveCall, 'principal' | 'workspace' | 'effectId'>;

/** One reading, and what follows from it. */
export interface Probed extends Pick<ProbeFinding, 'finding' | 'why'> {
  readonly kind: 'probed';
  readonly effect: EffectRecord;
  readonly isSettled: boolean;
  /** When the next reading can tell more, ms; `null` where it is settled. */
  readonly retryAfterMs: number | null;
  /** Whether the upstream was heard: it answered, and not that it is busy or broken. */
  readonly wasHeard: boolean;
}

export type ProbeResult = Probed | Exclude<ResolveResult, { kind: 'resolved' }>;

/** A reading as it stands in the ledger, and in the receipt of what it settles. */
interface Reading extends ProbeFinding {
  /** Store time, before the first byte was sent. */
  readonly readAt: number;
  /** What was read, as evidence: what it shows, and none of its content. */
  readonly evidence: JsonObject;
  readonly wasHeard: boolean;
}

type UnknownLife = Extract<Life, { state: 'unknown' }>;

/**
 * Makes what starts the probes of unknown outcomes. A probe reads once. What it shows stands in the ledger; that the
 * action happened settles it at once. That it did not is concluded from two readings in a row, `every` apart, both made
 * after `quiesce_until`. Who asks again while a reading runs gets its result.
 */
export function createProbe(ports: EffectPorts): (call: ProbeCall) => Promise<ProbeResult> {
  const running = new Map<string, Promise<ProbeResult>>();
  return (call) => {
    const key = `${call.principal.keyId}\n${call.workspace}\n${call.effectId}`;
    const before = running.get(key);
    if (before !== undefined) return before;
    const probing = probeEffect(ports, call).finally(() => running.delete(key));
    running.set(key, probing);
    return probing;
  };
}

async function probeEffect(ports: EffectPorts, { principal, workspace, effectId }: ProbeCall): Promise<ProbeResult> {
  return whileReachable(async () => {
    const effect = await ports.store.effect(workspace, effectId);
    if (effect === null) return problem('not_found', 'There is no effect of this id in the workspace.');
    const { life, action } = effect;
    if (life.state !== 'unknown') return problem('not_unknown', 'Only an effect whose outcome is unknown is probed.');
    const { allowedTools } = principal;
    if (allowedTools !== null && !allowedTools.includes(action.tool))
      return problem('insufficient_scope', `The key may not call ${action.tool}, so it does not probe its calls.`);
    return probeOnce(ports, effect, life, ledgerActor(principal));
  });
}

/** Makes one reading for an effect that is unknown, in the name of the gateway, and settles it if the reading shows how. */
export function probeByItself(ports: EffectPorts, effect: EffectRecord, life: UnknownLife): Promise<ProbeResult> {
  return whileReachable(() => probeOnce(ports, effect, life, { type: 'gateway', id: 'prober' }));
}

/** @throws StoreUnavailable */
async function probeOnce(
  ports: EffectPorts,
  effect: EffectRecord,
  life: UnknownLife,
  actor: LedgerActor,
): Promise<ProbeResult> {
  const { action } = effect;
  const tool = ports.catalog().tool(action.tool);
  const probe = tool?.probe;
  if (tool === null || probe === undefined)
    return problem('no_probe', `${action.tool} declares no probe: look at the live state, and resolve it.`);
  if (tool.digest !== action.toolDigest)
    return problem('conflict', `${action.tool} is not what it was when the call was sent, so its probe shows nothing.`);
  const { last: before, answered } = await readingsBefore(ports, effect);
  const nextAt = before === null ? 0 : before.readAt + probe.everyMs;
  const left = nextAt - ports.store.now();
  if (left > 0) return problem('too_early', 'It was probed a moment ago. Nothing more is to be seen yet.', left);
  const reading = await read(ports, effect, tool, probe);
  if (typeof reading === 'string') return problem('conflict', reading);
  const { finding, why, wasHeard } = reading;
  const outcome = concluded(reading, before, life);
  if (outcome === null) {
    const wait = waitAfter(reading, answered, life, probe);
    const next = nextProbe(reading, wait, life, probe);
    await remember(ports, actor, effect, life, reading, next);
    return { kind: 'probed', effect, finding, why, isSettled: false, retryAfterMs: wait, wasHeard };
  }
  const evidence =
    outcome === 'happened' || before === null ? reading.evidence : { ...reading.evidence, before: before.evidence };
  const settledBy = { by: 'probe', evidence } as const;
  const settled = await settleUnknown(ports, effect, { actor, outcome, settledBy, force: false });
  if (settled.kind === 'problem') {
    await remember(ports, actor, effect, life, reading, nextProbe(reading, probe.everyMs, life, probe));
    return settled;
  }
  return { kind: 'probed', effect: settled.effect, finding, why, isSettled: true, retryAfterMs: null, wasHeard };
}

/** What follows from a reading and the one before it; `null`: nothing yet. */
function concluded(
  reading: Reading,
  before: Pick<Reading, 'finding' | 'readAt'> | null,
  { lease: { quiesceUntil } }: UnknownLife,
): 'happened' | 'not_happened' | null {
  switch (reading.finding) {
    case 'happened':
      return 'happened';
    case 'unknown':
      return null;
    case 'not_happened':
      return before?.finding === 'not_happened' && before.readAt >= quiesceUntil ? 'not_happened' : null;
  }
}

interface Before {
  /** `null`: none. One of an earlier attempt is older than this one's quiet time. */
  readonly last: (Pick<Reading, 'finding' | 'readAt'> & { readonly evidence: JsonObject }) | null;
  /** When each of this attempt was made that was answered, ms. */
  readonly answered: readonly number[];
}

async function readingsBefore({ store }: EffectPorts, effect: EffectRecord): Promise<Before> {
  const events = await store.effectLedger(effect.workspace, effect.id);
  const readings = events
    .filter(({ kind }) => kind === 'effect.probed')
    .map(({ data: { attempt, ...evidence } }) => {
      const { said: finding, read_at: at } = evidence;
      const before: NonNullable<Before['last']> = {
        finding: finding === 'not_happened' ? finding : 'unknown',
        readAt: typeof at === 'string' ? Date.parse(at) : 0,
        evidence,
      };
      return { ...before, wasAnswered: attempt === effect.attempt && evidence['fault'] === undefined };
    });
  const answered = readings.filter(({ wasAnswered }) => wasAnswered);
  return { last: readings.at(-1) ?? null, answered: answered.map(({ readAt }) => readAt) };
}

/** Puts a reading on record that settles nothing, or came too late to, and when the gateways make the next one. */
async function remember(
  { store }: EffectPorts,
  actor: LedgerActor,
  { workspace, id: effectId, attempt }: EffectRecord,
  { lease: { fence } }: UnknownLife,
  { evidence }: Reading,
  next: number | null,
): Promise<void> {
  const reading = { actor, data: { attempt, ...evidence } };
  await store.planProbe({ workspace, effectId, fence, due: 'any', next, reading });
}

/** Each wait is so many times the one before. */
const BACK_OFF = 1.5;

/**
 * How long after a reading to look again, ms: ever longer, as long as nothing can be concluded from what is not there;
 * at once when that time is over; and soon after it was first not there then. One without an answer lengthens nothing,
 * but is a hundredth of the effect's age away from the next: a read that never answers is made some hundred times, not
 * half a million.
 * @param answered when the readings before it were made
 */
export function waitAfter(
  { finding, readAt, wasHeard }: Pick<Reading, 'finding' | 'readAt' | 'wasHeard'>,
  answered: readonly number[],
  { at, lease: { quiesceUntil } }: Pick<UnknownLife, 'at' | 'lease'>,
  { everyMs }: Pick<Probe, 'everyMs'>,
): number {
  const left = quiesceUntil - readAt;
  if (left <= 0 && finding === 'not_happened') return everyMs;
  const alike = left > 0 ? answered : answered.filter((one) => one >= quiesceUntil);
  const wait = Math.max(everyMs * BACK_OFF ** alike.length, wasHeard ? 0 : (readAt - at) / 100);
  // No reading is so shortly before that time that it puts off the one after it.
  return left > 0 && wait + everyMs > left ? Math.max(everyMs, left) : wait;
}

/** When the gateways look again, ms; `null`: the time to do so is over. What was seen once gets its second reading. */
export function nextProbe(
  { finding, readAt }: Pick<Reading, 'finding' | 'readAt'>,
  waitMs: number,
  { at, lease }: Pick<UnknownLife, 'at' | 'lease'>,
  { forMs }: Pick<Probe, 'forMs'>,
): number | null {
  const next = Math.ceil(readAt + waitMs);
  const isHalfShown = finding === 'not_happened' && readAt >= lease.quiesceUntil && forMs > 0;
  return isHalfShown || next <= at + forMs ? next : null;
}

/** Sends the read of a probe, once, and judges the answer; or says why nothing was sent. */
async function read(ports: EffectPorts, effect: EffectRecord, tool: Tool, probe: Probe): Promise<Reading | string> {
  const { workspace, id, fingerprint, sealed, actor } = effect;
  const opened = sealed === null ? null : ports.secrets.open(sealed, { workspace, effectId: id, fingerprint });
  if (opened === null) return 'The params kept for the call cannot be read, so nothing can be asked about it.';
  await ports.seeTool?.(probe.read);
  const refusal = ports.mayRead?.(probe.read) ?? null;
  if (refusal !== null) return refusal.message;
  const subject = { agentId: actor.agentId, upstream: tool.upstream, keyId: actor.keyId };
  const isPaused = (): boolean =>
    [tool.name, probe.read.name].some(
      (name) => ports.pauses.match(workspace, { ...subject, tool: name }, ports.store.now()) !== null,
    );
  if (isPaused()) return 'The call, or what would ask about it, is paused, so nothing is sent for it.';
  const giveBack = await ports.place(tool.upstream, workspace, actor.agentId);
  if (giveBack === null) return 'No place for a request to the upstream became free in time.';
  try {
    const upstreamKey = `${id}.${effect.generation}`;
    const given = { ...opened.params, idempotency_key: upstreamKey };
    const readAt = ports.store.now();
    const result = await ports.upstream.send({
      effectId: id,
      upstreamKey,
      tool: probe.read,
      params: filledIn(probe.params, given),
      headers: {},
      proxied: null,
      files: NO_FILES,
      listener: null,
      gate: () => (isPaused() ? 'paused' : 'go'),
    });
    const answer = result.kind === 'committed' || result.kind === 'failed' ? result.result : null;
    const isCut = result.kind === 'committed' && result.responseTruncated;
    const about = { read: probe.read.name, read_at: isoTime(readAt) };
    const unseen = (fault: string): Reading => ({
      finding: 'unknown',
      why: `The upstream could not be asked: ${fault}.`,
      fields: [],
      readAt,
      evidence: { said: 'unknown', ...about, fault },
      wasHeard: false,
    });
    if (answer === null || isCut) return unseen(result.evidence.message);
    const state = stateOfAnswer(answer);
    if (typeof state === 'string') return unseen(state);
    const judged = judgeProbe(probe, answer.kind, state, given);
    const { finding, fields } = judged;
    const wasHeard = finding !== 'unknown' || !isTrouble(answer);
    const fault = wasHeard ? {} : { fault: 'The answer says that the upstream cannot tell now.' };
    const evidence = { said: finding, fields, ...about, answer_sha256: digestOf(state), ...fault };
    return { ...judged, readAt, evidence, wasHeard };
  } finally {
    giveBack();
  }
}

/** Whether an answer says that the upstream cannot tell now. */
function isTrouble(answer: KeptResult): boolean {
  const status = statusShown(answer) ?? 200;
  return status === 429 || status >= 500;
}

function digestOf(state: JsonObject): string {
  return createHash('sha256').update(JSON.stringify(state)).digest('base64url');
}
