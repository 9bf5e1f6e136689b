import type { DataPath } from '../diagnostics/yaml-source.ts';
import { moneyText } from '../effects/model/money.ts';
import { beginning } from '../effects/model/shortened.ts';
import { canonicalJson } from '../json/text.ts';
import type { Json, JsonObject } from '../json/value.ts';
import {
  type FactPath,
  isCallersWord,
  isPathFault,
  parseFactPath,
  type PathFault,
  type ReadFact,
  readerOf,
} from './fact-path.ts';
import type { PolicyInput } from './input.ts';
import { isScalar } from './operators.ts';
import type { Reporter } from './reporter.ts';

/** A parsed text with `${path}` in it, as data. */
export interface TemplatePlan {
  readonly parts: readonly (string | FactPath | MoneyPlan)[];
}

/** `${amount in currency}`: an amount in the smallest unit of a currency, shown as money. */
interface MoneyPlan {
  readonly amount: FactPath;
  /** A fact, or the code itself. */
  readonly currency: FactPath | string;
}

/** A text with `${path}` in it, ready to render. */
export interface Template {
  readonly parts: readonly (string | Slot)[];
}

interface Slot {
  readonly fact: string;
  readonly read: ReadFact;
  /** The caller chooses the value, so it is quoted where people read it. */
  readonly quoted: boolean;
  /** The param that the value belongs to; `null` for other facts. */
  readonly param: string | null;
  /** The value is an amount in the smallest unit of this currency. Absent: it is shown as it is. */
  readonly currency?: Slot | string;
}

/** Longest value in a text for people, and longest text, characters. */
const MAX_VALUE = 120;
const MAX_TEXT = 1_000;
/** Characters of a value that are looked at for such a text. */
const MAX_EXAMINED = 10_000;
/** Most params that the text of {@link renderCall} lists by name. */
const MAX_NAMES = 50;
const REDACTED = '(redacted)';
/** Longest name that a template makes, characters. */
const MAX_NAME = 512;

/** Control characters, formatting marks (bidirectional, zero-width), line separators, private use, lone surrogates. */
const UNSAFE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu;

/** Parses a template and reports faults. `$${` is the text `${`. @param use money is for people, and no part of a name */
export function parseTemplate(
  text: string,
  path: DataPath,
  report: Reporter,
  use: 'name' | 'people' = 'name',
): TemplatePlan | null {
  const parts: TemplatePlan['parts'][number][] = [];
  let sound = true;
  let at = 0;
  for (const found of text.matchAll(/\$\$\{|\$\{([^}]*)(\}?)/g)) {
    parts.push(text.slice(at, found.index));
    at = found.index + found[0].length;
    if (found[0] === '$${') {
      parts.push('${');
      continue;
    }
    const inside = (found[1] ?? '').trim();
    const parsed = (use === 'people' ? parseMoney(inside) : null) ?? parseFactPath(inside, 'rule', null);
    if (found[2] !== '}' || isPathFault(parsed)) {
      sound = false;
      const fault = isPathFault(parsed) ? parsed : null;
      report.error(fault?.code ?? 'bad_path', path, [fault?.message ?? `'\${' is not closed`, fault?.hint ?? null]);
      continue;
    }
    parts.push(parsed);
  }
  parts.push(text.slice(at));
  return sound ? { parts: parts.filter((part) => part !== '') } : null;
}

/** @returns `null` where the text is no amount in a currency */
function parseMoney(text: string): MoneyPlan | PathFault | null {
  const [, amount, currency] = /^(\S+)\s+in\s+(\S+)$/.exec(text) ?? [];
  if (amount === undefined || currency === undefined) return null;
  const of = parseFactPath(amount, 'rule', null);
  if (isPathFault(of)) return of;
  const named = /^[A-Z]{3}$/.test(currency) ? currency : parseFactPath(currency, 'rule', null);
  return typeof named !== 'string' && isPathFault(named) ? named : { amount: of, currency: named };
}

export function buildTemplate({ parts }: TemplatePlan): Template {
  return {
    parts: parts.map((part) => {
      if (typeof part === 'string') return part;
      if ('steps' in part) return slotOf(part);
      const { amount, currency } = part;
      return { ...slotOf(amount), currency: typeof currency === 'string' ? currency : slotOf(currency) };
    }),
  };
}

