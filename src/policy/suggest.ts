import { Document, isMap, isPair, isScalar, isSeq, parseDocument, Scalar, visit, type YAMLMap } from 'yaml';
import { InvalidFiles } from '../diagnostics/render.ts';
import { readYamlSource } from '../diagnostics/yaml-source.ts';
import type { Tool } from '../effects/model/tool.ts';
import { canonicalJson } from '../json/text.ts';
import { type JsonObject, isJsonArray, isJsonObject, type Json } from '../json/value.ts';
import { writeSteps } from '../json/path-steps.ts';
import { placeInSchema } from '../json/schema-walk.ts';
import { evaluatePolicies } from './evaluate.ts';
import type { PolicyInput } from './input.ts';
import { type CheckedFile, type CheckedFiles, compilePolicies, isPolicySet, type PolicyLoadOptions } from './load.ts';
import type { CompiledPolicies } from './policies.ts';
import type { PolicyText } from './policy-texts.ts';
import { collectInto } from './reporter.ts';
import type { PolicyFile } from './schema.ts';
import type { ApprovalRecord } from '../effects/model/approval.ts';

/** So many approvals, and no rejection, until a rule is suggested. */
const LEAST_APPROVALS = 5;

/** A call that people have approved, as policy sees it. */
export interface ApprovedCall {
  readonly approvalId: string;
  readonly effectId: string;
  readonly by: readonly string[];
  /** When, ms. */
  readonly at: number;
  readonly input: Omit<PolicyInput, 'tool' | 'entity'>;
}

export interface OftenApproved {
  /** Full id, `set/rule`. */
  readonly rule: string;
  readonly tool: string;
  readonly workspace: string;
  readonly calls: readonly ApprovedCall[];
}

/** What would let calls like these run without asking. Nothing comes of it by itself. */
export interface SuggestedRule {
  readonly rule: string;
  readonly tool: string;
  readonly file: string;
  /** YAML, in the place of the rule that asks now. */
  readonly text: string;
  /** The ids of the calls that it is drawn from, and that it was tried with. */
  readonly calls: readonly string[];
}

/** What stands twice is written twice: a policy file has no aliases. */
const WRITTEN_OUT = { aliasDuplicateObjects: false } as const;

type Options = Omit<PolicyLoadOptions, 'paths'>;

/**
 * Drafts a rule for each group of calls. A draft is left out unless the policies load with it, and decide that each of
 * the calls may run with nobody asked.
 * @param texts the policies in force
 */
export function suggestRules(
  groups: readonly OftenApproved[],
  texts: readonly PolicyText[],
  options: Options,
): readonly SuggestedRule[] {
  const known = new Map<PolicyText, CheckedFile>();
  // Only files that a draft changes are checked anew.
  const checked: CheckedFiles = {
    get: (text) => known.get(text) ?? null,
    put: (text, file) => void known.set(text, file),
  };
  const { set } = compilePolicies(texts, options, [], checked);
  return groups.flatMap((group) => suggest(group, set, texts, options, checked) ?? []);
}

function suggest(
  { rule: id, tool: name, workspace, calls }: OftenApproved,
  set: CompiledPolicies,
  texts: readonly PolicyText[],
  options: Options,
  checked: CheckedFiles,
): SuggestedRule | null {
  const tool = options.tools.find((one) => one.name === name);
  const rule = set.rules.find((one) => one.id === id);
  const file = texts.find((text) => text.file === rule?.position.file);
  if (tool === undefined || file === undefined) return null;
  const asked = calls.filter(({ input }) => asksOnly(set, tool, input, id));
  if (asked.length < LEAST_APPROVALS) return null;
  const bounds = seenBounds(
    asked.map(({ input }) => input),
    tool,
  );
  if (bounds === null) return null;
  const within: Within = { tool, workspace, agents: agentsOf(asked), bounds };
  const draft = withinFile(file, id.slice(id.indexOf('/') + 1), within);
  if (draft === null) return null;
  const after = compiledOrNull(
    texts.map((text) => (text === file ? { ...file, text: draft.whole } : text)),
    options,
    checked,
  );
  if (after === null || !asked.every(({ input }) => runs(after, tool, input))) return null;
  return { rule: id, tool: name, file: file.file, text: draft.text, calls: asked.map(({ approvalId }) => approvalId) };
}

