import type { ApprovalChange } from '../effects/approval-store.ts';
import type { AllowanceRecord, AllowanceDraft } from '../effects/model/allowance.ts';
import type { KeptHttpResult, KeptMessage, KeptResult } from '../effects/model/answer.ts';
import { type ApprovalRecord, isQuorate, type Vote } from '../effects/model/approval.ts';
import type { EffectRecord } from '../effects/model/effect.ts';
import { entityName, type EntityRecord, type EntityRef } from '../effects/model/entity.ts';
import type { ApprovalRequirement } from '../effects/model/verdict.ts';
import {
  type Admission,
  type AdmitRequest,
  type EffectStore,
  type Settlement,
  type SettleRequest,
  StoreUnavailable,
} from '../effects/store.ts';
import { readOwnJson } from '../json/text.ts';
import type { Secrets } from '../secrets/vault.ts';
import type { Metrics } from '../telemetry/metrics.ts';

/*
 * Summaries of requests for approval, kept answers and entities of the company brain contain the same data as params.
 * So they are sealed at rest like params. This is done here, around the store, so it is the same for every store and for the journals beside them.
 */

type Seals = Pick<Secrets, 'sealText' | 'openText'>;

/** Hears of the steps of a store, and of the stages of each settled attempt. */
type Measures = Pick<Metrics, 'step' | 'stages' | 'shadowed'>;

/** For a store that is open before there are metrics. */
export function unmeasured(): Measures & Pick<Metrics, 'alerted'> {
  return { step: () => undefined, stages: () => undefined, shadowed: () => undefined, alerted: () => undefined };
}

/** How many characters of sealed answers one list opens; the rest stays sealed. */
const OPENED_IN_LIST = 1024 * 1024;

const UNREADABLE = '(the summary cannot be read)';

/**
 * The store with sealing: seals on the way in, opens on the way out. Answers from before seals existed are read
 * unchanged; requests for approval and votes count for nothing without them. Its steps are measured.
 * @param forged hears of each of these that is read and is not as a gateway wrote it
 */
