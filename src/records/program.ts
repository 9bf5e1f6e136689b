import type { KeyObject } from 'node:crypto';
import type { Ended, FleetProgram, OpenProgram, OpenRows, OperatorEvent, Program } from '../stores/open-rows.ts';
import { quote, quoteOr, readOwnJson } from '../json/text.ts';
import { loadSodium } from '../sodium/load.ts';
import { jwsSignature, type SignBytes, signBytesWith } from '../sodium/sign.ts';
import type { RequestOf, StepName } from '../effects/steps/table.ts';
import { COUNTED } from './counted.ts';
import { LocalSteps } from './local-steps.ts';
import { createStepRunner, type StepRunner } from './runner.ts';
import { createSteps, type Steps } from './steps.ts';
import { eventDraft } from './view.ts';
import type { EffectRecord, Hold, Lease, PoolUse, SettledBy, BudgetRow } from '../effects/model/effect.ts';
import type { Amounts } from '../effects/model/answer.ts';
import type { Observed } from '../effects/model/verdict.ts';
import type { Admission, AdmitRequest, Settlement, SettleRequest } from '../effects/store.ts';
import {
  aroundReceipt,
  type CallTuple,
  decodeCall,
  decodeOutcome,
  encodeCall,
  encodeOutcome,
  encodeStages,
  settledByText,
  signedText,
  type StageTuple,
  stagesOf,
} from './effect-text.ts';

type Asked =
  | { readonly [Name in StepName]: readonly ['run' | 'preview', Name, string, RequestOf<Name>] }[StepName]
  | readonly ['declare_lost', string, string]
  | readonly ['declare_lost_leases' | 'give_back_over', string, number]
  | readonly ['flush_counted'];

/** What a request for one of the steps of every call begins with; any other is a JSON array. */
const ADMIT = 'a';
const SETTLE = 's';

/** The module that a thread of the store imports {@link loadProgram} from. */
export const PROGRAM_MODULE = new URL(import.meta.url);

/** What runs the rules' steps where the store's file is. It signs receipts before what they are of is committed. */
export async function loadProgram(): Promise<Program> {
  const sodium = await loadSodium();
  return (ended, keys) => answerWith(new LocalSteps(ended), signingWith(keys, sodium));
}

/** The same in the thread that has a store on Redis, where steps are guarded and may run again. */
export async function loadFleetProgram(): Promise<FleetProgram> {
  const sodium = await loadSodium();
  return {
    operatorEvent,
    run(rows, keys, maxFreezeMs) {
      const runner = createStepRunner(rows);
      const steps = createSteps(rows, runner, { ended: rows.ended, maxFreezeMs });
      const answer = answerLater(steps, rows, signingWith(keys, sodium));
      return {
        ask(request) {
          return steps.hasCounted() ? steps.flushCounted().then(() => answer(request)) : answer(request);
        },
        commits: runner.commits,
        close: runner.close,
      };
    },
  };
}

/** What an operator decided about a gateway, as an event of the ledger. */
export const operatorEvent: OperatorEvent = (kind, gateway) =>
  eventDraft({ kind, effectId: null, actor: { type: 'gateway', id: 'command-line' }, data: { gateway } }).text;

/** Signs a receipt. @param head encoded, which names the key */
type SignReceipt = (head: string, payload: string) => string;

function signingWith(
  keys: ReadonlyMap<string, KeyObject>,
  sodium: Awaited<ReturnType<typeof loadSodium>>,
): SignReceipt {
  const signers = new WeakMap<KeyObject, SignBytes>();
  return (head, payload) => {
    const key = keys.get(head);
    if (key === undefined) throw new TypeError('a receipt is to be signed with a key that is not here');
    const signer = signers.get(key) ?? signBytesWith(key, sodium);
    signers.set(key, signer);
    return jwsSignature(signer, head, payload);
  };
}

function answerWith(steps: LocalSteps, sign: SignReceipt): ReturnType<Program> {
  return (store, request) => {
    if (request.startsWith(ADMIT)) {
      const admit = readAdmit(request.slice(ADMIT.length));
      return writeAdmission(steps.run(store, 'admit', admit.workspace, admit), admit);
    }
    if (request.startsWith(SETTLE)) {
      const { settle, signature } = readSettle(request.slice(SETTLE.length), sign);
      return writeSettlement(steps.run(store, 'settle', settle.workspace, settle), signature);
    }
    const here: Runs = {
      run: (...asked) => steps.run(store, ...asked),
      preview: (...asked) => steps.preview(store, ...asked),
      declareLost: (...asked) => steps.declareLost(store, ...asked),
      declareLostLeases: (...asked) => steps.declareLostLeases(store, ...asked),
      giveBackOver: (workspace, limit) => steps.giveBackOver(store.in(workspace), COUNTED, limit),
      flushCounted: () => steps.flushCounted(store),
    };
    return JSON.stringify(ran(request, here) ?? null);
  };
}