function agentsOf(calls: readonly ApprovedCall[]): readonly string[] {
  return [...new Set(calls.map(({ input }) => input.agent.id))].toSorted();
}

/** Whether this rule, and no other, would ask people about a call now. */
function asksOnly(set: CompiledPolicies, tool: Tool, input: ApprovedCall['input'], rule: string): boolean {
  const verdict = evaluatePolicies(set, { ...input, tool, mode: 'enforce' });
  if (verdict.kind === 'deny') return false;
  const [first, ...others] = verdict.approvals;
  return first?.rule === rule && others.length === 0;
}

function runs(set: CompiledPolicies, tool: Tool, input: ApprovedCall['input']): boolean {
  const verdict = evaluatePolicies(set, { ...input, tool, mode: 'enforce' });
  return verdict.kind === 'permit' && verdict.approvals.length === 0;
}

function compiledOrNull(
  texts: readonly PolicyText[],
  options: Options,
  checked: CheckedFiles,
): CompiledPolicies | null {
  try {
    return compilePolicies(texts, options, [], checked).set;
  } catch (error) {
    if (error instanceof InvalidFiles) return null;
    throw error;
  }
}

interface Within {
  readonly tool: Tool;
  readonly workspace: string;
  readonly agents: readonly string[];
  readonly bounds: JsonObject;
}

type AskingRule = PolicyFile['rules'][number];

/** The file with the draft in the place of the rule that asks, and the text of the draft alone. */
function withinFile(
  { file, text }: PolicyText,
  id: string,
  within: Within,
): { readonly whole: string; readonly text: string } | null {
  const parsed = readYamlSource(file, text);
  const document = parseDocument(text);
  const rules = document.get('rules');
  const report = collectInto([], () => null);
  if (!isPolicySet(parsed, report) || !isSeq(rules)) return null;
  const { value } = parsed;
  const index = value.rules.findIndex((rule) => rule.id === id);
  const [source, asking] = [value.rules[index], rules.items[index]];
  if (source === undefined || !isMap(asking)) return null;
  const ids = new Set(value.rules.map((rule) => rule.id));
  const { workspaces } = source.match ?? {};
  const isHere = workspaces?.length === 1 && workspaces[0] === within.workspace;
  const drafted = [
    ...(isHere
      ? [changed(asking, { unless: lift(document, source, within) })]
      : apart(document, asking, source, ids, within)),
    ...instead(document, source, freeName(ids, id, 'approved'), within),
  ];
  rules.items.splice(index, 1, ...drafted);
  return { whole: document.toString(), text: textOf(drafted) };
}

/**
 * Conditions know no workspace. So that the rule is lifted here alone, and not for an agent of the same name elsewhere,
 * it goes on without these agents here, and another one is theirs.
 */
function apart(
  document: Document,
  asking: YAMLMap,
  source: AskingRule,
  ids: ReadonlySet<string>,
  within: Within,
): readonly YAMLMap[] {
  const { tool, workspace, agents } = within;
  const here = { tools: [tool.name], workspaces: [workspace], agents: { id: agents } };
  const except = [...(source.match?.except ?? []), here];
  return [
    changed(asking, { match: document.createNode({ ...source.match, except }, WRITTEN_OUT) }),
    changed(asking, {
      id: freeName(ids, source.id, workspace),
      match: document.createNode(matchWithin(source, within), WRITTEN_OUT),
      unless: lift(document, source, within),
    }),
  ];
}