export function sealedStore(
  store: EffectStore,
  seals: Seals,
  measures: Measures = unmeasured(),
  forged: (record: string) => void = () => undefined,
): EffectStore {
  /** @throws StoreUnavailable where something else than a gateway wrote it, or its master secret is gone */
  function openEntity(workspace: string, entity: EntityRecord): EntityRecord {
    const body = seals.openText(entity.body, bindingOfEntity(workspace, entity));
    if (body !== null) return { ...entity, body };
    throw new StoreUnavailable(
      `The entity ${entity.type} ${entity.id} cannot be read: it is not as it was sealed. Put it again.`,
    );
  }

  /** Measures a step until it is durable, and opens its reply. */
  function measured<Reply>(
    step: Parameters<Metrics['step']>[0],
    running: Promise<Reply>,
    open: (reply: Reply) => Reply,
  ): Promise<Reply> {
    const begun = performance.now();
    return running.then(
      (reply) => {
        measures.step(step, 'done', performance.now() - begun);
        return open(reply);
      },
      (error: unknown) => {
        measures.step(step, 'failed', performance.now() - begun);
        throw error;
      },
    );
  }

  function openApproval(approval: ApprovalRecord): ApprovalRecord {
    const opened = withSummaries(approval, seals);
    if (opened.isForged === true) forged(`approval ${approval.workspace} ${approval.id}`);
    return opened;
  }
  const openEffect = (effect: EffectRecord): EffectRecord => withResult(effect, seals);

  function openSettlement(settlement: Settlement): Settlement {
    return settlement.kind === 'refused' ? { ...settlement, effect: openEffect(settlement.effect) } : settlement;
  }

  function openAdmission(admission: Admission): Admission {
    switch (admission.kind) {
      case 'pending':
        return { ...admission, approval: openApproval(admission.approval) };
      case 'existing':
        return { ...admission, effect: openEffect(admission.effect) };
      case 'dispatch':
        if (admission.approval !== null) return { ...admission, approval: openApproval(admission.approval) };
        return admission.allowance === undefined
          ? admission
          : { ...admission, allowance: openAllowance(admission.allowance) };
      case 'expired':
      case 'refused':
      case 'stale':
      case 'exceeds':
        return admission;
    }
  }

  function openAllowance(allowance: AllowanceRecord): AllowanceRecord {
    const opened = openedAllowance(allowance, seals);
    if (opened.isForged === true) forged(`allowance ${allowance.workspace} ${allowance.id}`);
    return opened;
  }

  return {
    ...store,
    get installId() {
      return store.installId;
    },
    admit(request) {
      const { shadow } = request.verdict.trace;
      const admitting = store.admit(withSealedSummaries(request, seals, store.now));
      if (shadow.length === 0) return measured('admit', admitting, openAdmission);
      return measured('admit', admitting, (admission) => {
        // Calls that are known already or must be judged again do not count.
        if (isDecided(admission)) measures.shadowed(shadow);
        return openAdmission(admission);
      });
    },
    preview: (request) => measured('preview', store.preview(request), openAdmission),
    settle(request) {
      measures.stages(request.stages);
      return measured('settle', store.settle(sealedSettlement(request, seals)), openSettlement);
    },
    resolve: (request) =>
      measured('resolve', store.resolve(request), (resolution) =>
        resolution.kind === 'absent' ? resolution : { ...resolution, effect: openEffect(resolution.effect) },
      ),
    vote(request) {
      const { workspace, approvalId, change } = request;
      const terms = termsOfVote(request, change?.digest ?? request.digest);
      const seal = seals.sealText(terms, bindingOfVote(workspace, approvalId));
      const changing = change === null ? null : sealedChange(workspace, approvalId, change, seals);
      const alike = request.alike === undefined ? null : { alike: sealedAllowance(request.alike, seals) };
      return measured('vote', store.vote({ ...request, ...alike, change: changing, seal }), (voted) =>
        voted.kind === 'absent' ? voted : { ...voted, approval: openApproval(voted.approval) },
      );
    },
    async giveUp(request) {
      const given = await store.giveUp(request);
      return given.kind === 'absent' ? given : { ...given, approval: openApproval(given.approval) };
    },
    async grantedApprovals(limit) {
      return (await store.grantedApprovals(limit)).map(openApproval);
    },
    async effect(workspace, id) {
      const effect = await store.effect(workspace, id);
      return effect === null ? null : openEffect(effect);
    },
    async effects(workspace, filter) {
      const page = await store.effects(workspace, filter);
      let left = OPENED_IN_LIST;
      const items = await store.turns.map(page.items, (effect) => {
        const size = sealedSize(effect);
        if (size > left) return effect;
        left -= size;
        return openEffect(effect);
      });
      return { ...page, items };
    },
    async approval(workspace, id) {
      const approval = await store.approval(workspace, id);
      return approval === null ? null : openApproval(approval);
    },
    async approvals(workspace, filter) {
      const page = await store.approvals(workspace, filter);
      return { ...page, items: await store.turns.map(page.items, openApproval) };
    },
    async allowance(workspace, id) {
      const allowance = await store.allowance(workspace, id);
      return allowance === null ? null : openAllowance(allowance);
    },
    async allowances(workspace, filter) {
      const page = await store.allowances(workspace, filter);
      return { ...page, items: await store.turns.map(page.items, openAllowance) };
    },
    async revokeAllowance(request) {
      const revoked = await store.revokeAllowance(request);
      return revoked.kind === 'absent' ? revoked : { ...revoked, allowance: openAllowance(revoked.allowance) };
    },
    putEntities(request) {
      const { workspace, entities } = request;
      const sealed = entities.map((entity) => ({
        ...entity,
        body: seals.sealText(entity.body, bindingOfEntity(workspace, entity)),
      }));
      return store.putEntities({ ...request, entities: sealed });
    },
    async entities(workspace, refs) {
      const found = await store.entities(workspace, refs);
      return found.map((entity) => (entity === null ? null : openEntity(workspace, entity)));
    },
    async entityPage(workspace, filter) {
      const page = await store.entityPage(workspace, filter);
      return { ...page, items: await store.turns.map(page.items, (entity) => openEntity(workspace, entity)) };
    },
    async entitiesSince(workspace, version, after) {
      const slice = await store.entitiesSince(workspace, version, after);
      return { ...slice, entities: await store.turns.map(slice.entities, (entity) => openEntity(workspace, entity)) };
    },
  };
}

function isDecided(admission: Admission): boolean {
  switch (admission.kind) {
    case 'dispatch':
    case 'refused':
      return true;
    case 'pending':
      return admission.created;
    case 'existing':
    case 'expired':
    case 'stale':
    case 'exceeds':
      return false;
  }
}

/** A settlement with its kept answer sealed, for the store and for the spill journal. */
export function sealedSettlement(request: SettleRequest, seals: Pick<Seals, 'sealText'>): SettleRequest {
  const { outcome, workspace, effectId } = request;
  if (outcome.kind !== 'committed' && outcome.kind !== 'failed') return request;
  const { result } = outcome;
  if (result === null || result.body.kind === 'sealed') return request;
  const value = seals.sealText(privateText(result), bindingOfResult(workspace, effectId));
  return { ...request, outcome: { ...outcome, result: withoutPrivate(result, value) } };
}

