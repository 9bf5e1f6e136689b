import { type KeyObject, verify } from 'node:crypto';
import { commit } from '../effects/model/commit.ts';
import type { EffectState } from '../effects/model/effect.ts';
import { LEDGER_KINDS } from '../effects/model/ledger.ts';
import { stateAfter } from '../effects/steps/ledger-states.ts';
import { parseStrictJson } from '../json/strict.ts';
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../json/value.ts';
import {
  type BundleCounts,
  type BundleDigest,
  createBundleDigest,
  EXPORT_TYP,
  alteredText,
  jwsOfSeal,
} from './bundle.ts';
import { memberAt } from './commitments.ts';
import { createEventCheck } from './effect-events.ts';
import { differingMembers, saidByReceipt } from './effect-lines.ts';
import {
  canonicalObject,
  type Check,
  checkHeader,
  decodeParts,
  failed,
  passed,
  shown,
  trustedKey,
  type Verification,
  verifyReceipt,
} from './verify.ts';

/** The largest line of a bundle, bytes. Somebody else may have made the file. */
export const MOST_LINE = 16 * 1024 * 1024;

const LIMITS = { depth: 64, values: 1_000_000, name: 1_000_000 };

/** Faults that are told one by one. */
const MOST_TOLD = 20;

/** The first line of a bundle begins so, and nothing else that `svc verify` takes. */
export const BUNDLE_MARK = '{"type":"bundle"';

/**
 * Verifies a bundle offline, line by line. In memory stays what receipts and events say of effects whose lines follow.
 * @param lines with their line ends
 * @param trust a JWKS; `null`: the keys in the bundle are tried, and it stays undecided whose they are
 * @param seen gets what each line before the seal says
 */
export async function verifyBundle(
  lines: AsyncIterable<Buffer>,
  trust: JsonObject | null,
  policyVersion: PolicyVersion,
  seen: (line: JsonObject) => void = () => {},
): Promise<Verification> {
  const bundle = createBundleCheck(trust, policyVersion, seen);
  let held: Buffer | null = null;
  for await (const line of lines) {
    if (held !== null) bundle.line(held);
    held = Buffer.from(line);
  }
  return bundle.end(held);
}

/** The version of policy files, of one line or packed in several; `null` where they are none. */
type PolicyVersion = (files: Json | undefined, packed: readonly string[]) => string | null;

