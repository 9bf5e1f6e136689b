import type { KeyObject } from 'node:crypto';
import type { Ended, OpenProgram, Program } from '../stores/open-rows.ts';
import { readOwnJson } from '../json/read.ts';
import { loadSodium } from '../sodium/load.ts';
import { jwsSignature, type SignBytes, signBytesWith } from '../sodium/sign.ts';
import type { RequestOf, StepName } from '../effects/steps/table.ts';
import { COUNTED } from './counted.ts';
import { LocalSteps } from './local-steps.ts';
import type { StepRunner } from './runner.ts';
import type { Steps } from './steps.ts';
import type { EffectRecord, Hold, Lease, PoolUse } from '../effects/model/effect.ts';
import type { Amounts } from '../effects/model/answer.ts';
import type { BudgetRow } from '../effects/model/budget.ts';
import type { Observed } from '../effects/model/verdict.ts';
import type { Admission, AdmitRequest, Settlement, SettleRequest } from '../effects/store.ts';
import {
  aroundReceipt,
  type CallPart,
  type CallTuple,
  decodeCall,
  decodeOutcome,
  encodeCall,
  encodeOutcome,
  signedText,
  stageTuples,
  type StageTuple,
  stagesOf,
} from './effect-text.ts';

/** What is asked of the program in the store's thread. */
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
  return (ended, keys) => {
    const signers = new WeakMap<KeyObject, SignBytes>();
    const sign: SignReceipt = (head, payload) => {
      const key = keys.get(head);
      if (key === undefined) throw new TypeError('a receipt is to be signed with a key that is not here');
      const signer = signers.get(key) ?? signBytesWith(key, sodium);
      signers.set(key, signer);
      return jwsSignature(signer, head, payload);
    };
    return answerWith(new LocalSteps(ended), sign);
  };
}

/** Signs a receipt. @param head encoded, which names the key */
type SignReceipt = (head: string, payload: string) => string;

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
    const asked = readOwnJson<Asked>(request);
    switch (asked[0]) {
      case 'run':
        return JSON.stringify(steps.run(store, asked[1], asked[2], asked[3]));
      case 'preview':
        return JSON.stringify(steps.preview(store, asked[1], asked[2], asked[3]));
      case 'declare_lost':
        return JSON.stringify(steps.declareLost(store, asked[1], asked[2]));
      case 'declare_lost_leases':
        return JSON.stringify(steps.declareLostLeases(store, asked[1], asked[2]));
      case 'give_back_over':
        steps.giveBackOver(store.in(asked[1]), COUNTED, asked[2]);
        return 'null';
      case 'flush_counted':
        steps.flushCounted(store);
        return 'null';
    }
  };
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
      const { lost, allDeclared } = await send<ReturnType<LocalSteps['declareLostLeases']>>([
        'declare_lost_leases',
        workspace,
        limit,
      ]);
      if (allDeclared) ended.none(workspace);
      return lost;
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

/** What an admission asks for besides its call. */
interface AskedAdmission extends Omit<AdmitRequest, keyof CallPart | 'effectId' | 'stages'> {
  readonly stages: readonly StageTuple[];
}

/** The call comes as the text that its row will have, on a line of its own, and is stored as it came. */
function writeAdmit(request: AdmitRequest): string {
  const { effectId: id, workspace, idempotencyKey, fingerprint, action, actor, metadata, sealed } = request;
  const { verdict } = request;
  const asks = verdict.kind === 'permit' && verdict.approvals.length > 0;
  const asked: AskedAdmission = {
    // It is made where it is first asked for, and most calls never do.
    approvalId: asks ? request.approvalId : '',
    generationMs: request.generationMs,
    verdict,
    approvalDigest: request.approvalDigest,
    dispatches: request.dispatches,
    pausedBy: request.pausedBy,
    seen: request.seen,
    times: request.times,
    owner: request.owner,
    nonce: request.nonce,
    claimId: request.claimId,
    reservationId: request.reservationId,
    stages: stageTuples(request.stages),
  };
  const call = encodeCall({ id, workspace, idempotencyKey, fingerprint, action, actor, metadata, sealed });
  return `${call}\n${JSON.stringify(asked)}`;
}

