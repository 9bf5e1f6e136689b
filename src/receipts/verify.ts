import { verify } from 'node:crypto';
import { canonicalJson } from '../json/text.ts';
import { isJsonObject, type Json, type JsonObject } from '../json/value.ts';
import { parseStrictJson } from '../json/strict.ts';
import { commitmentIn, isOneParam, memberAt, opens } from './commitments.ts';
import { RECEIPT_ALG, RECEIPT_TYP, receiptKeyOf, decodeBase64url } from './jwk.ts';

/** The result of one check. `undecided`: something that the check needs is missing. */
export interface Check {
  readonly name:
    | 'file'
    | 'encoding'
    | 'header'
    | 'payload'
    | 'key'
    | 'signature'
    | 'view'
    | 'around'
    | 'disclosure'
    | 'log'
    | 'chain'
    | 'words'
    | 'policies'
    | 'seal';
  readonly status: 'passed' | 'failed' | 'undecided' | 'skipped';
  readonly detail: string;
}

/** INVALID if any check failed; otherwise UNDECIDABLE if any is undecided; otherwise VALID. */
export interface Verification {
  readonly verdict: 'VALID' | 'INVALID' | 'UNDECIDABLE';
  readonly checks: readonly Check[];
  /** The payload; `null` unless the signature is valid. */
  readonly payload: JsonObject | null;
  /** The trusted key that signed it; `null` unless the signature is valid. */
  readonly keyId: string | null;
}

/** Characters of a disclosed value that are printed. */
const MOST_VALUE = 200;

const HEADER_NAMES = ['alg', 'kid', 'typ'];
const LIMITS = { depth: 64, values: 1_000_000, name: 1_000_000 };

/**
 * Verifies a receipt offline. The algorithm and the type are fixed here, and the keys come from `trust`. The header of
 * the receipt only chooses which of the trusted keys to try.
 * @param input.content a bare JWS, the JSON view of a receipt, or an answer with such a view in `receipt`
 * @param input.trust a JWKS
 * @param input.disclosure `{salts, values}` by field name, to open commitments; `null` leaves them closed
 */
export function verifyReceipt(input: {
  readonly content: string;
  readonly trust: JsonObject;
  readonly disclosure: JsonObject | null;
}): Verification {
  const found = findReceipt(input.content);
  if (found === null)
    return conclude([{ name: 'file', status: 'undecided', detail: 'There is no receipt in it.' }], null, null);
  const checks: Check[] = [{ name: 'file', status: 'passed', detail: found.form }];
  const parts = decodeParts(found.jws);
  if (parts === null)
    return conclude([...checks, failed('encoding', 'Not a JWS in strict base64url: altered, or cut.')], null, null);
  checks.push(passed('encoding', 'Three parts in strict base64url.'));

  const header = checkHeader(parts.header);
  const payload = checkPayload(parts.payload);
  checks.push(header.check, payload.check);
  if (header.kid !== null) {
    const key = trustedKey(input.trust, header.kid);
    if (key === null) {
      const detail = `The trusted set does not have the key ${shown(header.kid)}.`;
      checks.push({ name: 'key', status: 'undecided', detail });
      checks.push({ name: 'signature', status: 'skipped', detail: 'Without the key it cannot be checked.' });
    } else {
      checks.push(passed('key', `Signed with the trusted key ${header.kid}.`));
      const holds = parts.signature.length === 64 && verify(null, Buffer.from(parts.signed), key, parts.signature);
      checks.push(
        holds
          ? passed('signature', 'The signature covers header and payload.')
          : failed('signature', 'The signature does not fit: the receipt was altered, or signed by somebody else.'),
      );
    }
  }
  if (payload.value !== null) {
    checks.push(checkView(found.view, payload.value), ...checkAround(found.around, payload.value));
    checks.push(...checkDisclosure(input.disclosure, payload.value));
    checks.push({
      name: 'log',
      status: 'skipped',
      detail: payload.value['log'] === null ? 'The receipt names no log.' : 'The log is not checked offline.',
    });
  }
  return conclude(checks, payload.value, header.kid);
}

interface Found {
  readonly form: string;
  readonly jws: string;
  /** The view without `jws`; `null` for a bare JWS. */
  readonly view: JsonObject | null;
  /** The members of the answer around it; `null` where there is no answer. */
  readonly around: JsonObject | null;
}

