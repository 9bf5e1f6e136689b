import type { ApprovalRecord, Stopped, Vote } from '../../effects/model/approval.ts';
import type { DeniedDecision } from '../../effects/model/decision.ts';
import type {
  EffectRecord,
  Evidence,
  KeptResult,
  Lease,
  Life,
  SettledBy,
  Tombstone,
} from '../../effects/model/effect.ts';
import type { Mismatch } from '../../effects/model/action-call.ts';
import type { Observed, VerdictTrace } from '../../effects/model/verdict.ts';
import { fromPlainText } from './names.ts';
import { reasonOf } from './reasons.ts';

/** Fields of an effect's or an approval's hash. */
export type Fields = ReadonlyMap<string, string>;

/** What of an effect never changes: `doc`. */
type Identity = Pick<EffectRecord, 'id' | 'workspace' | 'idempotencyKey' | 'fingerprint' | 'actor'>;

/** What an attempt is of: `run`. */
type Run = Pick<EffectRecord, 'action' | 'trace' | 'stages'>;

/** Documents of an effect that the caller has at hand, for those that a reply leaves out or only marks. */
export type KnownDocuments = Identity & Run & Pick<EffectRecord, 'metadata' | 'sealed'>;

type IdentityRow = readonly [
  id: string,
  workspace: string,
  idempotencyKey: string,
  fingerprint: string,
  actor: EffectRecord['actor'],
  tool: string,
  target: string,
];

type RunRow = readonly [action: EffectRecord['action'], trace: VerdictTrace, stages: EffectRecord['stages']];

/** The document of what never changes; tool and target are for what remains when the rest is gone. */
export function identityDocument({
  id,
  workspace,
  idempotencyKey,
  fingerprint,
  actor,
  action,
}: KnownDocuments): string {
  const row: IdentityRow = [id, workspace, idempotencyKey, fingerprint, actor, action.tool, action.target];
  return JSON.stringify(row);
}

/** The document of what an attempt is of. */
export function runDocument({ action, trace, stages }: Run): string {
  const row: RunRow = [action, trace, stages];
  return JSON.stringify(row);
}

/** The part of an approval that never changes. */
export type ApprovalIdentity = Pick<
  ApprovalRecord,
  'id' | 'workspace' | 'tool' | 'target' | 'requester' | 'requirements' | 'costs'
>;

export function isTombstone(fields: Fields): boolean {
  return fields.get('st') === 'tombstone';
}

/** Fields of an effect's hash, with those that stand in one. */
export function unpacked(hash: Fields): Fields {
  const packed = hash.get('f');
  if (packed === undefined) return hash;
  const fields = new Map(Object.entries(JSON.parse(packed) as Record<string, string>));
  for (const [name, value] of hash) fields.set(name, value);
  return fields;
}

/** A document of a reply, or `null` where the caller has it: it is left out, or a mark stands for it. */
function sent(text: string | undefined): string | null {
  return text === undefined || text.startsWith('\0') ? null : text;
}

function identityOf(text: string | null, known: KnownDocuments | null): Identity {
  if (text === null) {
    if (known === null) throw new TypeError('an effect on record has no identity');
    const { id, workspace, idempotencyKey, fingerprint, actor } = known;
    return { id, workspace, idempotencyKey, fingerprint, actor };
  }
  const [id, workspace, idempotencyKey, fingerprint, actor] = JSON.parse(text) as IdentityRow;
  return { id, workspace, idempotencyKey, fingerprint, actor };
}

function runOf(text: string | null, known: KnownDocuments | null): Run {
  if (text !== null) {
    const [action, trace, stages] = JSON.parse(text) as RunRow;
    return { action, trace, stages };
  }
  if (known === null) throw new TypeError('an effect on record has no attempt');
  return known;
}

function metadataOf(text: string | null, known: KnownDocuments | null): EffectRecord['metadata'] {
  if (text === null) return known?.metadata ?? null;
  return text === '' ? null : (JSON.parse(text) as EffectRecord['metadata']);
}

/** Stands where a seal was, so that steps that run again after a loss put it there too; no seal is like it. */
const ERASED = '!';

