import { admitStep } from '../../effects/admission.ts';
import type { ApprovalRecord } from '../../effects/approval.ts';
import type { BudgetRow, ClaimRecord, KeyRecord, PauseRecord, ReservationRecord } from '../../effects/controls.ts';
import type { EffectRecord, SignedReceipt } from '../../effects/effect.ts';
import { type EraseRequest, type Erasure, eraseStep } from '../../effects/erase.ts';
import {
  makeReservationStep,
  releaseClaimStep,
  releaseReservationStep,
  renewClaimStep,
  takeClaimStep,
} from '../../effects/holding.ts';
import type { LedgerActor, LedgerDraft, LedgerEvent } from '../../effects/ledger.ts';
import type { Agent, KeyKind } from '../../effects/principal.ts';
import { resolveStep, settleStep } from '../../effects/settlement.ts';
import type {
  Admission,
  AdmitRequest,
  ApprovalFilter,
  BudgetDefinition,
  ClaimResult,
  EffectFilter,
  EffectStore,
  GiveUpRequest,
  GiveUpResult,
  Page,
  PauseLift,
  PolicyActivation,
  ReservationResult,
  Resolution,
  ResolveRequest,
  Settlement,
  SettleRequest,
  SweepReport,
  VoteRequest,
  VoteResult,
} from '../../effects/store.ts';
import { giveUpStep, voteStep } from '../../effects/voting.ts';
import { bindSecret, endKey, putFirstKey, putKey, touchKeys } from './key-operations.ts';
import type { Session } from './session.ts';
import { type Retention, sweep } from './sweep.ts';

interface InWorkspace {
  readonly workspace: string;
}
interface ById extends InWorkspace {
  readonly id: string;
}

/** Every operation that runs within a transaction, by name: what it asks for and what it answers. */
export interface Operations {
  admit: { request: AdmitRequest; reply: Admission };
  preview: { request: AdmitRequest; reply: Admission };
  settle: { request: SettleRequest; reply: Settlement };
  resolve: { request: ResolveRequest; reply: Resolution };
  vote: { request: VoteRequest; reply: VoteResult };
  giveUp: { request: GiveUpRequest; reply: GiveUpResult };
  erase: { request: EraseRequest; reply: Erasure };
  sweep: { request: { readonly limit: number; readonly retention: Retention }; reply: SweepReport };
  grantedApprovals: { request: { readonly limit: number }; reply: readonly ApprovalRecord[] };
  effect: { request: ById; reply: EffectRecord | null };
  effects: { request: InWorkspace & { readonly filter: EffectFilter }; reply: Page<EffectRecord> };
  receipt: { request: ById; reply: SignedReceipt | null };
  effectLedger: { request: ById; reply: readonly LedgerEvent[] };
  ledger: {
    request: InWorkspace & { readonly after: number; readonly limit: number };
    reply: readonly LedgerEvent[];
  };
  ledgerBefore: {
    request: InWorkspace & { readonly before: number | null; readonly limit: number };
    reply: readonly LedgerEvent[];
  };
  append: { request: InWorkspace & { readonly events: readonly LedgerDraft[] }; reply: null };
  approval: { request: ById; reply: ApprovalRecord | null };
  approvals: {
    request: InWorkspace & { readonly filter: ApprovalFilter };
    reply: Page<ApprovalRecord>;
  };
  takeClaim: { request: Parameters<EffectStore['takeClaim']>[0]; reply: ClaimResult };
  renewClaim: { request: Parameters<typeof renewClaimStep>[1]; reply: ClaimRecord | null };
  releaseClaim: { request: Parameters<typeof releaseClaimStep>[1]; reply: ClaimRecord | null };
  claim: { request: ById; reply: ClaimRecord | null };
  claims: { request: InWorkspace; reply: readonly ClaimRecord[] };
  makeReservation: { request: Parameters<EffectStore['makeReservation']>[0]; reply: ReservationResult };
  releaseReservation: { request: Parameters<typeof releaseReservationStep>[1]; reply: ReservationRecord | null };
  reservation: { request: ById; reply: ReservationRecord | null };
  reservations: { request: InWorkspace; reply: readonly ReservationRecord[] };
  setPause: { request: Parameters<EffectStore['setPause']>[0]; reply: PauseRecord };
  liftPause: { request: ById & { readonly by: KeyKind; readonly actor: LedgerActor }; reply: PauseLift };
  pauses: { request: InWorkspace; reply: { readonly version: number; readonly pauses: readonly PauseRecord[] } };
  budgets: { request: InWorkspace; reply: readonly BudgetRow[] };
  activatePolicy: {
    request: { readonly version: string; readonly budgets: readonly BudgetDefinition[] };
    reply: PolicyActivation;
  };
  putKey: { request: { readonly key: KeyRecord; readonly actor: LedgerActor }; reply: null };
  putFirstKey: { request: { readonly key: KeyRecord; readonly actor: LedgerActor }; reply: boolean };
  key: { request: { readonly handle: string }; reply: KeyRecord | null };
  keys: { request: { readonly user: string | null }; reply: readonly KeyRecord[] };
  endKey: {
    request: {
      readonly id: string;
      readonly end: Parameters<EffectStore['endKey']>[1];
      readonly actor: LedgerActor;
    };
    reply: KeyRecord | null;
  };
  touchKeys: { request: { readonly ids: readonly string[]; readonly at: number }; reply: null };
  secretMark: { request: null; reply: string | null };
  bindSecret: { request: { readonly marks: readonly [string, ...string[]] }; reply: boolean };
  seeUsers: { request: { readonly ids: readonly string[] }; reply: null };
  userSince: { request: { readonly id: string }; reply: number | null };
  putWorkspace: { request: { readonly id: string; readonly actor: LedgerActor }; reply: boolean };
  workspaces: { request: null; reply: readonly string[] };
  putAgent: { request: { readonly agent: Agent; readonly actor: LedgerActor }; reply: null };
  agents: { request: null; reply: readonly Agent[] };
}

