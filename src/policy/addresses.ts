import { domainToASCII, domainToUnicode } from 'node:url';
import { takePatternSteps } from './pattern-steps.ts';

/** How a name is parsed: as a mail address, or as the name of a host. */
export type AddressKind = 'email_in' | 'domain_in';

/** Compiled patterns, or what is wrong with one of them. */
export type CompiledAddresses =
  | { readonly ok: true; readonly test: (text: string) => boolean | undefined }
  | { readonly ok: false; readonly message: string };

const LABEL = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;
/**
 * The part before the @, restricted to what all mail programs read in the same way: no quotes, comments or spaces. Also
 * no `%` and no `!`, because older programs use them to forward to another host.
 */
const LOCAL = /^[A-Za-z0-9_+'=~-]+(?:\.[A-Za-z0-9_+'=~-]+)*$/;
const MAX_DOMAIN = 253;
const MAX_LOCAL = 64;
const MAX_ADDRESS = 254;
/** Pattern steps for reading a name, per character. */
const STEPS = 4;

/**
 * Compiles patterns of mail addresses (`*@example.com`, `ada@*.example.com`) or of domains (`example.com`), one pattern
 * per step of the generator. In a domain, `*.` means exactly one more label, `**.` one or more. Texts are parsed. A
 * text that programs could read in different ways gives `undefined`: neither in nor out.
 */
export function compileAddresses(kind: AddressKind, patterns: readonly string[]): Generator<void, CompiledAddresses> {
  return kind === 'domain_in' ? compileDomains(patterns) : compileEmails(patterns);
}

/** Domains as sets of names, so that a look-up takes the same time for any number of patterns. */
interface DomainTable {
  readonly whole: Set<string>;
  /** Domains of patterns with `*.`, without that prefix. */
  readonly below: Set<string>;
  /** Domains of patterns with `**.`, without that prefix. */
  readonly deepBelow: Set<string>;
}

function noDomains(): DomainTable {
  return { whole: new Set(), below: new Set(), deepBelow: new Set() };
}

function* compileDomains(patterns: readonly string[]): Generator<void, CompiledAddresses> {
  const table = noDomains();
  for (const pattern of patterns) {
    const fault = addDomain(table, pattern);
    if (fault !== null) return { ok: false, message: fault };
    yield;
  }
  return {
    ok: true,
    test: (text) => {
      if (text.length > MAX_DOMAIN || !takePatternSteps(text.length * STEPS)) return undefined;
      const domain = readDomain(text);
      return domain === null ? undefined : hasDomain(table, domain);
    },
  };
}

function addDomain(table: DomainTable, pattern: string): string | null {
  const found = /^(\*\*?\.)?(.*)$/s.exec(pattern);
  // A policy file may write a domain in any script. Calls are compared with its ASCII form.
  const domain = readDomain(domainToASCII(found?.[2] ?? ''));
  if (domain === null)
    return `'${pattern}' is no domain; write example.com, *.example.com (one label more) or **.example.com`;
  const place = found?.[1] === undefined ? table.whole : found[1] === '*.' ? table.below : table.deepBelow;
  place.add(domain);
  return null;
}

function hasDomain({ whole, below, deepBelow }: DomainTable, domain: string): boolean {
  if (whole.has(domain)) return true;
  let dot = domain.indexOf('.');
  if (below.has(domain.slice(dot + 1))) return true;
  for (; dot >= 0 && deepBelow.size > 0; dot = domain.indexOf('.', dot + 1))
    if (deepBelow.has(domain.slice(dot + 1))) return true;
  return false;
}

/**
 * A domain in the one form used for comparison. `null` for letters of other scripts, a trailing dot, a single label, an
 * IP address, a port, or anything else that is not a plain name.
 */
function readDomain(text: string): string | null {
  if (text.length > MAX_DOMAIN) return null;
  // Only A to Z: some other letters become ASCII in lower case.
  const domain = text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
  const labels = domain.split('.');
  if (labels.length < 2 || !labels.every((label) => LABEL.test(label))) return null;
  // Refuses numbers, and encoded names (`xn--…`) not in their normal form, or of nothing: Node 24 leaves these as they are.
  if (/^[0-9]+$/.test(labels.at(-1) ?? '') || domainToASCII(domain) !== domain) return null;
  return domain.includes('xn--') && /(?:^|\.)xn--/.test(domainToUnicode(domain)) ? null : domain;
}

/** Tables by the exact spelling of the local part. All keys of one map are equal but for case. */
type Spellings = Map<string, DomainTable>;

function* compileEmails(patterns: readonly string[]): Generator<void, CompiledAddresses> {
  const anybody = noDomains();
  const byLocal = new Map<string, Spellings>();
  for (const pattern of patterns) {
    const at = pattern.lastIndexOf('@');
    const local = pattern.slice(0, Math.max(0, at));
    if (at < 0 || (local !== '*' && !isLocal(local)))
      return { ok: false, message: `'${pattern}' is no mail address; write *@example.com or ada@example.com` };
    const fault = addDomain(local === '*' ? anybody : tableOf(byLocal, local), pattern.slice(at + 1));
    if (fault !== null) return { ok: false, message: fault };
    yield;
  }
  return {
    ok: true,
    test: (text) => {
      const at = text.lastIndexOf('@');
      if (at < 0 || text.length > MAX_ADDRESS || !takePatternSteps(text.length * STEPS)) return undefined;
      const local = text.slice(0, at);
      const domain = readDomain(text.slice(at + 1));
      if (domain === null || !isLocal(local)) return undefined;
      return hasDomain(anybody, domain) || hasLocal(byLocal, local, domain);
    },
  };
}

function tableOf(byLocal: Map<string, Spellings>, local: string): DomainTable {
  const lower = local.toLowerCase();
  const spellings: Spellings = byLocal.get(lower) ?? new Map<string, DomainTable>();
  byLocal.set(lower, spellings);
  const table = spellings.get(local) ?? noDomains();
  spellings.set(local, table);
  return table;
}

/**
 * Most mail servers ignore case and what follows a `+`, but some do not. So the answer for such variants is unknown.
 */
function hasLocal(byLocal: ReadonlyMap<string, Spellings>, local: string, domain: string): boolean | undefined {
  const lower = local.toLowerCase();
  const plain = lower.slice(0, lower.includes('+') ? lower.indexOf('+') : undefined);
  const exact = byLocal.get(lower)?.get(local);
  if (exact !== undefined && hasDomain(exact, domain)) return true;
  for (const name of [lower, plain])
    for (const table of byLocal.get(name)?.values() ?? []) if (hasDomain(table, domain)) return undefined;
  return false;
}

function isLocal(text: string): boolean {
  return text.length <= MAX_LOCAL && LOCAL.test(text);
}
