import { isJsonObject, type JsonObject } from '../../../src/json/value.ts';
import { type Risk, riskOf } from './openapi/risk.ts';
import { plainText, snakeWord } from './openapi/words.ts';

/** What `svc init` takes a tool of an MCP server for. */
export type ToolGroup = 'reads' | 'writes' | 'destructive';

export const TOOL_GROUPS: readonly ToolGroup[] = ['reads', 'writes', 'destructive'];

/** A tool with a first guess of what is at stake, for a person to correct. */
export interface GroupedTool {
  readonly name: string;
  /** What the server calls it, on one line; `null` where it gives no other name. */
  readonly title: string | null;
  readonly group: ToolGroup;
  /** `null` for reads. */
  readonly risk: Risk | null;
  /** After an error of it nothing was done, or a repetition does no harm: `is_error: failed`. */
  readonly failsCleanly: boolean;
  /** Each call is meant, also an equal one right after another: `repeat_window: 0s`. */
  readonly isMeantEachTime: boolean;
  /** What a person has to look at; `null` where annotations and name agree. */
  readonly doubt: string | null;
}

/** Verbs of tools that change nothing. */
const READING =
  /^(get|list|read|search|find|describe|show|query|fetch|check|view|count|lookup|browse|inspect|explain|summarize|compare|validate|download)$/;
/** Verbs of tools that put something beside what is there. */
const ADDING = /^(add|append|comment|create|insert|log|new|open|post|queue|remember|reply|save|schedule|store|submit)$/;
/** Verbs of tools that change something, whatever the server says of them. */
const CHANGING =
  /^(add|append|cancel|charge|create|delete|deploy|destroy|drop|edit|erase|execute|exec|grant|insert|invite|kill|merge|move|patch|pay|publish|purge|put|refund|remove|rename|replace|reset|revoke|rotate|send|set|suspend|terminate|transfer|truncate|update|withdraw|write)$/;

/** Words of tools that people use many times in a row: they move through something, or switch it. */
const EACH_TIME =
  /^(back|click|decrement|drag|forward|go|hover|increment|navigate|next|pause|play|press|previous|reload|scroll|step|tap|toggle|type|wait)$/;

/**
 * Groups a tool by its annotations and its name. Both are only hints: a server says what it likes of itself. So an
 * annotation makes a tool harmless only where the name does not contradict it, and a tool of which nothing is said, by
 * name or annotation, counts as destructive, as MCP says.
 */
export function groupOf(tool: JsonObject): GroupedTool {
  const name = typeof tool['name'] === 'string' ? tool['name'] : '';
  const annotations = isJsonObject(tool['annotations']) ? tool['annotations'] : {};
  const { readOnlyHint, destructiveHint } = annotations;
  const verb = firstVerb(name);
  const known = {
    name,
    title: titleOf(tool, annotations, name),
    failsCleanly: annotations['idempotentHint'] === true || (verb !== null && READING.test(verb)),
    isMeantEachTime: snakeWord(name)
      .split('_')
      .some((word) => EACH_TIME.test(word)),
  };
  if (readOnlyHint === true)
    return verb !== null && CHANGING.test(verb)
      ? { ...known, group: 'destructive', risk: graver(name), doubt: 'the server says that it only reads' }
      : { ...known, group: 'reads', risk: null, doubt: null };
  const isSilent = readOnlyHint === undefined && typeof destructiveHint !== 'boolean';
  if (isSilent && verb !== null && READING.test(verb))
    return {
      ...known,
      group: 'writes',
      risk: 'low',
      doubt: 'only its name says that it reads; if it does: kind: read',
    };
  const risk = riskOf('POST', '', name);
  const isGrave = risk === 'high' || risk === 'critical';
  if (destructiveHint === false)
    return isGrave
      ? { ...known, group: 'destructive', risk, doubt: 'the server says that it destroys nothing' }
      : { ...known, group: 'writes', risk, doubt: null };
  if (isSilent && !isGrave && verb !== null && ADDING.test(verb))
    return { ...known, group: 'writes', risk: 'medium', doubt: 'only its name says so; the server says nothing' };
  const doubt = isSilent ? 'the server does not say what it does' : null;
  return { ...known, group: 'destructive', risk: graver(name), doubt };
}

/** The first word of a name that says what the tool does. */
function firstVerb(name: string): string | null {
  const words = snakeWord(name).split('_');
  return words.find((word) => READING.test(word) || ADDING.test(word) || CHANGING.test(word)) ?? null;
}

function graver(name: string): Risk {
  return riskOf('POST', '', name) === 'critical' ? 'critical' : 'high';
}

function titleOf(tool: JsonObject, annotations: JsonObject, name: string): string | null {
  const title = [tool['title'], annotations['title']].find((text) => typeof text === 'string' && text !== '');
  const plain = typeof title === 'string' ? plainText(title, 80) : '';
  return plain === '' || plain === name ? null : plain;
}