/** What of an answer can say something of the params: all but the status. */
function privateText(result: KeptResult): string {
  const { body } = result;
  switch (result.kind) {
    case 'http':
      return JSON.stringify({ headers: result.headers, body });
    case 'message':
      return JSON.stringify({ body });
  }
}

function withoutPrivate(result: KeptResult, value: string): KeptResult {
  const { truncated } = result;
  const body = { kind: 'sealed', value } as const;
  switch (result.kind) {
    case 'http':
      return { kind: 'http', status: result.status, headers: {}, body, truncated };
    case 'message':
      return { kind: 'message', body, truncated };
  }
}

/** @param text of {@link privateText}; nothing else writes what is sealed for a result */
function withPrivate(result: KeptResult, text: string): KeptResult {
  const { truncated } = result;
  switch (result.kind) {
    case 'http': {
      const { headers, body } = readOwnJson<Pick<KeptHttpResult, 'headers' | 'body'>>(text);
      return { kind: 'http', status: result.status, headers, body, truncated };
    }
    case 'message': {
      const { body } = readOwnJson<Pick<KeptMessage, 'body'>>(text);
      return { kind: 'message', body, truncated };
    }
  }
}

function bindingOfResult(workspace: string, effectId: string) {
  return { what: 'result', workspace, of: effectId, part: 0 } as const;
}

function bindingOfEntity(workspace: string, entity: EntityRef) {
  return { what: 'entity', workspace, of: entityName(entity), part: 0 } as const;
}

function sealedSize({ life }: EffectRecord): number {
  if (life.state !== 'committed' && life.state !== 'failed') return 0;
  return life.result?.body.kind === 'sealed' ? life.result.body.value.length : 0;
}

/** What cannot be opened stays sealed and is shown as left out. */
function withResult(effect: EffectRecord, seals: Seals): EffectRecord {
  const { life } = effect;
  if ((life.state !== 'committed' && life.state !== 'failed') || life.result?.body.kind !== 'sealed') return effect;
  const text = seals.openText(life.result.body.value, bindingOfResult(effect.workspace, effect.id));
  return text === null ? effect : { ...effect, life: { ...life, result: withPrivate(life.result, text) } };
}

function withSealedSummaries(request: AdmitRequest, seals: Seals, now: () => number): AdmitRequest {
  const { verdict } = request;
  if (verdict.kind !== 'permit' || verdict.approvals.length === 0) return request;
  // The id is made where it is first asked for, and the time is needed by few calls.
  const { workspace, approvalId, actor, approvalDigest: digest } = request;
  const asked = { digest, requester: actor, requirements: verdict.approvals };
  const approvals = sealedRequirements(workspace, approvalId, asked, seals, now());
  return { ...request, verdict: { ...verdict, approvals } };
}

function sealedChange(workspace: string, approvalId: string, change: ApprovalChange, seals: Seals): ApprovalChange {
  return { ...change, requirements: sealedRequirements(workspace, approvalId, change, seals, change.askedAt) };
}

/** The requirements of a question, each with its summary and all that a vote rests on sealed. */
function sealedRequirements(
  workspace: string,
  approvalId: string,
  { digest, requester, requirements }: Pick<ApprovalRecord, 'digest' | 'requester' | 'requirements'>,
  seals: Seals,
  askedAt: number,
): readonly ApprovalRequirement[] {
  const terms = { digest, requester, of: requirements.length };
  return requirements.map((requirement, part): ApprovalRequirement => {
    const content = [requirement.summary, askedAt, termsOfApproval(terms, requirement)];
    const bound = { what: 'approval', workspace, of: approvalId, part } as const;
    return { ...requirement, summary: '', sealedSummary: seals.sealText(JSON.stringify(content), bound) };
  });
}

/** By how much the time of a request may differ from when a gateway asked for it, ms. */
const MOST_LATE_MS = 60_000;