function createBundleCheck(trust: JsonObject | null, policyVersion: PolicyVersion, seen: (line: JsonObject) => void) {
  const digest = createBundleDigest();
  const counts = { events: 0, effects: 0, receipts: 0, policies: 0 };
  const faults: string[] = [];
  const admitted = new Map<string, { readonly epoch: number; readonly seq: number }>();
  const said = new Map<string, string>();
  const events = createEventCheck();
  const states = new Map<string, EffectState | null>();
  let words = 0;
  /** Effects whose receipt was issued and is not here. */
  const withoutReceipt = new Set<string>();
  const policies = createPolicyCheck(policyVersion);
  let head: JsonObject | null = null;
  let number = 0;
  let last: { readonly epoch: number; readonly seq: number } | null = null;
  /** The last event that says that a receipt was issued. */
  let issued: {
    readonly line: number;
    readonly effectId: Json | undefined;
    readonly receiptId: Json | undefined;
  } | null = null;
  let issuer: Json | undefined;
  let faultCount = 0;

  function fault(text: string): void {
    faultCount += 1;
    if (faults.length < MOST_TOLD) faults.push(`line ${number}: ${text}`);
  }

  const keys = (): JsonObject => trust ?? { keys: isJsonArray(head?.['keys']) ? head['keys'] : [] };

  const isFromBeginning = (): boolean => isJsonObject(head?.['filter']) && !Object.hasOwn(head['filter'], 'since');
  /** Whether it has all events of a time. */
  const isWhole = (): boolean =>
    isJsonObject(head?.['filter']) && Object.keys(head['filter']).every((name) => TIMES.has(name));

  function takeHead(value: JsonObject): void {
    if (value['type'] !== 'bundle' || value['v'] !== 1) fault('not the head of a bundle, version 1');
    head = value;
  }

  function takeEvent(event: JsonObject): void {
    const { seq, id, kind, effect_id: effectId, data } = event;
    counts.events += 1;
    const place = /^evt_(\d{1,15})_(\d{1,16})$/.exec(typeof id === 'string' ? id : '');
    const epoch = Number(place?.[1]);
    if (typeof seq !== 'number' || place?.[2] !== String(seq)) return fault('an event without its place in the ledger');
    // After a loss that somebody accepted the ledger goes on in the next epoch, maybe at a lower place.
    const isNext = epoch === last?.epoch && (isWhole() ? seq === last.seq + 1 : seq > last.seq);
    if (last === null && isWhole() && isFromBeginning() && seq !== 1)
      fault(`event ${seq} is the first, though nothing before it was left out by the filter`);
    if (last !== null && !isNext && epoch <= last.epoch)
      fault(`event ${seq} follows event ${last.seq}: one is missing, doubled, or in another's place`);
    last = { epoch, seq };
    const has = hasItsWords(event);
    if (has === false) fault('other words than those that the rejection commits to');
    if (has === true) words += 1;
    if (typeof effectId === 'string') events.event(event, effectId, said.has(effectId));
    const known = LEDGER_KINDS.find((one) => one === kind);
    if (typeof effectId === 'string' && known !== undefined && isJsonObject(data) && isWhole())
      states.set(effectId, stateAfter(states.get(effectId) ?? null, { kind: known, data }));
    if (kind === 'effect.admitted' && typeof effectId === 'string') admitted.set(effectId, last);
    if (kind === 'receipt.issued')
      issued = { line: number, effectId, receiptId: isJsonObject(data) ? data['receipt_id'] : undefined };
  }

  function takeReceipt(value: JsonObject): void {
    const { effect_id: effectId, receipt_id: receiptId, jws } = value;
    counts.receipts += 1;
    const by = issued;
    issued = null;
    if (by === null || by.effectId !== effectId || by.receiptId !== receiptId || by.line !== number - 1)
      fault('a receipt that the event before it does not name');
    if (jws === null) return void withoutReceipt.add(typeof effectId === 'string' ? effectId : '');
    const { payload, why } = receiptIn(value, keys(), head);
    if (why !== null) fault(why);
    if (payload === null) return;
    policies.named(payload);
    issuer ??= payload['iss'];
    if (issuer !== payload['iss']) fault('a receipt of another issuer');
    const place = typeof effectId === 'string' ? admitted.get(effectId) : undefined;
    const isThere = (of: 'epoch' | 'seq'): boolean => memberAt(payload, ['ledger', of]) === place?.[of];
    if (place !== undefined && !(isThere('seq') && isThere('epoch')))
      fault('the receipt names another place in the ledger than its effect has');
    if (typeof effectId !== 'string') return;
    admitted.delete(effectId);
    const differing = events.receipt(payload, effectId);
    if (differing.length > 0)
      fault(`events of effect ${shown(effectId)} differ from its receipt: ${differing.join(', ')}`);
    said.set(effectId, saidByReceipt(payload));
  }

  /** Whoever has the key can seal other lines: what the receipt of an effect says, its line has to say too. */
  function takeEffect(value: JsonObject): void {
    counts.effects += 1;
    policies.named(value);
    const { effect_id: effectId } = value;
    if (typeof effectId !== 'string') return fault('an effect without its id');
    const name = `effect ${shown(effectId)}`;
    if (value['workspace'] !== head?.['ws']) fault(`${name} is of another workspace`);
    const state = states.get(effectId) ?? null;
    if (state !== null && FINAL.has(state) && state !== value['state']) fault(`${name}: its events say ${state}`);
    const ofReceipt = said.get(effectId);
    if (ofReceipt === undefined) {
      if (withoutReceipt.has(effectId) && value['state'] === 'committed')
        fault(`${name} is here, and its receipt is not`);
      return;
    }
    said.delete(effectId);
    const differing = differingMembers(value, ofReceipt);
    if (differing === null) return;
    fault(`${name} differs from its receipt: ${differing.join(', ')}`);
  }

  function takePolicy(line: JsonObject): void {
    if (policies.isFirst(line)) counts.policies += 1;
    if (!policies.text(line)) fault(`policies that are not those of version ${text(line['version'])}`);
  }

  function take(value: JsonObject): void {
    if (issued !== null && value['type'] !== 'receipt') {
      fault(`the receipt that line ${issued.line} says was issued is missing`);
      issued = null;
    }
    const { type } = value;
    if (type === 'event') takeEvent(value);
    else if (type === 'receipt') takeReceipt(value);
    else if (type === 'effect') takeEffect(value);
    else if (type === 'policy') takePolicy(value);
    else fault('a line of no kind that a bundle has');
  }

  /** The outcome of all checks of the lines, in one. */
  function chain(): Check {
    if (faultCount === 0 && isEmpty(counts))
      return { name: 'chain', status: 'skipped', detail: 'There is no event, effect or receipt to check.' };
    if (faultCount === 0)
      return passed(
        'chain',
        'Events follow each other, each receipt is valid and follows its event; events and effects say what their receipts say.',
      );
    const more = faultCount > faults.length ? `; and ${faultCount - faults.length} more` : '';
    return failed('chain', `${faults.join('; ')}${more}`);
  }

  return {
    /** A line before the last. */
    line(bytes: Buffer): void {
      number += 1;
      digest.update(bytes);
      const parsed = parseStrictJson(bytes.subarray(0, -1), LIMITS);
      if (!parsed.ok || !isJsonObject(parsed.value)) return fault('not a JSON object');
      if (number === 1) takeHead(parsed.value);
      else take(parsed.value);
      seen(parsed.value);
    },
    end(last: Buffer | null): Verification {
      const text = last?.toString('utf8') ?? '';
      if (number > 0 && issued !== null) fault('the last receipt is missing');
      for (const id of events.charged())
        fault(`events of effect ${shown(id)} differ from its receipt: amount of budget.posted`);
      const sealed = checkSeal(text, keys(), { counts, digest: digest.end(), issuer, head });
      return conclude(
        counts,
        head,
        [
          chain(),
          ...(words === 0
            ? []
            : [passed('words', `The words of rejections are those that their events commit to: ${words}.`)]),
          ...policies.checks(),
          ...sealed.checks,
          ...(trust === null ? [untrusted(sealed.kid)] : []),
        ],
        sealed,
      );
    },
  };
}