function findReceipt(content: string): Found | null {
  const text = content.trim();
  if (!text.startsWith('{'))
    return text.split('.').length === 3 ? { form: 'A bare JWS.', jws: text, view: null, around: null } : null;
  const parsed = parseStrictJson(text, LIMITS);
  if (!parsed.ok || !isJsonObject(parsed.value)) return null;
  const { receipt: inner, ...around } = parsed.value;
  if (typeof inner === 'string') return { form: 'An answer with a bare JWS.', jws: inner, view: null, around };
  const view = isJsonObject(inner) ? inner : parsed.value;
  const jws = view['jws'];
  if (typeof jws !== 'string') return null;
  if (around['type'] === 'receipt' && Object.keys(around).every((name) => LINE.has(name))) {
    const { type: _, jws: __, ...said } = around;
    return { form: 'The line of a receipt in a bundle.', jws, view: null, around: said };
  }
  if (view !== inner) return { form: 'The view of a receipt.', jws, view, around: null };
  return { form: 'An answer with a receipt; nothing else in it is signed.', jws, view, around };
}

/** Members of an answer that its receipt repeats, with their path in the payload. */
const STATED_TWICE: Readonly<Record<string, readonly string[]>> = {
  effect_id: ['effect', 'id'],
  tool: ['action', 'tool'],
  agent_id: ['actor', 'agent_id'],
  workspace: ['ws'],
  receipt_id: ['id'],
};
const LINE: ReadonlySet<string> = new Set(['type', 'effect_id', 'receipt_id', 'jws']);
/** Decisions whose answers carry a receipt. */
const WITH_RECEIPT: readonly Json[] = ['committed', 'duplicate_blocked'];

function checkAround(around: JsonObject | null, payload: JsonObject): readonly Check[] {
  if (around === null) return [];
  const differing = Object.entries(STATED_TWICE).flatMap(([name, path]) =>
    Object.hasOwn(around, name) && around[name] !== memberAt(payload, path) ? [name] : [],
  );
  const { decision } = around;
  if (decision !== undefined && !WITH_RECEIPT.includes(decision)) differing.push('decision');
  differing.push(...['jws', 'effect', 'action', 'actor'].filter((name) => Object.hasOwn(around, name)));
  if (differing.length > 0)
    return [failed('around', `The answer around the receipt says something else: ${named(differing)}.`)];
  const unsigned = Object.keys(around).filter((name) => !Object.hasOwn(STATED_TWICE, name));
  return unsigned.length === 0
    ? [passed('around', 'The answer around the receipt says what was signed.')]
    : [{ name: 'around', status: 'skipped', detail: `Not signed; anybody may have written it: ${named(unsigned)}.` }];
}

/** A list of names for a message, shortened when it is long. */
function named(names: readonly string[]): string {
  const few = names.slice(0, 20).map(shown).join(', ');
  return names.length > 20 ? `${few} and ${names.length - 20} more` : few;
}

interface Parts {
  readonly header: Buffer;
  readonly payload: Buffer;
  readonly signature: Buffer;
  readonly signed: string;
}

export function decodeParts(jws: string): Parts | null {
  const [first, second, third, ...more] = jws.split('.');
  if (first === undefined || second === undefined || third === undefined || more.length > 0) return null;
  const [header, payload, signature] = [decodeBase64url(first), decodeBase64url(second), decodeBase64url(third)];
  if (header === null || payload === null || signature === null) return null;
  return { header, payload, signature, signed: `${first}.${second}` };
}

/** @returns the object if the bytes are its canonical form, which can be read in only one way */
export function canonicalObject(bytes: Buffer): JsonObject | null {
  const parsed = parseStrictJson(bytes, LIMITS);
  if (!parsed.ok || !isJsonObject(parsed.value)) return null;
  return canonicalJson(parsed.value) === bytes.toString('utf8') ? parsed.value : null;
}

/** @param typ what the JWS has to say that it is */
export function checkHeader(
  bytes: Buffer,
  typ: string = RECEIPT_TYP,
): { readonly check: Check; readonly kid: string | null } {
  const refused = (detail: string) => ({ check: failed('header', detail), kid: null });
  const header = canonicalObject(bytes);
  if (header === null) return refused('Not a canonical JSON object.');
  const { alg, kid, typ: said } = header;
  const odd = Object.keys(header).filter((name) => !HEADER_NAMES.includes(name));
  if (odd.length > 0) return refused(`A receipt's header has no ${named(odd)}.`);
  if (alg !== RECEIPT_ALG) return refused(`The algorithm is not ${RECEIPT_ALG}.`);
  if (said !== typ) return refused(`The type is not ${typ}.`);
  if (typeof kid !== 'string') return refused('It names no key.');
  return { check: passed('header', `Algorithm ${RECEIPT_ALG}, type ${typ}, as pinned.`), kid };
}