function changed(rule: YAMLMap, members: Readonly<Record<string, unknown>>): YAMLMap {
  const copy = rule.clone();
  if (!isMap(copy)) throw new Error('the copy of a map is a map');
  for (const [name, value] of Object.entries(members)) copy.set(name, value);
  return copy;
}

/** Where it cannot be judged whether the rule asked there, it goes on asking: others may allow what it then lets go. */
function lift(document: Document, { when, unless }: AskingRule, { tool, agents, bounds }: Within): unknown {
  const within = { 'tool.name': { eq: tool.name }, 'agent.id': { in: agents }, ...bounds };
  const asked = [...(when === undefined ? [] : [when]), ...(unless === undefined ? [] : [{ not: unless }])];
  const lifted = asked.length === 0 ? within : { all: [...asked, within] };
  return quoted(document, unless === undefined ? lifted : { any: [unless, lifted] });
}

function matchWithin({ match }: AskingRule, { tool, workspace, agents }: Within) {
  return { ...match, tools: [tool.name], workspaces: [workspace], agents: { ...match?.agents, id: agents } };
}

/**
 * What takes its place within the bounds: the same rule without the asking. It grants and demands what that one did there,
 * and nothing beyond. Of a rule that only asked nothing stays.
 */
function instead(document: Document, source: AskingRule, id: string, within: Within): readonly YAMLMap[] {
  const { effect, when, unless, from, until, obligations } = source;
  if (effect !== 'require_approval' && obligations === undefined) return [];
  const members = {
    id,
    description: `What people approved each time that ${source.id} asked`,
    effect: effect === 'require_approval' ? 'allow' : effect,
    match: matchWithin(source, within),
    when: quoted(document, when === undefined ? within.bounds : { all: [when, within.bounds] }),
    ...(unless === undefined ? {} : { unless }),
    ...(from === undefined ? {} : { from }),
    ...(until === undefined ? {} : { until }),
    ...(obligations === undefined ? {} : { obligations }),
  };
  const rule = document.createNode(members, WRITTEN_OUT);
  return isMap(rule) ? [rule] : [];
}

/** Values that callers chose are quoted, whatever they look like. */
function quoted(document: Document, condition: JsonObject): unknown {
  const node = document.createNode(condition, WRITTEN_OUT);
  visit(node, {
    Scalar(key, scalar) {
      if (key !== 'key' && typeof scalar.value === 'string') scalar.type = Scalar.QUOTE_DOUBLE;
    },
  });
  return node;
}

function freeName(taken: ReadonlySet<string>, id: string, more: string): string {
  const base = `${id.slice(0, 40)}-${more.replaceAll(/[^A-Za-z0-9_-]/g, '-').slice(0, 16)}`;
  let name = base;
  for (let n = 2; taken.has(name); n += 1) name = `${base}-${n}`;
  return name;
}

/** As it stands in a file, below `rules:`. */
function textOf(rules: readonly YAMLMap[]): string {
  const document = new Document(rules);
  // What is short stands in one line, as people write it.
  visit(document, {
    Collection(_, node) {
      const parts = node.items.map((item) => (isPair(item) ? item.value : item));
      if (parts.every((part) => isScalar(part))) node.flow = true;
    },
  });
  return document.toString({ lineWidth: 100 }).replaceAll(/^(?=.)/gm, '  ');
}

/** Most values that a rule names one by one. */
const MOST_LISTED = 20;
/** Longest text that a rule names, characters. */
const MOST_TEXT = 200;
/** Largest list or map that a rule holds as it is, characters of its JSON. */
const MOST_WHOLE = 1_000;
/** What people cannot see, or see in another order than it stands: no rule that they are to read holds it. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/u;
/** The only characters of texts that a pattern stands for: none of them leads out of a path or ends a word. */
const ONE_WORD = /^[A-Za-z0-9:_-]*$/;

