import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject } from 'node:crypto';
import { readdir, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { Hold, ReceiptParts, SettledBy, SignedReceipt } from '../effects/model/effect.ts';
import type { Json, JsonObject } from '../json/value.ts';
import { canonicalJson, quote, quoteOr } from '../json/text.ts';
import { EXPORT_TYP, type ExportSeal } from './bundle.ts';
import { publicJwk, RECEIPT_ALG, RECEIPT_TYP } from './jwk.ts';
import { loadSodium } from '../sodium/load.ts';
import { jwsSignature, type SignBytes, signBytesWith } from '../sodium/sign.ts';
import { type Amounts, amountToPost, type KeptResult, statusShown } from '../effects/model/answer.ts';
import type { ApprovalRecord } from '../effects/model/approval.ts';
import { commit } from '../effects/model/commit.ts';
import { isoTime } from '../effects/model/iso-time.ts';
import type { ReceiptFacts, SaltedField } from '../effects/ports.ts';
import type { AllowanceUse, VerdictTrace } from '../effects/model/verdict.ts';
import {
  commentSalt,
  commitAsked,
  commitField,
  commitParams,
  type ParamsCommitted,
  requestText,
} from './commitments.ts';

/** Signs receipts with the newest key of a folder. Publishes the public keys of all. */
export type ReceiptSigner = Awaited<ReturnType<typeof openSigner>>;

/** A receipt key cannot be used. The message names the file, never the content. */
export class ReceiptKeyFault extends Error {
  override readonly name = 'ReceiptKeyFault';
}

/**
 * The folder of the key files, and functions to read and make one (`secrets/key-file.ts`: mode 0600, atomic, never
 * replaced).
 */
export interface KeyFolder {
  readonly path: string;
  readonly read: (file: string) => Promise<string | null>;
  readonly make: (file: string, text: string) => Promise<boolean>;
}

/** `receipt-<made at, ms>-<kid>.pem`; `.pub.pem` once retired. */
const FILE_NAME = /^receipt-(\d{13})-[\w-]{43}(\.pub)?\.pem$/;

interface SigningKey {
  readonly file: string;
  readonly kid: string;
  readonly jwk: JsonObject;
  readonly key: KeyObject;
  readonly sign: SignBytes;
  /** The encoded header. It is the same for every receipt of the key. */
  readonly head: string;
}

/**
 * The newest private key, the public keys of all others (newest first), and the time when the newest key was made, ms.
 */
interface Ring<Current> {
  readonly current: Current;
  readonly others: readonly JsonObject[];
  readonly newestAt: number;
}

/**
 * Opens the folder of receipt keys, which all gateways of a fleet share. Makes the first key.
 * @param options.issuer `null` takes `urn:svc-gateway:<install id>`
 * @throws ReceiptKeyFault when a key file is not an Ed25519 key; also what the functions of the folder throw
 */
export async function openSigner(options: {
  readonly keys: KeyFolder;
  readonly issuer: string | null;
  /** Default: together. */
  readonly params?: ParamsCommitted;
  /** Asked for each receipt: a store that is unreachable at the start gets its id only later. */
  readonly store: { readonly installId: string; health(): { readonly durability: string } };
  readonly version: string;
  /** Called with each key before it is used: another thread may sign with it too. */
  readonly lend?: (head: string, key: KeyObject) => void;
}) {
  const { keys, store, lend } = options;
  const issuer: Issuer = {
    get iss() {
      return options.issuer ?? `urn:svc-gateway:${store.installId}`;
    },
    version: options.version,
    node: process.versions.node,
    durability: () => store.health().durability,
    params: options.params ?? 'together',
  };
  const found = await readRing(keys);
  let ring = found.current === null ? await renew(keys, found) : { ...found, current: found.current };
  lend?.(ring.current.head, ring.current.key);

  return {
    /** RFC 7638 thumbprint of the key in use. */
    kid: (): string => ring.current.kid,
    /** Builds a receipt; synchronous. It is signed where its signature is first read. The same input gives the same bytes. */
    issue(input: ReceiptFacts): SignedReceipt {
      return new IssuedReceipt(input.id, receiptPayload(input, issuer), ring.current);
    },
    sealExport({ workspace, at, ...sealed }: ExportSeal): string {
      const { sign, kid } = ring.current;
      const head = canonicalJson({ alg: RECEIPT_ALG, kid, typ: EXPORT_TYP });
      const payload = { ...sealed, iat: isoTime(at), iss: issuer.iss, v: 1, ws: workspace };
      const signed = [head, canonicalJson(payload)].map((part) => Buffer.from(part).toString('base64url')).join('.');
      return `${signed}.${sign(Buffer.from(signed)).toString('base64url')}`;
    },
    /** All receipt keys: the one in use first, then the retired ones (RFC 7517). */
    jwks: (): { readonly keys: readonly JsonObject[] } => ({ keys: [ring.current.jwk, ...ring.others] }),
    /** Makes a new key and signs with it from now on. Of the old key, only the public half is kept. */
    async rotate(): Promise<void> {
      const retired = ring.current;
      const renewed = await renew(keys, ring);
      lend?.(renewed.current.head, renewed.current.key);
      ring = renewed;
      await retire(keys, retired);
    },
  };
}

/** A receipt that is signed where its signature is first read, unless the store has done it by then. */
class IssuedReceipt implements SignedReceipt, ReceiptParts {
  readonly id: string;
  readonly head: string;
  readonly payload: string;
  readonly parts: ReceiptParts = this;
  made: string | null = null;
  readonly #sign: SignBytes;

  constructor(id: string, payload: string, { head, sign }: Pick<SigningKey, 'head' | 'sign'>) {
    this.id = id;
    this.head = head;
    this.payload = payload;
    this.#sign = sign;
  }

  get jws(): string {
    const encoded = Buffer.from(this.payload, 'utf8').toString('base64url');
    return `${this.head}.${encoded}.${this.made ?? this.signature}`;
  }

  get signature(): string {
    this.made ??= jwsSignature(this.#sign, this.head, this.payload);
    return this.made;
  }

  /** As it crosses to other threads and into files. */
  toJSON(): Pick<SignedReceipt, 'id' | 'jws'> {
    return { id: this.id, jws: this.jws };
  }
}

/** Makes a key that counts as newer than all others, even after the clock was set back. Then reads the folder again. */
async function renew(keys: KeyFolder, before: Ring<SigningKey | null>): Promise<Ring<SigningKey>> {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  const madeAt = Math.max(Date.now(), before.newestAt + 1);
  const file = join(keys.path, `receipt-${String(madeAt).padStart(13, '0')}-${publicJwk(publicKey).kid}.pem`);
  await keys.make(file, privateKey.export({ type: 'pkcs8', format: 'pem' }).toString());
  const { current, ...rest } = await readRing(keys);
  if (current === null) throw new ReceiptKeyFault(`${file} was made as receipt key, and is gone.`);
  return { ...rest, current };
}

/**
 * Deletes a retired private key, so that a thief of the folder gets none. The public key is written first: after a
 * crash in between, both are there.
 */
async function retire(keys: KeyFolder, retired: SigningKey): Promise<void> {
  const pem = createPublicKey(retired.key).export({ type: 'spki', format: 'pem' }).toString();
  await keys.make(retired.file.replace(/\.pem$/, '.pub.pem'), pem);
  await unlink(retired.file);
}

async function readRing(keys: KeyFolder): Promise<Ring<SigningKey | null>> {
  const sodium = await loadSodium();
  const names = (await namesIn(keys.path)).filter((name) => FILE_NAME.test(name)).sort();
  const newestAt = Number(FILE_NAME.exec(names.at(-1) ?? '')?.[1] ?? 0);
  let current: SigningKey | null = null;
  const known = new Map<string, JsonObject>();
  let until: number | null = null;
  for (const name of names.reverse()) {
    const file = join(keys.path, name);
    const pem = await keys.read(file);
    if (pem === null) continue;
    const key = parsePem(file, pem);
    if (key.asymmetricKeyType !== 'ed25519') throw new ReceiptKeyFault(`${file} is not an Ed25519 key.`);
    const { kid, jwk: bare } = publicJwk(key.type === 'private' ? createPublicKey(key) : key);
    if (!name.includes(kid)) throw new ReceiptKeyFault(`${file} does not hold the key that its name says.`);
    // Half a rotation leaves both halves of a key. One that was retired signed until the next was made.
    const from = secondsOf(name);
    const jwk: JsonObject = known.get(kid) ?? { ...bare, iat: from, ...(until === null ? {} : { exp: until }) };
    known.set(kid, jwk);
    until = from;
    if (current === null && key.type === 'private')
      current = {
        file,
        kid,
        jwk,
        key,
        sign: signBytesWith(key, sodium),
        head: Buffer.from(canonicalJson({ alg: RECEIPT_ALG, kid, typ: RECEIPT_TYP })).toString('base64url'),
      };
  }
  if (current !== null) known.delete(current.kid);
  return { current, others: [...known.values()], newestAt };
}

/** When a key was made by the name of its file, as times stand in a JWK. */
function secondsOf(name: string): number {
  return Math.floor(Number(FILE_NAME.exec(name)?.[1] ?? 0) / 1000);
}

async function namesIn(folder: string): Promise<readonly string[]> {
  try {
    return await readdir(folder);
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown error';
    if (code === 'ENOENT') return [];
    throw new ReceiptKeyFault(`${folder}, where the receipt keys are kept, cannot be read (${code}).`);
  }
}

function parsePem(file: string, pem: string): KeyObject {
  try {
    return pem.includes('PRIVATE KEY') ? createPrivateKey(pem) : createPublicKey(pem);
  } catch {
    throw new ReceiptKeyFault(`${file} is not a key in PEM form. Restore it, or move it away and a new one is made.`);
  }
}

/** The members about the issuer. They are the same in every receipt of a gateway. */
export interface Issuer {
  readonly iss: string;
  readonly version: string;
  /** Version of Node it runs on. */
  readonly node: string;
  /** What the store guarantees once a write is confirmed: `fsync` on the embedded store. */
  readonly durability: () => string;
  readonly params: ParamsCommitted;
}

/**
 * The payload of a receipt, as the text to sign: its JSON in canonical form (RFC 8785). Everything that could be
 * private is a salted commitment. `log` is reserved for the head of a transparency log.
 */
export function receiptPayload(input: ReceiptFacts, issuer: Issuer): string {
  const { effect, approval, evidence, result, sealed } = input;
  const { action, actor, trace } = effect;
  const salts = sealed?.salts ?? null;
  const target = commitField(salts, 'target', canonicalJson(action.target));
  const paramsText = sealed === null ? '' : (input.paramsText ?? canonicalJson(sealed.params));
  const params = sealed === null ? 'null' : commitParams(sealed, issuer.params, paramsText);
  const idem = commitField(salts, 'idem', canonicalJson(effect.idempotencyKey));
  const request =
    sealed === null ? 'null' : commitField(salts, 'request', requestText(effect, sealed, paramsText, evidence.sent));
  const answer = result === null ? null : responseText(result);
  const response = answer === null ? 'null' : commitField(salts, 'response', answer);
  // Here and in the functions below, members are written in the order of RFC 8785. The text is then already canonical,
  // in a fraction of the time that sorting takes. A test compares it with the sorted form.
  const asked =
    sealed?.asked === undefined ? '' : `"asked":"${commitAsked(sealed.salts, issuer.params, sealed.asked)}",`;
  const did = `"action":{${asked}"idem":${idem},"params":${params},"target":${target},"tool":${quote(action.tool)},"tool_pin":${quote(action.toolDigest)},"type":${quote(action.type)}}`;
  const who = `"actor":{"agent_id":${quote(actor.agentId)},"key_id":${quote(actor.keyId)},"key_kind":"${actor.keyKind}","user":${quoteOr(actor.user)},"via":"${actor.via}"}`;
  const allowed = trace.allowance === undefined ? '' : allowanceText(trace.allowance);
  const approved = approval === null ? '[]' : approvalText(approval, params, salts);
  // With the salt of the target: a reader can see that a claim is on the target itself, and learns no other target.
  const claims =
    effect.claims.length === 0
      ? '[]'
      : listText(
          effect.claims.map((claim) =>
            claim === action.target ? target : commitField(salts, 'target', canonicalJson(claim)),
          ),
        );
  const run = `"effect":{"attempt":${effect.attempt},"decision":"committed","id":${quote(effect.id)},"settled_by":${settledByText(input.settledBy, salts)}}`;
  const issued = `"iat":${timeText(input.issuedAt)},"id":${quote(input.id)},"iss":${quote(issuer.iss)},"ledger":{"epoch":${input.ledger.epoch},"seq":${input.ledger.seq}},"log":null`;
  const uses =
    effect.uses.length === 0
      ? '[]'
      : listText(effect.uses.map(({ pool, units }) => `{"pool":${quote(pool)},"units":${units}}`));
  const upstream = `"upstream":{"ended":${timeText(evidence.endedAt)},"name":${quote(action.upstream)},"request":${request},"response":${response},"started":${timeText(evidence.startedAt)},"status":${statusShown(evidence.answered)}}`;
  return `{${did},${who},${allowed}"approval":${approved},"budget":${budgetText(effect.holds, input.amounts)},"claims":${claims},"durability":${quote(issuer.durability())},${run},${issued},"policy":${policyText(trace)},"reservations":${uses},${issuedBy(issuer)},${upstream},"v":1,"ws":${quote(effect.workspace)}}`;
}

const issuedByTexts = new WeakMap<Issuer, string>();

/** The software that issues: the same in every receipt of an issuer. */
function issuedBy(issuer: Issuer): string {
  let text = issuedByTexts.get(issuer);
  if (text === undefined) {
    text = `"svc":{"node":${quote(issuer.node)},"version":${quote(issuer.version)}}`;
    issuedByTexts.set(issuer, text);
  }
  return text;
}

function listText(items: readonly string[]): string {
  return items.length === 0 ? '[]' : `[${items.join(',')}]`;
}

function budgetText(holds: readonly Hold[], amounts: Amounts | undefined): string {
  let text = '';
  for (const hold of holds) {
    if (text !== '') text += ',';
    text += `{"id":${quote(hold.budget)},"posted":${amountToPost(hold, amounts)},"unit":${quote(hold.unit)}}`;
  }
  return `[${text}]`;
}

function policyText({ matched, observed, policyVersion, beyond }: VerdictTrace): string {
  let rules = '';
  const unknown: { readonly paths: readonly string[]; readonly rule: string }[] = [];
  for (const { rule, effect: ruled, unknown: paths } of matched) {
    if (rules !== '') rules += ',';
    rules += `{"effect":"${ruled}","rule":${quote(rule)}}`;
    if (paths.length > 0) unknown.push({ paths, rule });
  }
  const outcome = observed === null ? 'permit' : 'observe';
  const would = observed === null ? '' : `,"would":${quote(observed.would)},"would_rule":${quoteOr(observed.rule)}`;
  const above = beyond === undefined ? '' : `"beyond":${beyondText(beyond)},`;
  return `{${above}"matched":[${rules}],"outcome":"${outcome}","unknown":${unknown.length === 0 ? '[]' : JSON.stringify(unknown)},"version":${quote(policyVersion)}${would}}`;
}

/** The limits that approvers let the call go beyond, and by how much. */
function beyondText(beyond: NonNullable<VerdictTrace['beyond']>): string {
  return listText(beyond.map(({ by, limit }) => `{"by":${by},"limit":${quote(limit)}}`));
}

/**
 * The canonical form of `responseContent`, which shows an answer to callers. An answer without a canonical form (half a
 * surrogate pair) is left out: the action happened, so its receipt must not fail because of the characters of the
 * answer.
 */
function responseText(response: KeptResult): string | null {
  const status = statusShown(response);
  try {
    return `{"result":${canonicalJson(response.body.value)}${status === null ? '' : `,"upstream_status":${status}`}}`;
  } catch {
    return null;
  }
}

function settledByText(settledBy: SettledBy, salts: Buffer | null): string {
  switch (settledBy.by) {
    case 'owner':
    case 'late_answer':
      return `{"by":"${settledBy.by}"}`;
    case 'probe':
      return `{"by":"probe","evidence":${committedOr(salts, 'evidence', settledBy.evidence)}}`;
    case 'resolve': {
      const { comment, evidence, forced, keyId, user } = settledBy;
      return `{"by":"resolve","comment":${committedOr(salts, 'comment', comment)},"evidence":${committedOr(salts, 'evidence', evidence)},"forced":${forced},"key_id":${quote(keyId)},"user":${quoteOr(user)}}`;
    }
  }
}

function committedOr(salts: Buffer | null, field: SaltedField, value: Json): string {
  return value === null ? 'null' : commitField(salts, field, canonicalJson(value));
}

/** Whose word let in a call that nobody was asked about, as a member before the approvals. */
function allowanceText({ id, approvalId, by, use }: AllowanceUse): string {
  return `"allowance":{"approval_id":${quote(approvalId)},"by":${quote(by)},"id":${quote(id)},"use":${use}},`;
}

/** One item per approving vote. `params` commits to the approved params, which are those of the action. */
function approvalText({ id, votes }: ApprovalRecord, params: string, salts: Buffer | null): string {
  const items = votes
    .filter(({ verdict }) => verdict === 'approve')
    .map(({ at, user, comment }, index) => {
      const commitment = salts === null || comment === null ? null : commit(commentSalt(salts, index), comment);
      const words = comment === null ? '' : `,"comment":${quoteOr(commitment)}`;
      return `{"at":${timeText(at)},"by":${quote(user)}${words},"id":${quote(id)},"params":${params}}`;
    });
  return listText(items);
}

function timeText(at: number | null): string {
  return at === null ? 'null' : `"${isoTime(at)}"`;
}