/** @returns rejects with StoreUnavailable where the store cannot answer */
function answerLater(
  steps: Steps,
  rows: Pick<OpenRows, 'impediment'>,
  sign: SignReceipt,
): (request: string) => Promise<string> {
  return (request) => {
    if (request.startsWith(ADMIT)) {
      const admit = readAdmit(request.slice(ADMIT.length));
      const impediment = rows.impediment(admit.workspace);
      if (impediment !== null) return Promise.reject(impediment);
      return steps.admit(admit).then((admission) => writeAdmission(admission, admit));
    }
    if (request.startsWith(SETTLE)) {
      const { settle, signature } = readSettle(request.slice(SETTLE.length), sign);
      return steps.settle(settle).then((settlement) => writeSettlement(settlement, signature));
    }
    return Promise.resolve(ran(request, steps)).then((answer) => JSON.stringify(answer ?? null));
  };
}

/** What runs the other steps, at once or later. */
interface Runs {
  run<Name extends StepName>(name: Name, workspace: string, request: RequestOf<Name>): unknown;
  preview<Name extends StepName>(name: Name, workspace: string, request: RequestOf<Name>): unknown;
  declareLost(workspace: string, id: string): unknown;
  declareLostLeases(workspace: string, limit: number): unknown;
  giveBackOver(workspace: string, limit: number): unknown;
  flushCounted(): unknown;
}

/** Runs what is asked for besides the two steps of every call. */
function ran(request: string, on: Runs): unknown {
  const asked = readOwnJson<Asked>(request);
  switch (asked[0]) {
    case 'run':
      return on.run(asked[1], asked[2], asked[3]);
    case 'preview':
      return on.preview(asked[1], asked[2], asked[3]);
    case 'declare_lost':
      return on.declareLost(asked[1], asked[2]);
    case 'declare_lost_leases':
      return on.declareLostLeases(asked[1], asked[2]);
    case 'give_back_over':
      return on.giveBackOver(asked[1], asked[2]);
    case 'flush_counted':
      return on.flushCounted();
  }
}

/** The steps, as they are run in the store's thread. */
export function remoteSteps(program: OpenProgram, runner: StepRunner, ended: Ended): Steps {
  const { ask } = program;
  const send = <T>(asked: readonly unknown[], isCommit = false): Promise<T> =>
    runner.elsewhere(ask, JSON.stringify(asked), readOwnJson<T>, isCommit);
  return {
    admit: (request) =>
      runner.elsewhere(ask, ADMIT + writeAdmit(request), (answer) => readAdmission(answer, request), true),
    settle: (request) =>
      runner.elsewhere(ask, SETTLE + writeSettle(request, program), (answer) => readSettlement(answer, request), true),
    run: (name, workspace, request) => send(['run', name, workspace, request], true),
    preview: (name, workspace, request) => send(['preview', name, workspace, request]),
    declareLost: (workspace, id) => send(['declare_lost', workspace, id]),
    async giveBackOver(workspace, limit) {
      await send(['give_back_over', workspace, limit]);
    },
    async declareLostLeases(workspace, limit) {
      const declared = await send<Awaited<ReturnType<Steps['declareLostLeases']>>>([
        'declare_lost_leases',
        workspace,
        limit,
      ]);
      if (declared.allDeclared) ended.none(workspace);
      return declared;
    },
    // They are flushed before each step, where they are counted.
    hasCounted: () => false,
    async flushCounted() {
      await send(['flush_counted']);
    },
  };
}

/*
 * The two steps of every call, as they cross to the store's thread and back: members without names, and nothing that the
 * other side has already. The other steps cross as plain JSON.
 */

/** What a call asks for besides itself and its stages. */
type AskedTuple = readonly [
  verdict: AdmitRequest['verdict'],
  times: readonly [dispatch: number, timeout: number, processing: number, idempotentFor: number | null],
  seen: readonly [policy: string, pauses: number],
  owner: string,
  nonce: string,
  approvalId: string,
  approvalDigest: string,
  alike: AdmitRequest['alike'] | null,
  generationMs: number | null,
  dispatches: string | null,
  pausedBy: AdmitRequest['pausedBy'],
  claimId: string | null,
  reservationId: string | null,
];