/**
 * A condition that these calls meet, and others only where each param is within what was seen: numbers from the smallest
 * to the largest, texts from a list or with a beginning that all have, everything else as it was. Params that no call
 * had must be absent.
 * @returns `null` where they have too little in common to be bounded
 */
function seenBounds(
  calls: readonly Pick<PolicyInput, 'params' | 'target'>[],
  { paramsSchema, target }: Tool,
): JsonObject | null {
  // Where the tool takes params that nobody has declared, no rule can name all that have to be absent.
  if (paramsSchema === null || paramsSchema['additionalProperties'] !== false) return null;
  const declared = paramsSchema['properties'];
  if (!isJsonObject(declared) || paramsSchema['patternProperties'] !== undefined) return null;
  const names = [...new Set([...Object.keys(declared), ...calls.flatMap(({ params }) => Object.keys(params))])];
  const bounds: Record<string, Json> = {};
  for (const name of names) {
    const values = calls.map(({ params }) => (Object.hasOwn(params, name) ? params[name] : undefined));
    const bound = boundOf(values, placeInSchema(paramsSchema, [name]).types);
    if (bound === null) return null;
    // Where it could not be judged, a call that people were asked about would be refused.
    const mayBeAbsent = !isRequired(paramsSchema, name) && !('exists' in bound) && !('if_absent' in bound);
    bounds[`params${writeSteps([name])}`] = mayBeAbsent ? { ...bound, if_absent: false } : bound;
  }
  if (target === null) {
    const bound = textBound(calls.map((call) => call.target));
    if (bound === null) return null;
    bounds['target'] = bound;
  }
  return bounds;
}

function isRequired({ required }: JsonObject, name: string): boolean {
  return isJsonArray(required) && required.includes(name);
}

function boundOf(values: readonly (Json | undefined)[], types: ReadonlySet<string>): JsonObject | null {
  const present = values.filter((value) => value !== undefined);
  const isOptional = present.length < values.length;
  // A rule cannot tell null from absent.
  if (present.includes(null) || (isOptional && (types.size === 0 || types.has('null')))) return null;
  if (present.length === 0) return { exists: false };
  const bound = presentBound(present, types);
  return bound === null || !isOptional ? bound : { ...bound, if_absent: true };
}

function presentBound(values: readonly Json[], types: ReadonlySet<string>): JsonObject | null {
  const numbers = values.filter((value) => typeof value === 'number');
  if (numbers.length === values.length) return numberBound(numbers, types);
  const texts = values.filter((value) => typeof value === 'string');
  if (texts.length === values.length) return textBound(texts);
  const [first, ...others] = values.map((value) => canonicalJson(value));
  const [value] = values;
  if (value === undefined || first === undefined || others.some((other) => other !== first)) return null;
  if (first.length > MOST_WHOLE || !isPlain(value)) return null;
  return typeof value === 'boolean' ? { eq: value } : { equals: value };
}

function numberBound(numbers: readonly number[], types: ReadonlySet<string>): JsonObject | null {
  const [least, most] = [Math.min(...numbers), Math.max(...numbers)];
  if (!numbers.every(Number.isInteger)) return least === most ? { eq: least } : null;
  if (!Number.isSafeInteger(least) || !Number.isSafeInteger(most)) return null;
  if (least === most) return { eq: least };
  // `type` takes no `if_absent`; a schema says it of most params anyway.
  return types.size === 1 && types.has('integer') ? { gte: least, lte: most } : null;
}

function textBound(texts: readonly string[]): JsonObject | null {
  if (texts.some((text) => text.length > MOST_TEXT || UNSEEN.test(text))) return null;
  const distinct = [...new Set(texts)].toSorted();
  const pattern = patternOf(distinct);
  // What was never sent twice is no list of what is usual.
  if (distinct.length === texts.length && texts.length > 1) return pattern === null ? null : { regex: pattern };
  if (distinct.length <= MOST_LISTED)
    return distinct.length === 1 ? { eq: asText(distinct[0]) } : { in: distinct.map(asText) };
  return pattern === null ? null : { regex: pattern };
}

