import type { ApprovalRecord } from '../effects/model/approval.ts';
import type { KeptHttpResult, KeptMessage, KeptResult } from '../effects/model/answer.ts';
import { entityName, type EntityRecord, type EntityRef } from '../effects/model/entity.ts';
import type { EffectRecord } from '../effects/model/effect.ts';
import {
  type Admission,
  type AdmitRequest,
  type EffectStore,
  type SettleRequest,
  StoreUnavailable,
} from '../effects/store.ts';
import type { ApprovalRequirement } from '../effects/model/verdict.ts';
import type { Secrets } from '../secrets/vault.ts';
import { readOwnJson } from '../json/read.ts';

/*
 * Summaries of requests for approval, kept answers and entities of the company brain contain the same data as params.
 * So they are sealed at rest like params. This is done here, around the store, so it is the same for every store and for the journals beside them.
 */

type Seals = Pick<Secrets, 'sealText' | 'openText'>;

/** How many characters of sealed answers one list opens; the rest stays sealed. */
const OPENED_IN_LIST = 1024 * 1024;

const UNREADABLE = '(the summary cannot be read)';

/**
 * The store with sealing: seals on the way in, opens on the way out. Records from before seals existed are read
 * unchanged.
 */
export function sealedStore(store: EffectStore, seals: Seals): EffectStore {
  /** @throws StoreUnavailable where something else than a gateway wrote it, or its master secret is gone */
  function openEntity(workspace: string, entity: EntityRecord): EntityRecord {
    const body = seals.openText(entity.body, bindingOfEntity(workspace, entity));
    if (body !== null) return { ...entity, body };
    throw new StoreUnavailable(
      `The entity ${entity.type} ${entity.id} cannot be read: it is not as it was sealed. Put it again.`,
    );
  }

  const openApproval = (approval: ApprovalRecord): ApprovalRecord => withSummaries(approval, seals);
  const openEffect = (effect: EffectRecord): EffectRecord => withResult(effect, seals);

  function openAdmission(admission: Admission): Admission {
    switch (admission.kind) {
      case 'pending':
        return { ...admission, approval: openApproval(admission.approval) };
      case 'existing':
        return { ...admission, effect: openEffect(admission.effect) };
      case 'dispatch':
        return admission.approval === null ? admission : { ...admission, approval: openApproval(admission.approval) };
      case 'expired':
      case 'refused':
      case 'stale':
        return admission;
    }
  }

  return {
    ...store,
    get installId() {
      return store.installId;
    },
    admit: (request) => store.admit(withSealedSummaries(request, seals)).then(openAdmission),
    async preview(request) {
      return openAdmission(await store.preview(request));
    },
    settle: (request) =>
      store
        .settle(sealedSettlement(request, seals))
        .then((settlement) =>
          settlement.kind === 'refused' ? { ...settlement, effect: openEffect(settlement.effect) } : settlement,
        ),
    async resolve(request) {
      const resolution = await store.resolve(request);
      return resolution.kind === 'absent' ? resolution : { ...resolution, effect: openEffect(resolution.effect) };
    },
    async vote(request) {
      const voted = await store.vote(request);
      return voted.kind === 'absent' ? voted : { ...voted, approval: openApproval(voted.approval) };
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

function withSealedSummaries(request: AdmitRequest, seals: Seals): AdmitRequest {
  const { verdict, workspace, approvalId } = request;
  if (verdict.kind !== 'permit' || verdict.approvals.length === 0) return request;
  const approvals = verdict.approvals.map((requirement, part): ApprovalRequirement => {
    const bound = { what: 'summary', workspace, of: approvalId, part } as const;
    return { ...requirement, summary: '', sealedSummary: seals.sealText(requirement.summary, bound) };
  });
  return { ...request, verdict: { ...verdict, approvals } };
}

function withSummaries(approval: ApprovalRecord, seals: Seals): ApprovalRecord {
  const { workspace, id } = approval;
  const requirements = approval.requirements.map((requirement, part): ApprovalRequirement => {
    const { sealedSummary, ...rest } = requirement;
    if (sealedSummary === undefined) return requirement;
    const bound = { what: 'summary', workspace, of: id, part } as const;
    return { ...rest, summary: seals.openText(sealedSummary, bound) ?? UNREADABLE };
  });
  return { ...approval, requirements };
}