/** The call comes as the text that its row will have, on a line of its own, and is stored as it came. */
function writeAdmit(request: AdmitRequest): string {
  const { verdict, times, seen, owner, nonce, approvalId, approvalDigest, alike = null } = request;
  const asked: AskedTuple = [
    verdict,
    [times.dispatchWindowMs, times.timeoutMs, times.maxProcessingMs, times.idempotentForMs],
    [seen.policy, seen.pauses],
    owner,
    nonce,
    approvalId,
    approvalDigest,
    alike,
    request.generationMs,
    request.dispatches,
    request.pausedBy,
    request.claimId,
    request.reservationId,
  ];
  const { effectId: id, workspace, idempotencyKey, fingerprint, action, actor, metadata, sealed } = request;
  const call = encodeCall({ id, workspace, idempotencyKey, fingerprint, action, actor, metadata, sealed });
  return `${call}\n${encodeStages(request.stages, 0)},${JSON.stringify(asked)}`;
}

function readAdmit(text: string): AdmitRequest {
  const [call = '', rest = ''] = text.split('\n');
  const read = readOwnJson<readonly [CallTuple, readonly StageTuple[], AskedTuple]>(`[${call},${rest}]`);
  const of = decodeCall(call, read[0]);
  if (of.sealed === null) throw new TypeError('a call that asks for admission has a seal');
  // By place: taken apart as a list, it makes an object for each member.
  const asked = read[2];
  const times = asked[1];
  // Each member is written out: spreads of this many cost 14 µs, and make an object that is slow to read.
  return {
    workspace: of.workspace,
    effectId: of.id,
    approvalId: asked[5],
    nonce: asked[4],
    sealed: of.sealed,
    idempotencyKey: of.idempotencyKey,
    generationMs: asked[8],
    fingerprint: of.fingerprint,
    action: of.action,
    actor: of.actor,
    verdict: asked[0],
    approvalDigest: asked[6],
    alike: asked[7] ?? undefined,
    dispatches: asked[9],
    pausedBy: asked[10],
    seen: { policy: asked[2][0], pauses: asked[2][1] },
    times: { dispatchWindowMs: times[0], timeoutMs: times[1], maxProcessingMs: times[2], idempotentForMs: times[3] },
    owner: asked[3],
    claimId: asked[11],
    reservationId: asked[12],
    metadata: of.metadata,
    stages: stagesOf(read[1]),
  };
}

/** What an admission adds to its request, where it makes a new effect of it that runs at once. */
type GrantTuple = readonly [
  idempotencyKey: string,
  lease: readonly [epoch: number, n: number, owner: string, number, number, number, number],
  holds: readonly Hold[],
  claims: readonly string[],
  uses: readonly PoolUse[],
  budgets: readonly BudgetRow[],
  observed: Observed | null,
  traced: Observed | null,
  ledger: readonly [epoch: number, seq: number],
];

const GRANT = '+';

function writeAdmission(admission: Admission, request: AdmitRequest): string {
  if (admission.kind !== 'dispatch' || admission.approval !== null || admission.allowance !== undefined)
    return JSON.stringify(admission);
  const { effect, budgets, observed, ledger } = admission;
  const { life } = effect;
  if (life.state !== 'executing' || effect.id !== request.effectId || effect.attempt !== 1)
    return JSON.stringify(admission);
  const { fence, owner, admittedAt, dispatchBy, leaseEnd, quiesceUntil } = life.lease;
  const tuple: GrantTuple = [
    effect.idempotencyKey,
    [fence.epoch, fence.n, owner, admittedAt, dispatchBy, leaseEnd, quiesceUntil],
    effect.holds,
    effect.claims,
    effect.uses,
    budgets,
    observed,
    effect.trace.observed,
    [ledger.epoch, ledger.seq],
  ];
  return `${GRANT}${JSON.stringify(tuple)}`;
}