/** A beginning that all texts have up to a separator, and one word after it that is no longer than those seen. */
function patternOf(texts: readonly string[]): string | null {
  const [first = ''] = texts;
  const last = texts.at(-1) ?? '';
  if (!texts.every((text) => ONE_WORD.test(text))) return null;
  let length = 0;
  while (length < first.length && first[length] === last[length]) length += 1;
  const prefix = /^.*[:_-]/.exec(first.slice(0, length))?.[0] ?? '';
  const tails = texts.map((text) => text.slice(prefix.length));
  if (prefix === '' || tails.some((tail) => !/^[A-Za-z0-9_-]+$/.test(tail))) return null;
  const alphabet = tails.every((tail) => /^[0-9]+$/.test(tail)) ? '0-9' : 'A-Za-z0-9_-';
  const lengths = tails.map((tail) => tail.length);
  const [least, most] = [Math.min(...lengths), Math.max(...lengths)];
  return `${prefix}[${alphabet}]{${least === most ? least : `${least},${most}`}}`;
}

/** In a policy, a text that begins with `$` is a name, and `$$` stands for the `$`. */
function asText(text = ''): string {
  return text.startsWith('$') ? `$${text}` : text;
}

/** Whether a list or map can stand in a rule as it is. */
function isPlain(value: Json): boolean {
  if (typeof value === 'string') return value.length <= MOST_TEXT && !UNSEEN.test(value) && !value.startsWith('$');
  if (typeof value !== 'object' || value === null) return true;
  return Object.entries(value).every(([name, part]) => isPlain(name) && isPlain(part));
}

/** Most groups that rules are drafted for, and the newest approvals of each that are looked into. */
const MOST_GROUPS = 10;
const MOST_LOOKED_INTO = 50;

/** Requests of one tool that one rule alone asked about, all approved as they stood. */
export interface ApprovedGroup {
  readonly rule: string;
  readonly tool: string;
  /** Newest first. */
  readonly approvals: readonly ApprovalRecord[];
}

/**
 * Finds what people approve time and again. One rejection, or one approval with changes, and asking has shown its use:
 * that rule and tool are left alone.
 * @param approvals newest first
 * @param digestOf of a rule as it is now; `null` where it does not ask. What it asked in another form counts for nothing
 */
export function oftenApproved(
  approvals: readonly ApprovalRecord[],
  digestOf: (rule: string) => string | null,
): readonly ApprovedGroup[] {
  const groups = new Map<string, ApprovedGroup & { readonly approvals: ApprovalRecord[] }>();
  const useful = new Set<string>();
  const keyOf = (tool: string, rule: string): string => JSON.stringify([tool, rule]);
  for (const approval of approvals) {
    const { tool, requirements, status, changed, isForged } = approval;
    if (isForged === true) continue;
    if (status === 'rejected' || changed !== undefined)
      for (const { rule } of requirements) useful.add(keyOf(tool, rule));
    const [only, ...others] = requirements;
    const isApproved = status === 'granted' || status === 'used';
    if (!isApproved || only === undefined || others.length > 0 || only.ruleDigest !== digestOf(only.rule)) continue;
    const group = groups.get(keyOf(tool, only.rule)) ?? { rule: only.rule, tool, approvals: [] };
    group.approvals.push(approval);
    groups.set(keyOf(tool, only.rule), group);
  }
  return [...groups]
    .filter(([key, group]) => !useful.has(key) && group.approvals.length >= LEAST_APPROVALS)
    .map(([, group]) => group)
    .toSorted((a, b) => b.approvals.length - a.approvals.length)
    .slice(0, MOST_GROUPS)
    .map((group) => ({ ...group, approvals: group.approvals.slice(0, MOST_LOOKED_INTO) }));
}