/** With summaries, and marked where anything that a vote rests on is not as a gateway wrote it. */
function withSummaries(approval: ApprovalRecord, seals: Seals): ApprovalRecord {
  const { workspace, id, requester, digest, status, votes } = approval;
  const terms = { digest, requester, of: approval.requirements.length };
  let isSound = terms.of > 0;
  const requirements = approval.requirements.map((requirement, part): ApprovalRequirement => {
    const { sealedSummary, ...rest } = requirement;
    const bound = { what: 'approval', workspace, of: id, part } as const;
    const text = sealedSummary === undefined ? null : seals.openText(sealedSummary, bound);
    const [summary, askedAt, sealed] = text === null ? [] : readOwnJson<readonly [string, number, string]>(text);
    const asked = askedAt ?? Number.NEGATIVE_INFINITY;
    isSound &&= sealed === termsOfApproval(terms, requirement) && approval.createdAt <= asked + MOST_LATE_MS;
    // A request that seems older would have escalated.
    isSound &&= requirement.escalate === undefined || approval.createdAt >= asked - MOST_LATE_MS;
    return { ...rest, summary: summary ?? (sealedSummary === undefined ? requirement.summary : UNREADABLE) };
  });
  isSound &&= votes.every((vote) => isSealed(vote, approval, seals));
  isSound &&= (status !== 'granted' && status !== 'used') || isQuorate(approval.requirements, votes);
  const opened = { ...approval, requirements, votes: votes.map(withoutSeal) };
  return isSound ? opened : { ...opened, isForged: true };
}

function withoutSeal(sealed: Vote): Vote {
  const { seal: _, ...vote } = sealed;
  return vote;
}

/** What a vote rests on, but for the summary and the time. */
function termsOfApproval(
  { digest, requester, of }: Pick<ApprovalRecord, 'digest' | 'requester'> & { readonly of: number },
  requirement: ApprovalRequirement,
): string {
  const { rule, ruleDigest, approvers, quorum, expiresMs, hold } = requirement;
  const { editable, requireReason, allowAlike, escalate, hours, beyond } = requirement;
  const { agentId, agentOwner, user, keyId, keyMadeBy } = requester;
  return JSON.stringify([
    digest,
    [agentId, agentOwner, user, keyId, keyMadeBy],
    [rule, ruleDigest, approvers.roles, approvers.users, quorum, expiresMs, hold],
    of,
    // Left out where there is none, so that older seals stay good.
    ...(editable === undefined && requireReason === undefined ? [] : [editable ?? null, requireReason === true]),
    ...(allowAlike === undefined ? [] : [{ alike: [allowAlike.times, allowAlike.forMs] }]),
    ...(beyond === undefined ? [] : [{ beyond }]),
    ...(hours === undefined ? [] : [{ hours: [hours.schedule, hours.expiresAt, hours.escalatesAt] }]),
    ...(escalate === undefined ? [] : [{ to: [escalate.afterMs, escalate.to.roles, escalate.to.users] }]),
  ]);
}

/** @param digest of what was voted on; absent in votes of older versions, when the id of a request named its question */
function termsOfVote(
  { user, keyId, verdict, comment, requirements }: Omit<Vote, 'at' | 'seal'>,
  ...digest: readonly string[]
): string {
  return JSON.stringify([user, keyId, verdict, comment, requirements, ...digest]);
}

function bindingOfVote(workspace: string, approvalId: string) {
  return { what: 'vote', workspace, of: approvalId, part: 0 } as const;
}

function isSealed(vote: Vote, { workspace, id, digest, changed }: ApprovalRecord, seals: Seals): boolean {
  const text = vote.seal === undefined ? null : seals.openText(vote.seal, bindingOfVote(workspace, id));
  return text === termsOfVote(vote, digest) || (changed === undefined && text === termsOfVote(vote));
}

/** An allowance as a gateway proposes it, with what vouches for it: for what, for whom, by whom, how often, until when. */
export function sealedAllowance(draft: AllowanceDraft, seals: Pick<Secrets, 'sealText'>): AllowanceDraft {
  const text = JSON.stringify([termsOf(draft), draft.until]);
  return { ...draft, seal: seals.sealText(text, bindingOf(draft)) };
}

/** An allowance as it is read, marked where anything that calls are let in by is not as a gateway wrote it. */
export function openedAllowance(stored: AllowanceRecord, seals: Pick<Secrets, 'openText'>): AllowanceRecord {
  const { seal, isForged: _, ...allowance } = stored;
  const text = seal === undefined ? null : seals.openText(seal, bindingOf(stored));
  const [terms, until] = text === null ? [] : readOwnJson<readonly [string, number]>(text);
  const isSound = terms === termsOf(stored) && until !== undefined && stored.expiresAt <= until;
  return isSound ? allowance : { ...allowance, isForged: true };
}

function termsOf(allowance: Omit<AllowanceDraft, 'until'>): string {
  const { id, likeness, approvalId, effectId, agentId, tool, target, rules, varies, by, times } = allowance;
  const asked = [approvalId, effectId, agentId, tool, target];
  return JSON.stringify([id, likeness, asked, rules, varies, [by.user, by.keyId], times]);
}

function bindingOf({ workspace, id }: Pick<AllowanceRecord, 'workspace' | 'id'>) {
  return { what: 'allowance', workspace, of: id, part: 0 } as const;
}