function readAdmission(text: string, request: AdmitRequest): Admission {
  if (!text.startsWith(GRANT)) return readOwnJson<Admission>(text);
  const granted = readOwnJson<GrantTuple>(text.slice(GRANT.length));
  // By place: taken apart as lists, these two make 16 objects.
  const times = granted[1];
  const holds = granted[2];
  const observed = granted[6];
  const traced = granted[7];
  const n = times[1];
  const admittedAt = times[3];
  const fence = { epoch: times[0], n, nonce: request.nonce };
  const lease: Lease = {
    fence,
    owner: times[2],
    admittedAt,
    dispatchBy: times[4],
    leaseEnd: times[5],
    quiesceUntil: times[6],
  };
  const { trace } = request.verdict;
  const effect: EffectRecord = {
    id: request.effectId,
    workspace: request.workspace,
    idempotencyKey: granted[0],
    fingerprint: request.fingerprint,
    action: request.action,
    actor: request.actor,
    createdAt: admittedAt,
    life: { state: 'executing', lease },
    attempt: n,
    unsent: 0,
    generation: 1,
    firstDispatchAt: admittedAt,
    mayHaveHappened: false,
    closed: false,
    holds,
    holdState: holds.length === 0 ? 'none' : 'held',
    claims: granted[3],
    uses: granted[4],
    trace: traced === null && trace.observed === null ? trace : { ...trace, observed: traced },
    stages: request.stages,
    metadata: request.metadata,
    sealed: request.sealed,
  };
  const [epoch, seq] = granted[8];
  return { kind: 'dispatch', effect, budgets: granted[5], observed, ledger: { epoch, seq }, approval: null };
}

/** What a settlement of a committed call says besides its outcome. */
type HappenedTuple = readonly [
  workspace: string,
  effectId: string,
  epoch: number,
  n: number,
  nonce: string,
  settledBy: SettledBy,
  accepted: boolean,
  responseTruncated: boolean,
  stages: readonly StageTuple[],
  amounts: Amounts | null,
  /** Head of the receipt that the thread has to sign; `null` where it is signed. */
  unsigned: string | null,
];

/** What is committed comes with the texts that its row will have, each on a line, and they are stored as they came. */
function writeSettle(request: SettleRequest, { keys }: Pick<OpenProgram, 'keys'>): string {
  const { workspace, effectId, fence, outcome, evidence } = request;
  if (outcome.kind !== 'committed') return JSON.stringify(request);
  const { receipt, result, accepted, responseTruncated, amounts } = outcome;
  const { parts } = receipt;
  const unsigned = parts !== undefined && keys.has(parts.head) ? parts : null;
  const attempt = `${quote(workspace)},${quote(effectId)},${fence.epoch},${fence.n},${quote(fence.nonce)}`;
  const settled = `${settledByText(request.settledBy)},${accepted},${responseTruncated},${encodeStages(request.stages, 0)}`;
  const spent = amounts === undefined ? 'null' : JSON.stringify(amounts);
  const happened = `[${attempt},${settled},${spent},${quoteOr(unsigned?.head ?? null)}]`;
  if (unsigned !== null) {
    const { before, after } = aroundReceipt({ evidence, receipt, result });
    return `${happened}\n${before}\n${unsigned.payload}\n${after}`;
  }
  const texts = encodeOutcome({ evidence, receipt, result });
  const begin = `${happened}\n${texts.outcome}`;
  return texts.payload === null ? begin : `${begin}\n${texts.payload}`;
}

/** A settlement, and the signature of its receipt where it was made here. */
interface Settled {
  readonly settle: SettleRequest;
  readonly signature: string;
}

function readSettle(text: string, sign: SignReceipt): Settled {
  const [first = '', before, payload = null, after = ''] = text.split('\n');
  if (before === undefined) return { settle: readOwnJson<SettleRequest>(first), signature: '' };
  const [workspace, effectId, epoch, n, nonce, settledBy, accepted, responseTruncated, stages, amounts, unsigned] =
    readOwnJson<HappenedTuple>(first);
  const signature = unsigned === null || payload === null ? '' : sign(unsigned, payload);
  const outcome = unsigned === null ? before : `${before}${signedText(unsigned, signature)}${after}`;
  const { evidence, receipt, result } = decodeOutcome({ outcome, payload });
  if (receipt === null) throw new TypeError('a committed effect has lost its receipt');
  const happened = { kind: 'committed', receipt, result, accepted, responseTruncated } as const;
  return {
    settle: {
      workspace,
      effectId,
      fence: { epoch, n, nonce },
      outcome: amounts === null ? happened : { ...happened, amounts },
      settledBy,
      evidence,
      stages: stagesOf(stages),
    },
    signature,
  };
}

const SETTLED = '.';
const SETTLED_REPLY: Settlement = { kind: 'settled' };

/** @param signature that was made for it */
function writeSettlement(settlement: Settlement, signature: string): string {
  return settlement.kind === 'settled' ? SETTLED + signature : JSON.stringify(settlement);
}

function readSettlement(text: string, { outcome }: SettleRequest): Settlement {
  if (!text.startsWith(SETTLED)) return readOwnJson<Settlement>(text);
  const parts = outcome.kind === 'committed' ? outcome.receipt.parts : undefined;
  if (parts !== undefined && text !== SETTLED) parts.made = text.slice(SETTLED.length);
  return SETTLED_REPLY;
}