function checkPayload(bytes: Buffer): { readonly check: Check; readonly value: JsonObject | null } {
  const value = canonicalObject(bytes);
  if (value === null) return { check: failed('payload', 'Not a canonical JSON object.'), value: null };
  if (typeof value['v'] !== 'number') return { check: failed('payload', 'Not the payload of a receipt.'), value };
  if (value['v'] !== 1) {
    const detail = 'A later version of receipts: update this program.';
    return { check: { name: 'payload', status: 'undecided', detail }, value };
  }
  const effect = value['effect'];
  const whole =
    [value['id'], value['iss'], value['ws'], value['iat']].every((member) => typeof member === 'string') &&
    isJsonObject(effect) &&
    typeof effect['id'] === 'string' &&
    effect['decision'] === 'committed';
  return {
    check: whole ? passed('payload', 'A receipt, version 1.') : failed('payload', 'Members are missing.'),
    value,
  };
}

export function trustedKey(trust: JsonObject, kid: string) {
  const keys = trust['keys'];
  if (!Array.isArray(keys)) return null;
  const members: readonly Json[] = keys;
  for (const member of members) {
    const known = isJsonObject(member) ? receiptKeyOf(member) : null;
    if (known?.kid === kid) return known.key;
  }
  return null;
}

/** People and programs read the view, so it must equal what was signed. */
function checkView(view: JsonObject | null, payload: JsonObject): Check {
  if (view === null) return { name: 'view', status: 'skipped', detail: 'The file has no view.' };
  const { jws: _, ...stated } = view;
  if (canonicalJson(stated) === canonicalJson(payload)) return passed('view', 'The view says what was signed.');
  const names = [...new Set([...Object.keys(stated), ...Object.keys(payload)])];
  const differing = names.filter((name) => textOf(stated, name) !== textOf(payload, name));
  return failed('view', `The view differs from what was signed: ${named(differing)}.`);
}

function textOf(object: JsonObject, name: string): string | null {
  const member = Object.hasOwn(object, name) ? object[name] : undefined;
  return member === undefined ? null : canonicalJson(member);
}

function checkDisclosure(disclosure: JsonObject | null, payload: JsonObject): readonly Check[] {
  if (disclosure === null) return [];
  // The answer of `?disclosure=1` is accepted as a disclosure file too.
  const { salts, values, leaves = {} } = isJsonObject(disclosure['disclosure']) ? disclosure['disclosure'] : disclosure;
  if (!isJsonObject(salts) || !isJsonObject(values) || !isJsonObject(leaves) || Object.keys(values).length === 0)
    return [{ name: 'disclosure', status: 'undecided', detail: 'It has not the form {"salts": {…}, "values": {…}}.' }];
  return Object.keys(values).map((field): Check => {
    const committed = commitmentIn(payload, field);
    const isOpened = committed === null ? null : opens({ salts, values, leaves }, field, committed);
    if (isOpened === null)
      return { name: 'disclosure', status: 'undecided', detail: `${shown(field)}: no commitment, or no salt.` };
    return isOpened
      ? passed('disclosure', `${shownField(field)} is what the receipt commits to${valueOf(field, values[field])}.`)
      : failed('disclosure', `${shownField(field)} is not what the receipt commits to.`);
  });
}

/** The value of a single param, for people. */
function valueOf(field: string, value: Json | undefined): string {
  if (!isOneParam(field) || value === undefined) return '';
  const whole = canonicalJson(value);
  return `: ${ascii(whole.length > MOST_VALUE ? `${whole.slice(0, MOST_VALUE)}…` : whole)}`;
}

/** The name of a field as it stands in a receipt; that of a param may be any text. */
function shownField(field: string): string {
  return /^[\w.]+$/.test(field) ? field : shown(field);
}

function conclude(checks: readonly Check[], payload: JsonObject | null, keyId: string | null): Verification {
  const has = (status: Check['status']): boolean => checks.some((check) => check.status === status);
  const verdict = has('failed') ? 'INVALID' : has('undecided') ? 'UNDECIDABLE' : 'VALID';
  const signed = checks.some((check) => check.name === 'signature' && check.status === 'passed');
  return { verdict, checks, payload: signed ? payload : null, keyId: signed ? keyId : null };
}

export function passed(name: Check['name'], detail: string): Check {
  return { name, status: 'passed', detail };
}

export function failed(name: Check['name'], detail: string): Check {
  return { name, status: 'failed', detail };
}

/** Makes untrusted text safe for a terminal: quoted, shortened, ASCII only. */
export function shown(text: string): string {
  return ascii(JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text));
}

function ascii(text: string): string {
  return text.replace(/[^\x20-\x7e]/gu, (odd) => `\\u{${(odd.codePointAt(0) ?? 0).toString(16)}}`);
}