/** Reads an effect from its hash. Documents in it were written by this store from typed values. */
export function effectOf(hash: Fields, known: KnownDocuments | null = null): EffectRecord {
  const fields = unpacked(hash);
  const { action, trace, stages } = runOf(sent(fields.get('run')), known);
  const sealed = sent(fields.get('sealed'));
  const observed = observedOf(fields.get('ow') ?? '', fields.get('orule') ?? '');
  return {
    ...identityOf(sent(fields.get('doc')), known),
    action,
    createdAt: integer(fields, 'created'),
    life: lifeOf(fields),
    attempt: integer(fields, 'att'),
    unsent: fields.has('uns') ? integer(fields, 'uns') : 0,
    generation: fields.has('gen') ? integer(fields, 'gen') : 1,
    firstDispatchAt: time(fields, 'fda'),
    mayHaveHappened: fields.get('mhh') === '1',
    closed: fields.get('closed') === '1',
    holds: holdsOf(fields.get('holds')),
    holdState: (fields.get('hs') ?? 'none') as EffectRecord['holdState'],
    claims: texts(fields.get('claims')).map(fromPlainText),
    uses: usesOf(fields.get('uses')),
    trace: { ...trace, observed },
    stages: withLater(stages, fields.get('more') ?? ''),
    metadata: metadataOf(sent(fields.get('meta')), known),
    sealed: sealed === ERASED ? null : (sealed ?? known?.sealed ?? null),
  };
}

/** Holds as scripts write them. */
export function holdsOf(text: string | undefined): EffectRecord['holds'] {
  return rows(text).map(([budget = '', unit = '', bucket = '', window = '', amount = '']) => ({
    budget: fromPlainText(budget),
    unit: fromPlainText(unit),
    bucket: fromPlainText(bucket),
    window,
    amount: Number(amount),
  }));
}

/** Pool units as scripts write them. */
export function usesOf(text: string | undefined): EffectRecord['uses'] {
  return rows(text).map(([pool = '', units = '']) => ({ pool: fromPlainText(pool), units: Number(units) }));
}

/** What an obligation would have said, as scripts write it. */
export function observedOf(would: string, rule: string): Observed | null {
  // Written by scripts from the words of the pure steps.
  return would === '' ? null : { would: would as Observed['would'], rule: rule === '' ? null : fromPlainText(rule) };
}

function lifeOf(fields: Fields): Life {
  const state = fields.get('st') as Life['state'];
  switch (state) {
    case 'pending_approval':
      return { state, approvalId: fromPlainText(fields.get('ap') ?? '') };
    case 'executing':
      return { state, lease: leaseOf(fields) };
    case 'unknown': {
      const lease = leaseOf(fields);
      const evidence: Evidence =
        (fields.get('lost') ?? '') !== ''
          ? {
              code: 'lease_over',
              message:
                fields.get('lost') === 'ended'
                  ? 'The gateway that ran the attempt ended before it recorded an outcome.'
                  : 'The lease ended before an outcome was recorded.',
              status: null,
              startedAt: lease.admittedAt,
              endedAt: null,
            }
          : parse(fields, 'out');
      return { state, at: integer(fields, 'at'), lease, evidence };
    }
    case 'committed': {
      const out = parse<{
        readonly settledBy: SettledBy;
        readonly evidence: Evidence;
        readonly result: KeptResult | null;
        readonly accepted: boolean;
        readonly responseTruncated: boolean;
      }>(fields, 'out');
      return {
        state,
        at: integer(fields, 'at'),
        settledBy: settledByOf(fields, out.settledBy),
        evidence: evidenceOf(fields, out.evidence),
        receipt: receiptOf(fields),
        result: out.result,
        accepted: out.accepted,
        responseTruncated: out.responseTruncated,
      };
    }
    case 'failed': {
      const out = parse<{
        readonly settledBy: SettledBy;
        readonly evidence: Evidence;
        readonly result: KeptResult | null;
      }>(fields, 'out');
      return {
        state,
        at: integer(fields, 'at'),
        settledBy: settledByOf(fields, out.settledBy),
        evidence: evidenceOf(fields, out.evidence),
        result: out.result,
      };
    }
    case 'rejected':
      return {
        state,
        at: integer(fields, 'at'),
        approvalId: fromPlainText(fields.get('ap') ?? ''),
        until: integer(fields, 'until'),
      };
    case 'denied': {
      const at = integer(fields, 'at');
      const decision = fields.get('dec') as DeniedDecision | 'idempotency_conflict';
      const why = fields.get('why') ?? '';
      if (why !== '') return { state, at, decision, reason: reasonOf(texts(why)), mismatches: [] };
      const { reason, mismatches } = parse<{
        readonly reason: ReturnType<typeof reasonOf>;
        readonly mismatches: readonly Mismatch[];
      }>(fields, 'out');
      return { state, at, decision, reason, mismatches };
    }
  }
}

function leaseOf(fields: Fields): Lease {
  return {
    fence: { epoch: integer(fields, 'le'), n: integer(fields, 'att'), nonce: fromPlainText(fields.get('nonce') ?? '') },
    owner: fromPlainText(fields.get('owner') ?? ''),
    admittedAt: integer(fields, 'adm'),
    dispatchBy: integer(fields, 'dby'),
    leaseEnd: integer(fields, 'lend'),
    quiesceUntil: integer(fields, 'quiet'),
  };
}