/** The payload of the receipt of a line, and what is wrong with it. */
function receiptIn(
  { effect_id: effectId, receipt_id: receiptId, jws }: JsonObject,
  trust: JsonObject,
  head: JsonObject | null,
): { readonly payload: JsonObject | null; readonly why: string | null } {
  if (typeof jws !== 'string') return { payload: null, why: 'a receipt without its signed form' };
  const { verdict, checks, payload } = verifyReceipt({ content: jws, trust, disclosure: null });
  if (payload === null || verdict !== 'VALID') {
    const fault = checks.find(({ status }) => status !== 'passed')?.detail ?? '';
    return { payload: null, why: `receipt ${verdict}: ${fault}` };
  }
  const isOfEffect = payload['id'] === receiptId && memberAt(payload, ['effect', 'id']) === effectId;
  if (!isOfEffect) return { payload, why: 'a receipt of another effect' };
  return { payload, why: payload['ws'] === head?.['ws'] ? null : 'a receipt of another workspace' };
}

function isEmpty({ events, effects, receipts }: BundleCounts): boolean {
  return events + effects + receipts === 0;
}

/** The states that an effect does not leave: most that was refused or rejected has no receipt to be held against. */
const FINAL: ReadonlySet<EffectState> = new Set(['committed', 'denied', 'rejected']);

/**
 * Whether the event of a rejection has the words that it commits to, which a bundle has for as long as the request is kept;
 * `null`: it has none.
 */
function hasItsWords({ kind, data, words }: JsonObject): boolean | null {
  const commitment = isJsonObject(data) && kind === 'approval.rejected' ? data['comment'] : undefined;
  if (words === undefined) return null;
  const { comment, comment_salt: salt } = isJsonObject(words) ? words : {};
  return typeof salt === 'string' && typeof comment === 'string' && commit(salt, comment) === commitment;
}

/** Parts of one version. A gateway keeps no policies that pack to more. */
const MOST_PARTS = 64;

/** Receipts and effects name the policies that they were judged by, by the digest of their texts. */
function createPolicyCheck(policyVersion: PolicyVersion) {
  const named = new Set<string>();
  const texts = new Set<string>();
  const packed: string[] = [];

  /** The version that a line is of; `undefined`: its last part is still to come. */
  function versionOf({ files, part, parts, packed: text }: JsonObject): string | null | undefined {
    if (part === undefined && packed.length === 0) return policyVersion(files, []);
    if (typeof text !== 'string' || packed.push(text) !== part || part > MOST_PARTS) return null;
    return part === parts ? policyVersion(undefined, packed.splice(0)) : undefined;
  }

  return {
    /** @param by a receipt or an effect */
    named(by: JsonObject): void {
      const version = memberAt(by, ['policy', 'version']);
      if (typeof version === 'string') named.add(version);
    },
    /** Whether a line begins a version: one that is too large for a line is in several. */
    isFirst: ({ part }: JsonObject): boolean => part === undefined || part === 1,
    /** Whether the texts of a line are those of the version that it names. */
    text(line: JsonObject): boolean {
      const { version } = line;
      // Who put it in force is known, and its texts are kept no more.
      if (line['files'] === null) return true;
      const is = versionOf(line);
      if (is === undefined) return true;
      if (typeof version !== 'string' || is !== version) return false;
      texts.add(version);
      return true;
    },
    checks(): readonly Check[] {
      if (packed.length > 0) return [failed('policies', 'The rest of the texts of a version is missing.')];
      const missing = [...named].filter((version) => !texts.has(version));
      if (missing.length > 0) {
        const detail = `It has no text of these policies that receipts or effects name: ${missing.slice(0, MOST_TOLD).map(shown).join(', ')}.`;
        return [{ name: 'policies', status: 'skipped', detail }];
      }
      return texts.size === 0
        ? []
        : [passed('policies', `The texts of policies are those of their versions: ${texts.size}.`)];
    },
  };
}

