import type { DataPath } from '../diagnostics/yaml-source.ts';
import { canonicalJson } from '../json/canonical.ts';
import type { Json, JsonObject } from '../json/value.ts';
import { type FactPath, isCallersWord, isPathFault, parseFactPath, type ReadFact, readerOf } from './fact-path.ts';
import type { PolicyInput } from './input.ts';
import { isScalar } from './operators.ts';
import type { Reporter } from './reporter.ts';

/** A text with `${path}` in it, parsed, as data. */
export interface TemplatePlan {
  readonly parts: readonly (string | FactPath)[];
}

/** A text with `${path}` in it, ready to be rendered. */
export interface Template {
  readonly parts: readonly (string | Slot)[];
}

interface Slot {
  readonly fact: string;
  readonly read: ReadFact;
  /** The value is the caller's word: quoted where people read it. */
  readonly quoted: boolean;
  /** The param that it is of, or is a part of. */
  readonly param: string | null;
}

/** Of one value in a text for people, and of the whole text. */
const MAX_VALUE = 120;
const MAX_TEXT = 1_000;
/** Of one value that is read for a text for people. */
const MAX_LOOKED_AT = 10_000;
/** Of the params that a call's own words list. */
const MAX_NAMES = 50;
const REDACTED = '(redacted)';
/** Of a name that a template makes. */
const MAX_NAME = 512;

/** Controls, formatting marks (bidirectional, zero-width), line separators, private use, half characters. */
const UNSAFE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu;

/** Parses a template; a fault is reported. `$${` is the text `${`. */
export function parseTemplate(text: string, path: DataPath, report: Reporter): TemplatePlan | null {
  const parts: (string | FactPath)[] = [];
  let sound = true;
  let at = 0;
  for (const found of text.matchAll(/\$\$\{|\$\{([^}]*)(\}?)/g)) {
    parts.push(text.slice(at, found.index));
    at = found.index + found[0].length;
    if (found[0] === '$${') {
      parts.push('${');
      continue;
    }
    const parsed = parseFactPath((found[1] ?? '').trim(), 'rule');
    if (found[2] !== '}' || isPathFault(parsed)) {
      sound = false;
      const fault = isPathFault(parsed) ? parsed : null;
      report.error(fault?.code ?? 'bad_path', path, fault?.message ?? `'\${' is not closed`, fault?.hint ?? null);
      continue;
    }
    parts.push(parsed);
  }
  parts.push(text.slice(at));
  return sound ? { parts: parts.filter((part) => part !== '') } : null;
}

/** A template with the readers of its facts. */
export function buildTemplate({ parts }: TemplatePlan): Template {
  return {
    parts: parts.map((part) => {
      if (typeof part === 'string') return part;
      const [param] = part.root === 'params' ? part.steps : [];
      return {
        fact: part.text,
        read: readerOf(part),
        quoted: isCallersWord(part),
        param: param === undefined ? null : String(param),
      };
    }),
  };
}

/** The template's text where it has no `${…}`, else `null`. */
export function constantText(template: TemplatePlan): string | null {
  const [only, ...others] = template.parts;
  return typeof only === 'string' && others.length === 0 ? only : null;
}

/**
 * For people: values of the caller quoted and capped, characters that could mislead a reader removed.
 * @param redacted params whose values are not shown
 */
export function renderForPeople(template: Template, input: PolicyInput, redacted: ReadonlySet<string>): string {
  let text = '';
  for (const part of template.parts) text += typeof part === 'string' ? part : shown(part, input, redacted);
  return capped(text.replace(UNSAFE, ''), MAX_TEXT);
}

/** A call with its params, for people, where the rule has no words of its own. The same for the same call. */
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
    const word = capped(name.slice(0, MAX_LOOKED_AT).replace(UNSAFE, ''), MAX_VALUE);
    return `${word} ${redacted.has(name) ? REDACTED : valueText(params[name], true)}`;
  });
  return ` with ${listed.join(', ')}`;
}

function shown(slot: Slot, input: PolicyInput, redacted: ReadonlySet<string>): string {
  if (slot.param !== null && redacted.has(slot.param)) return REDACTED;
  return valueText(slot.read(input, undefined), slot.quoted);
}

function valueText(value: Json | undefined, quoted: boolean): string {
  if (value === undefined || value === null) return '(absent)';
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  // Of what is far too long only the beginning is looked at: characters may go from it, but not all of them.
  const whole = (typeof value === 'string' ? value : jsonText(value)).slice(0, MAX_LOOKED_AT);
  const text = capped(whole.replace(UNSAFE, ''), MAX_VALUE);
  return quoted ? JSON.stringify(text) : text;
}

/** JSON of a list or map of the caller; deep nesting ends a serialiser's stack. */
function jsonText(value: Json): string {
  try {
    // Canonical: the same params in another order are the same call, and the same words.
    return canonicalJson(value);
  } catch {
    return '(too deep)';
  }
}

function capped(text: string, limit: number): string {
  if (text.length <= limit) return text;
  // Not in the middle of a character.
  return `${text.slice(0, limit - 1).replace(/[\uD800-\uDBFF]$/, '')}…`;
}

/**
 * A name (of a target, of a pool): values as they are, because it has to be equal to other names.
 * @returns `null` where a value is absent, no scalar, or holds characters that a name must not have
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