/** Whether an outcome came late is decided in the store, after the document was made. */
function settledByOf(fields: Fields, said: SettledBy): SettledBy {
  return fields.get('late') === '1' ? { by: 'late_answer' } : said;
}

/** What a person or a probe declared began with the attempt's admission. */
function evidenceOf(fields: Fields, said: Evidence): Evidence {
  return fields.get('decl') === '1' ? { ...said, startedAt: integer(fields, 'adm') } : said;
}

function receiptOf(fields: Fields): { readonly id: string; readonly jws: string } {
  return { id: fromPlainText(fields.get('rcp') ?? ''), jws: fromPlainText(fields.get('jws') ?? '') };
}

/** Reads what remains of an effect whose retention is over. */
export function tombstoneOf(hash: Fields): Tombstone {
  const fields = unpacked(hash);
  const row = parse<IdentityRow>(fields, 'doc');
  const [id, workspace, idempotencyKey, fingerprint, actor, tool, target] = row;
  const state = fields.get('tst') as 'committed' | 'failed' | 'rejected';
  return {
    id,
    workspace,
    idempotencyKey,
    fingerprint,
    agentId: actor.agentId,
    tool,
    target,
    attempt: integer(fields, 'att'),
    at: integer(fields, 'at'),
    outcome: state === 'committed' ? { state, receipt: receiptOf(fields) } : { state },
  };
}

/** The receipt of an effect or a tombstone; `null` where it has none. */
export function receiptOfFields(hash: Fields): { readonly id: string; readonly jws: string } | null {
  const fields = unpacked(hash);
  const state = isTombstone(fields) ? fields.get('tst') : fields.get('st');
  return state === 'committed' ? receiptOf(fields) : null;
}

/** Reads a request for approval from its hash. */
export function approvalOf(fields: Fields, known: ApprovalIdentity | null = null): ApprovalRecord {
  // Records of before have no costs.
  const identity = document<Omit<ApprovalIdentity, 'costs'> & Partial<ApprovalIdentity>>(
    fields.get('doc'),
    known ?? undefined,
  );
  return {
    ...identity,
    costs: identity.costs ?? [],
    effectId: fromPlainText(fields.get('effect') ?? ''),
    digest: fromPlainText(fields.get('digest') ?? ''),
    votes: rows(fields.get('votes')).map(
      ([user = '', keyId = '', verdict = '', at = '', comment = 'null', ...requirements]): Vote => ({
        user: fromPlainText(user),
        keyId: fromPlainText(keyId),
        verdict: verdict === 'approve' ? 'approve' : 'reject',
        at: Number(at),
        comment: JSON.parse(comment) as string | null,
        requirements: requirements.map(Number),
      }),
    ),
    status: fields.get('status') as ApprovalRecord['status'],
    createdAt: integer(fields, 'created'),
    expiresAt: integer(fields, 'expires'),
    decidedAt: time(fields, 'decided'),
    stopped: stoppedOf(fields.get('stop') ?? ''),
  };
}

/** What stops a granted call, as scripts write it. */
function stoppedOf(text: string): Stopped | null {
  if (text === '') return null;
  const [at = '', decision = '', ...why] = texts(text);
  // Written by scripts from the words of the pure steps.
  return { at: Number(at), decision: decision as DeniedDecision, reason: reasonOf(why) };
}

/** Stages of an attempt with those of its settlements, a line each. */
function withLater(stages: EffectRecord['stages'], later: string): EffectRecord['stages'] {
  if (later === '') return stages;
  return [...stages, ...later.split('\n').flatMap((line) => JSON.parse(line) as EffectRecord['stages'])];
}

function document<T>(text: string | undefined, known: T | undefined): T {
  if (text !== undefined) return JSON.parse(text) as T;
  if (known === undefined) throw new TypeError('a record lacks a document');
  return known;
}

function parse<T>(fields: Fields, name: string): T {
  return JSON.parse(fields.get(name) ?? '') as T;
}

function integer(fields: Fields, name: string): number {
  const value = Number(fields.get(name));
  if (!Number.isSafeInteger(value)) throw new TypeError(`field ${name} of a record is not an integer`);
  return value;
}

function time(fields: Fields, name: string): number | null {
  const text = fields.get(name) ?? '';
  return text === '' ? null : Number(text);
}

/** An array of strings as scripts write it; '' is the empty one. */
export function texts(text: string | undefined): readonly string[] {
  return text === undefined || text === '' ? [] : (JSON.parse(text) as string[]);
}

/** An array of arrays of strings as scripts write it; '' is the empty one. */
export function rows(text: string | undefined): readonly (readonly string[])[] {
  return text === undefined || text === '' ? [] : (JSON.parse(text) as string[][]);
}