export type OperationName = keyof Operations;

const OPERATIONS: {
  readonly [Name in OperationName]: (
    session: Session,
    request: Operations[Name]['request'],
  ) => Operations[Name]['reply'];
} = {
  admit: (session, request) => session.run(request.workspace, admitStep, request),
  preview: (session, request) => admitStep(session.view, request).reply,
  settle: (session, request) => session.run(request.workspace, settleStep, request),
  resolve: (session, request) => session.run(request.workspace, resolveStep, request),
  vote: (session, request) => session.run(request.workspace, voteStep, request),
  giveUp: (session, request) => session.run(request.workspace, giveUpStep, request),
  erase: (session, request) => session.run(request.workspace, eraseStep, request),
  sweep: (session, request) => sweep(session, request.limit, request.retention),
  grantedApprovals: (session, { limit }) => session.approvals.granted(limit),
  effect: (session, { workspace, id }) => session.view.effect(workspace, id),
  effects: (session, { workspace, filter }) => session.leftOvers.page(workspace, filter),
  receipt: (session, { workspace, id }) => receiptOf(session, workspace, id),
  effectLedger(session, { workspace, id }) {
    session.view.effect(workspace, id);
    return session.ledger.ofEffect(workspace, id);
  },
  ledger: (session, { workspace, after, limit }) => session.ledger.after(workspace, after, limit),
  ledgerBefore: (session, { workspace, before, limit }) => session.ledger.before(workspace, before, limit),
  append(session, { workspace, events }) {
    session.append(workspace, events);
    return null;
  },
  approval: (session, { workspace, id }) => session.approvals.get(workspace, id),
  approvals: (session, { workspace, filter }) => session.approvals.page(workspace, filter),
  takeClaim: (session, request) => session.run(request.workspace, takeClaimStep, request),
  renewClaim: (session, request) => session.run(request.workspace, renewClaimStep, request),
  releaseClaim: (session, request) => session.run(request.workspace, releaseClaimStep, request),
  claim: (session, { workspace, id }) => session.view.claim(workspace, id),
  claims: (session, { workspace }) => session.leftOvers.claims(workspace),
  makeReservation: (session, request) => session.run(request.workspace, makeReservationStep, request),
  releaseReservation: (session, request) => session.run(request.workspace, releaseReservationStep, request),
  reservation: (session, { workspace, id }) => session.holdings.reservation(workspace, id),
  reservations: (session, { workspace }) => session.holdings.reservations(workspace, null, session.view.now),
  setPause,
  liftPause,
  pauses: (session, { workspace }) => ({
    version: session.controls.pauseVersion(workspace),
    pauses: session.controls.pauses(workspace, session.view.now),
  }),
  budgets: (session, { workspace }) => session.tallies.rows(workspace, session.view.now),
  activatePolicy,
  putKey,
  putFirstKey,
  key: (session, { handle }) => session.keys.byHandle(handle),
  keys: (session, { user }) => session.keys.list(user),
  endKey,
  touchKeys,
  secretMark: (session) => session.controls.secretMark(),
  bindSecret,
  seeUsers(session, { ids }) {
    session.controls.seeUsers(ids, session.view.now);
    return null;
  },
  userSince: (session, { id }) => session.controls.userSince(id),
  putWorkspace,
  workspaces: (session) => session.controls.workspaces(),
  putAgent,
  agents: (session) => session.controls.agents(),
};