function readAdmit(text: string): AdmitRequest {
  const [call = '', rest = ''] = text.split('\n');
  const [tuple, asked] = readOwnJson<readonly [CallTuple, AskedAdmission]>(`[${call},${rest}]`);
  const of = decodeCall(call, tuple);
  if (of.sealed === null) throw new TypeError('a call that asks for admission has a seal');
  // Each member is written out: spreads of this many cost 14 µs, and make an object that is slow to read.
  return {
    workspace: of.workspace,
    effectId: of.id,
    approvalId: asked.approvalId,
    nonce: asked.nonce,
    sealed: of.sealed,
    idempotencyKey: of.idempotencyKey,
    generationMs: asked.generationMs,
    fingerprint: of.fingerprint,
    action: of.action,
    actor: of.actor,
    verdict: asked.verdict,
    approvalDigest: asked.approvalDigest,
    dispatches: asked.dispatches,
    pausedBy: asked.pausedBy,
    seen: asked.seen,
    times: asked.times,
    owner: asked.owner,
    claimId: asked.claimId,
    reservationId: asked.reservationId,
    metadata: of.metadata,
    stages: stagesOf(asked.stages),
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
  if (admission.kind !== 'dispatch' || admission.approval !== null) return JSON.stringify(admission);
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
  const [idempotencyKey, times, holds, claims, uses, budgets, observed, traced, [epoch, seq]] = readOwnJson<GrantTuple>(
    text.slice(GRANT.length),
  );
  const [fenceEpoch, n, owner, admittedAt, dispatchBy, leaseEnd, quiesceUntil] = times;
  const fence = { epoch: fenceEpoch, n, nonce: request.nonce };
  const lease: Lease = { fence, owner, admittedAt, dispatchBy, leaseEnd, quiesceUntil };
  const { trace } = request.verdict;
  const effect: EffectRecord = {
    id: request.effectId,
    workspace: request.workspace,
    idempotencyKey,
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
    claims,
    uses,
    trace: traced === null && trace.observed === null ? trace : { ...trace, observed: traced },
    stages: request.stages,
    metadata: request.metadata,
    sealed: request.sealed,
  };
  return { kind: 'dispatch', effect, budgets, observed, ledger: { epoch, seq }, approval: null };
}

/** What a settlement of a committed call says besides its outcome. */
type Happened = Pick<SettleRequest, 'workspace' | 'effectId' | 'fence' | 'settledBy'> &
  Pick<Extract<SettleRequest['outcome'], { kind: 'committed' }>, 'accepted' | 'responseTruncated'> & {
    readonly stages: readonly StageTuple[];
    readonly amounts: Amounts | undefined;
    /** Head of the receipt that the thread has to sign; absent where it is signed. */
    readonly unsigned: string | undefined;
  };

/** What is committed comes with the texts that its row will have, each on a line, and they are stored as they came. */
function writeSettle(request: SettleRequest, { keys }: Pick<OpenProgram, 'keys'>): string {
  const { workspace, effectId, fence, outcome, settledBy, evidence, stages } = request;
  if (outcome.kind !== 'committed') return JSON.stringify(request);
  const { receipt, result, accepted, responseTruncated, amounts } = outcome;
  const { parts } = receipt;
  const unsigned = parts !== undefined && keys.has(parts.head) ? parts : null;
  const happened: Happened = {
    workspace,
    effectId,
    fence,
    settledBy,
    accepted,
    responseTruncated,
    stages: stageTuples(stages),
    amounts,
    unsigned: unsigned?.head,
  };
  if (unsigned !== null) {
    const { before, after } = aroundReceipt({ evidence, receipt, result });
    return `${JSON.stringify(happened)}\n${before}\n${unsigned.payload}\n${after}`;
  }
  const texts = encodeOutcome({ evidence, receipt, result });
  const begin = `${JSON.stringify(happened)}\n${texts.outcome}`;
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
  const { workspace, effectId, fence, settledBy, stages, accepted, responseTruncated, amounts, unsigned } =
    readOwnJson<Happened>(first);
  const signature = unsigned === undefined || payload === null ? '' : sign(unsigned, payload);
  const outcome = unsigned === undefined ? before : `${before}${signedText(unsigned, signature)}${after}`;
  const { evidence, receipt, result } = decodeOutcome({ outcome, payload });
  if (receipt === null) throw new TypeError('a committed effect has lost its receipt');
  const happened = { kind: 'committed', receipt, result, accepted, responseTruncated } as const;
  return {
    settle: {
      workspace,
      effectId,
      fence,
      outcome: amounts === undefined ? happened : { ...happened, amounts },
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