function slotOf(fact: FactPath): Slot {
  const [param] = fact.root === 'params' ? fact.steps : [];
  return {
    fact: fact.text,
    read: readerOf(fact),
    quoted: isCallersWord(fact),
    param: param === undefined ? null : String(param),
  };
}

/** The text of a template without `${…}`, else `null`. */
export function constantText(template: TemplatePlan): string | null {
  const [only, ...others] = template.parts;
  return typeof only === 'string' && others.length === 0 ? only : null;
}

/**
 * Renders for people: values from the caller are quoted and shortened, and characters that could mislead a reader are
 * removed.
 * @param redacted params whose values are not shown
 */
export function renderForPeople(template: Template, input: PolicyInput, redacted: ReadonlySet<string>): string {
  let text = '';
  for (const part of template.parts) text += typeof part === 'string' ? part : shown(part, input, redacted);
  return capped(text.replace(UNSAFE, ''), MAX_TEXT);
}

/** Describes a call with its params, for people, where the rule has no text for it. Equal calls give equal texts. */
export function renderCall(input: PolicyInput, redacted: ReadonlySet<string>): string {
  const { agent, tool, target, params } = input;
  const names = Object.keys(params);
  const on = target === tool.name ? '' : ` on ${valueText(target, true)}`;
  const asks = `${agent.id} asks to call ${tool.name}${on}`;
  return capped(asks.replace(UNSAFE, '') + withParams(names, params, redacted), MAX_TEXT);
}

function withParams(names: string[], params: JsonObject, redacted: ReadonlySet<string>): string {
  if (names.length === 0) return '';
  if (names.length > MAX_NAMES) return ` with ${names.length} params`;
  const listed = names.sort().map((name) => {
    const word = capped(name.slice(0, MAX_EXAMINED).replace(UNSAFE, ''), MAX_VALUE);
    return `${word} ${redacted.has(name) ? REDACTED : valueText(params[name], true)}`;
  });
  return ` with ${listed.join(', ')}`;
}

function shown(slot: Slot, input: PolicyInput, redacted: ReadonlySet<string>): string {
  if (slot.param !== null && redacted.has(slot.param)) return REDACTED;
  const value = slot.read(input, undefined);
  if (slot.currency === undefined) return valueText(value, slot.quoted);
  const { currency } = slot;
  const isHidden = typeof currency !== 'string' && currency.param !== null && redacted.has(currency.param);
  const code = typeof currency === 'string' ? currency : isHidden ? REDACTED : currency.read(input, undefined);
  // What is no amount of money is shown with what it was to be counted in, and never as if it were.
  return moneyText(value, code) ?? `${valueText(value, slot.quoted)} (smallest unit of ${valueText(code, !isHidden)})`;
}

function valueText(value: Json | undefined, quoted: boolean): string {
  if (value === undefined || value === null) return '(absent)';
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  // Only the beginning of a very long value is read, but more than is shown: characters may be removed from it.
  const whole = (typeof value === 'string' ? value : jsonText(value)).slice(0, MAX_EXAMINED);
  const text = capped(whole.replace(UNSAFE, ''), MAX_VALUE);
  return quoted ? JSON.stringify(text) : text;
}

/** JSON of a list or map from the caller. Deep nesting could overflow the stack of the serialiser. */
function jsonText(value: Json): string {
  try {
    // Canonical: the same params in another order are the same call, and must give the same text.
    return canonicalJson(value);
  } catch {
    return '(too deep)';
  }
}

function capped(text: string, limit: number): string {
  return text.length <= limit ? text : `${beginning(text, limit - 1)}…`;
}

/**
 * Renders a name (of a target, of a pool). Values are inserted unchanged, because the name must equal other names.
 * @returns `null` where a value is absent, is not a scalar, or has characters that a name must not have
 */
export function renderName(template: Template, input: PolicyInput): string | null {
  let text = '';
  for (const part of template.parts) {
    if (typeof part === 'string') {
      text += part;
      continue;
    }
    const value = part.read(input, undefined);
    if (!isScalar(value) || value === '') return null;
    text += String(value);
  }
  return text.length <= MAX_NAME && text.search(UNSAFE) < 0 ? text : null;
}