/** Runs one operation within the transaction under way. */
export function runOperation<Name extends OperationName>(
  session: Session,
  name: Name,
  request: Operations[Name]['request'],
): Operations[Name]['reply'] {
  return OPERATIONS[name](session, request);
}

function receiptOf(session: Session, workspace: string, id: string): SignedReceipt | null {
  const effect = session.effects.effect(workspace, id);
  if (effect !== null) return effect.life.state === 'committed' ? effect.life.receipt : null;
  const tombstone = session.effects.tombstone(workspace, id);
  return tombstone?.outcome.state === 'committed' ? tombstone.outcome.receipt : null;
}

function setPause(session: Session, request: Operations['setPause']['request']): PauseRecord {
  const { id, workspace, scope, reason, until, by, actor } = request;
  const pause: PauseRecord = { id, workspace, scope, reason, by, createdAt: session.view.now, until };
  session.controls.putPause(pause);
  session.changes.pauses.add(workspace);
  session.append(workspace, [
    {
      kind: 'pause.set',
      effectId: null,
      actor,
      data: {
        pause_id: id,
        scope: { ...scope },
        reason,
        until: until === null ? null : new Date(until).toISOString(),
      },
    },
  ]);
  return pause;
}

function liftPause(session: Session, { workspace, id, by, actor }: Operations['liftPause']['request']): PauseLift {
  const pause = session.controls.pause(workspace, id);
  if (pause === null) return { kind: 'absent' };
  if (pause.by.keyKind === 'administrative' && by !== 'administrative') return { kind: 'administrative_only', pause };
  session.controls.removePause(workspace, id);
  session.changes.pauses.add(workspace);
  session.append(workspace, [{ kind: 'pause.lifted', effectId: null, actor, data: { pause_id: id } }]);
  return { kind: 'lifted', pause };
}

function activatePolicy(
  session: Session,
  { version, budgets }: Operations['activatePolicy']['request'],
): PolicyActivation {
  const redefined = budgets.flatMap((definition) => {
    const was = session.controls.definition(definition.budget);
    if (was === null || (was.unit === definition.unit && was.window === definition.window)) return [];
    return [{ definition, was }];
  });
  const refused = redefined.filter(
    ({ definition }) => !definition.reset && session.tallies.inUse(definition.budget, session.view.now),
  );
  if (refused.length > 0) {
    return {
      kind: 'budget_redefined',
      budgets: refused.map(({ definition, was }) => ({
        budget: definition.budget,
        was: `${was.unit} per ${was.window}`,
        is: `${definition.unit} per ${definition.window}`,
      })),
    };
  }
  for (const { definition } of redefined) session.tallies.reset(definition.budget);
  for (const definition of budgets) session.controls.define(definition);
  if (session.meta.get().policy !== version) session.meta.setPolicy(version);
  return { kind: 'active', version };
}

function putWorkspace(session: Session, { id, actor }: Operations['putWorkspace']['request']): boolean {
  if (!session.controls.addWorkspace(id)) return false;
  session.append(id, [{ kind: 'workspace.created', effectId: null, actor, data: { workspace: id } }]);
  return true;
}

function putAgent(session: Session, { agent, actor }: Operations['putAgent']['request']): null {
  const there = session.controls.agent(agent.workspace, agent.id);
  if (there !== null && JSON.stringify(there) === JSON.stringify(agent)) return null;
  session.controls.putAgent(agent);
  session.append(agent.workspace, [
    {
      kind: 'agent.registered',
      effectId: null,
      actor,
      data: { agent_id: agent.id, disabled: agent.disabled, team: agent.team, owner: agent.owner },
    },
  ]);
  return null;
}
