import { Document, isMap, isPair, isScalar, isSeq, parseDocument, Scalar, visit, type YAMLMap } from 'yaml';
import { InvalidFiles } from '../diagnostics/invalid-files.ts';
import { readYamlSource } from '../diagnostics/yaml-source.ts';
import type { Tool } from '../effects/model/tool.ts';
import type { JsonObject } from '../json/value.ts';
import { evaluatePolicies } from './evaluate.ts';
import type { PolicyInput } from './input.ts';
import { type CheckedFile, type CheckedFiles, compilePolicies, isPolicySet, type PolicyLoadOptions } from './load.ts';
import type { PolicyText } from './policy-texts.ts';
import type { CompiledPolicies } from './policies.ts';
import { collectInto } from './reporter.ts';
import type { PolicyFile } from './schema.ts';
import { seenBounds } from './seen-bounds.ts';

/** So many approvals, and no rejection, until a rule is suggested. */
export const LEAST_APPROVALS = 5;

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