/** Of which workspace, what was asked for, and when it was sealed. */
function described(counts: BundleCounts, head: JsonObject | null, sealedAt: Json | undefined): string {
  const { events, effects, receipts, policies } = counts;
  const filter = isJsonObject(head?.['filter']) ? head['filter'] : {};
  const by = Object.entries(filter).filter(([name]) => !TIMES.has(name));
  const asked = by.length === 0 ? 'everything' : by.map(([name, value]) => `${shown(name)} ${text(value)}`).join(', ');
  const since = filter['since'] === undefined ? 'the beginning' : text(filter['since']);
  const when = `from ${since} until ${text(filter['until'])}, sealed ${text(sealedAt)}`;
  const has = isEmpty(counts)
    ? 'IT HOLDS NOTHING: the gateway says that no event, effect or receipt fits'
    : `${events} events, ${effects} effects, ${receipts} receipts, ${policies} versions of policies`;
  return `A bundle of workspace ${text(head?.['ws'])}: ${asked}, ${when}. ${has}.`;
}

function text(value: Json | undefined): string {
  return typeof value === 'string' ? shown(value) : '(not said)';
}

function conclude(counts: BundleCounts, head: JsonObject | null, of: readonly Check[], sealed: Sealed): Verification {
  const file = passed('file', described(counts, head, sealed.payload?.['iat']));
  const has = (status: Check['status']): boolean => of.some((check) => check.status === status);
  const verdict = has('failed') ? 'INVALID' : has('undecided') ? 'UNDECIDABLE' : 'VALID';
  return { verdict, checks: [file, ...of], payload: verdict === 'INVALID' ? null : sealed.payload, keyId: sealed.kid };
}

/** Members of a filter that leave no event out of a time. */
const TIMES: ReadonlySet<string> = new Set(['since', 'until']);

function untrusted(kid: string | null): Check {
  const detail = `All of it fits together, by the keys in the bundle itself. Whose they are it cannot say: take the keys from somebody you trust (--trust), or compare this one with what they tell you: ${kid ?? 'none'}.`;
  return { name: 'key', status: 'undecided', detail };
}

interface Sealed {
  readonly checks: readonly Check[];
  readonly payload: JsonObject | null;
  readonly kid: string | null;
}

function checkSeal(
  line: string,
  trust: JsonObject,
  before: {
    readonly counts: BundleCounts;
    readonly digest: BundleDigest;
    readonly issuer: Json | undefined;
    readonly head: JsonObject | null;
  },
): Sealed {
  const none = (detail: string, kid: string | null = null): Sealed => ({
    checks: [failed('seal', detail)],
    payload: null,
    kid,
  });
  const jws = line.endsWith('\n') ? jwsOfSeal(line.slice(0, -1)) : null;
  const parts = jws === null ? null : decodeParts(jws);
  if (line.endsWith('\r\n'))
    return none('The ends of lines were changed (CRLF for LF): ask for the file as it was written.');
  if (parts === null) return none('The last line is no seal: the bundle was cut, or something was added to it.');
  const { check: header, kid } = checkHeader(parts.header, EXPORT_TYP);
  if (kid === null) return { checks: [header], payload: null, kid };
  const key: KeyObject | null = trustedKey(trust, kid);
  if (key === null) {
    const detail = `The trusted set does not have the key ${shown(kid)} of the seal.`;
    return { checks: [{ name: 'key', status: 'undecided', detail }], payload: null, kid };
  }
  if (parts.signature.length !== 64 || !verify(null, Buffer.from(parts.signed), key, parts.signature))
    return none('The signature of the seal does not fit.', kid);
  const payload = canonicalObject(parts.payload);
  if (payload === null || payload['v'] !== 1) return none('The seal says nothing that this program knows.', kid);
  const { counts, digest, issuer, head } = before;
  if (payload['sha256'] !== digest.sha256) return none(alteredText(digest, payload), kid);
  const is: JsonObject = { ...counts, ws: head?.['ws'] ?? null };
  if (Object.entries(is).some(([name, value]) => payload[name] !== value))
    return none('The seal counts other lines.', kid);
  if (issuer !== undefined && payload['iss'] !== issuer) return none('The seal is of another issuer.', kid);
  return { checks: [passed('seal', `Sealed with the key ${kid}; no line was altered since.`)], payload, kid };
}
