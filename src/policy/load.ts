import { createReading, type FileReading } from '../diagnostics/file-reading.ts';
import { unplaced } from '../diagnostics/find-files.ts';
import { type Finding, inReadingOrder, type Position } from '../diagnostics/finding.ts';
import { InvalidFiles } from '../diagnostics/render.ts';
import { didYouMean } from '../diagnostics/nearest.ts';
import { readYamlSource, type YamlSource } from '../diagnostics/yaml-source.ts';
import type { Tool } from '../effects/model/tool.ts';
import type { BudgetDefinition } from '../effects/policy-store.ts';
import { isJsonObject } from '../json/value.ts';
import { advise } from './advice.ts';
import { differentAmounts, type ReadRule } from './amounts.ts';
import { avoidableObligations } from './avoidable.ts';
import { buildBudget, buildRule, type RuleParts } from './build-rule.ts';
import { compileSet } from './compile-set.ts';
import { compileCondition, holds } from './compiled-condition.ts';
import type { CompiledRule } from './compiled-rule.ts';
import { reportEditable } from './editable.ts';
import { catalogueOf } from './match.ts';
import { reportNameless } from './nameless.ts';
import { warnOfNeverApplying } from './never-applies.ts';
import type { CompiledPolicies } from './policies.ts';
import {
  compareText,
  formOf,
  listLines,
  namedFiles,
  type PolicyText,
  readPolicyTexts,
  versionOf,
} from './policy-texts.ts';
import { collectInto, type Reporter } from './reporter.ts';
import type { BudgetPlan, RulePlan } from './rule-plan.ts';
import { rulesByTool, inputOfTool, NOTHING_REDACTED } from './tool-index.ts';
import { EFFECTS, type PolicyFile, PolicySetSchema } from './schema.ts';
import type { Surroundings } from './set-context.ts';
import { hasShape } from './shape.ts';

export interface PolicyLoadOptions {
  /** Files, and folders that are searched for `*.yaml` and `*.yml`. */
  readonly paths: readonly string[];
  readonly tools: readonly Tool[];
  readonly upstreams: readonly string[];
  /** Units by pool. */
  readonly pools: ReadonlyMap<string, number>;
  /** Roles that are declared or that a user has. */
  readonly roles: readonly string[];
  /** The users of the configuration, each with all roles. */
  readonly rolesOf: ReadonlyMap<string, readonly string[]>;
  /** Names that the configuration declares, by the fact that has them. Absent: rules are not held against it. */
  readonly declared?: ReadonlyMap<string, readonly string[]>;
  /** When the files are checked, ms since the epoch. Default: now. */
  readonly now?: number;
}

/** All policy sets after checking, as data. */
export interface PolicyPlan {
  /** SHA-256 of the canonical form of all sets and the list files they name, base64url. */
  readonly version: string;
  readonly definitions: readonly BudgetDefinition[];
  readonly budgets: readonly BudgetPlan[];
  /** In the order of report. */
  readonly rules: readonly RulePlan[];
}

/** A policy file after checking, as data. */
export interface CheckedFile {
  /** `null` where the file is too faulty to have a name. */
  readonly name: string | null;
  readonly place: Position;
  readonly rules: readonly RulePlan[];
  readonly budgets: readonly BudgetPlan[];
  readonly definitions: readonly BudgetDefinition[];
  /** Its canonical form, with its list files. */
  readonly form: string;
  readonly findings: readonly Finding[];
}

export interface CheckedFiles {
  get(text: PolicyText): CheckedFile | null;
  put(text: PolicyText, checked: CheckedFile): void;
}

const NOTHING_KNOWN: CheckedFiles = { get: () => null, put: () => undefined };

/**
 * Reads and compiles all policy sets under the paths.
 * @param known files that do not need another check
 * @throws InvalidFiles with every fault of every file
 */
export async function loadPolicySets(
  options: PolicyLoadOptions,
  reading: FileReading = createReading(),
  known: CheckedFiles = NOTHING_KNOWN,
): Promise<{
  readonly set: CompiledPolicies;
  readonly plan: PolicyPlan;
  readonly warnings: readonly Finding[];
  readonly texts: readonly PolicyText[];
  /** Text of the policy files by name, to show with warnings. */
  readonly sources: ReadonlyMap<string, string>;
  /** Everything to watch for changes: the given paths, the policy files, the list files. */
  readonly files: readonly string[];
}> {
  const findings: Finding[] = [];
  const { texts, files } = await readPolicyTexts(options.paths, findings, reading);
  const compiled = compilePolicies(texts, options, findings, known);
  return { ...compiled, texts, sources: textsByFile(texts), files };
}

/**
 * Compiles policy files from memory.
 * @param earlier findings from reading the files
 * @param known files that do not need another check
 * @throws InvalidFiles with every fault of every file
 */
export function compilePolicies(
  texts: readonly PolicyText[],
  options: Omit<PolicyLoadOptions, 'paths'>,
  earlier: readonly Finding[] = [],
  known: CheckedFiles = NOTHING_KNOWN,
): { readonly set: CompiledPolicies; readonly plan: PolicyPlan; readonly warnings: readonly Finding[] } {
  const { tools, upstreams, pools, roles, rolesOf, declared = new Map(), now = Date.now() } = options;
  const surroundings = { ...catalogueOf(tools, upstreams), pools, roles, rolesOf, declared, now };
  const files: BuiltFile[] = texts.map((text) => {
    const before = known.get(text);
    if (before !== null) return { checked: before, rules: buildRules(before, surroundings) };
    const built = checkFile(text, surroundings);
    known.put(text, built.checked);
    return built;
  });
  const findings = [...earlier, ...files.flatMap(({ checked }) => checked.findings)];
  findings.push(...namesTwice(files.map(({ checked }) => checked)));
  // In a file with faults some rules are missing, so comparing rules would give wrong findings.
  if (!findings.some((finding) => finding.severity === 'error')) {
    const read = files.flatMap(readRules);
    findings.push(
      ...avoidableObligations(
        files.flatMap(({ rules }) => rules),
        tools,
      ),
      ...differentAmounts(read, tools),
      ...redactedBuckets(
        read,
        files.flatMap(({ checked }) => checked.budgets),
        tools,
      ),
    );
  }
  if (texts.length === 0)
    findings.push({
      ...unplaced('no_policies', 'No policy file was found: every call is refused'),
      severity: 'warning',
    });
  if (findings.some((finding) => finding.severity === 'error'))
    throw new InvalidFiles(inReadingOrder(findings), textsByFile(texts));
  return { ...assemble(files, options.tools), warnings: inReadingOrder(findings) };
}

interface BuiltFile {
  readonly checked: CheckedFile;
  readonly rules: readonly CompiledRule[];
}

function readRules({ checked, rules }: BuiltFile): readonly ReadRule[] {
  return checked.rules.flatMap((plan, index) => {
    const rule = rules[index];
    return rule === undefined ? [] : [{ plan, rule }];
  });
}

function checkFile(text: PolicyText, surroundings: Surroundings): BuiltFile {
  const findings: Finding[] = [];
  const source = readYamlSource(text.file, text.text);
  findings.push(...source.findings);
  const report = collectInto(findings, (path, part) => source.at(path, part));
  const broken: CheckedFile = {
    name: null,
    place: source.at([]),
    rules: [],
    budgets: [],
    definitions: [],
    form: '',
    findings,
  };
  // Going on with a half-read file would report faults that are not there.
  if (source.value === undefined || !isPolicySet(source, report)) return { checked: broken, rules: [] };
  const file = source.value;
  const lists = readLists(source, text, report);
  const form = canonicalForm(source, lists, report);
  const compiled = compileSet(file, lists, surroundings, report, (path) => source.at(path));
  const checked = { ...compiled, name: file.name, place: source.at(['name']), form, findings };
  const rules = buildRules(checked, surroundings);
  advise(rules, file, surroundings.tools, report);
  warnOfNeverApplying(compiled.rules, rules, file, surroundings, report);
  reportNameless(compiled.rules, rules, file, surroundings.tools, report);
  reportEditable(compiled.rules, rules, file, surroundings.tools, report);
  return { checked, rules };
}

/** Builds the rules through the engine's own parser. They get their ranks once all files are read. */
function buildRules(
  { rules, budgets }: Pick<CheckedFile, 'rules' | 'budgets'>,
  { pools }: Surroundings,
): readonly CompiledRule[] {
  const parts: RuleParts = {
    budgets: new Map(budgets.map((budget) => [budget.id, buildBudget(budget)])),
    pools,
    testOf: compileCondition,
  };
  return rules.map((rule) => buildRule(rule, 0, parts));
}

function namesTwice(files: readonly CheckedFile[]): readonly Finding[] {
  const homes = new Map<string, string>();
  const findings: Finding[] = [];
  for (const { name, place } of files) {
    if (name === null) continue;
    const home = homes.get(name);
    if (home !== undefined)
      findings.push({
        code: 'duplicate_set',
        severity: 'error',
        message: `There is another set '${name}' in ${home}`,
        hint: null,
        at: place,
      });
    homes.set(name, place.file);
  }
  return findings;
}

function textsByFile(texts: readonly PolicyText[]): ReadonlyMap<string, string> {
  return new Map(texts.map(({ file, text }) => [file, text]));
}

/** Whether a file has the shape of a policy set; what it says may still be faulty. */
export function isPolicySet(
  source: YamlSource,
  report: Reporter,
): source is YamlSource & { readonly value: PolicyFile } {
  const { value } = source;
  if (isJsonObject(value) && typeof value['kind'] === 'string' && value['kind'] !== 'PolicySet') {
    if (value['kind'] === 'PolicyLibrary')
      report.error('not_yet_supported', ['kind'], `'kind: PolicyLibrary' is not yet supported`);
    else
      report.error(
        'unknown_kind',
        ['kind'],
        [
          `'${value['kind']}' is no kind of policy file`,
          didYouMean(value['kind'], ['PolicySet']) ?? 'policy folders hold files of kind: PolicySet',
        ],
      );
    return false;
  }
  return hasShape(PolicySetSchema, value, [], report);
}

function readLists(
  source: YamlSource,
  { lists }: PolicyText,
  report: Reporter,
): ReadonlyMap<string, readonly string[]> {
  const read = new Map<string, readonly string[]>();
  for (const [name, path] of namedFiles(source)) {
    const text = lists.get(path) ?? null;
    if (text === null) {
      report.error(
        'unreadable_file',
        ['lists', name, 'file'],
        [`Cannot read the list file '${path}'`, 'paths are relative to the policy file, and the text has to be UTF-8'],
      );
      continue;
    }
    read.set(name, listLines(text));
  }
  return read;
}

function canonicalForm(source: YamlSource, lists: ReadonlyMap<string, readonly string[]>, report: Reporter): string {
  try {
    return formOf(source, lists);
  } catch {
    report.error(
      'wrong_value',
      [],
      ['The file has a text with half a character (a lone surrogate)', 'check its \\u escapes'],
    );
    return '';
  }
}

function assemble(
  files: readonly BuiltFile[],
  tools: readonly Tool[],
): { readonly set: CompiledPolicies; readonly plan: PolicyPlan } {
  const found = files.flatMap(({ checked, rules }) =>
    rules.map((rule, index) => ({ rule, plan: checked.rules[index] })),
  );
  const position = new Map(found.map(({ rule }, index) => [rule.id, index]));
  found.sort(
    ({ rule: a }, { rule: b }) =>
      severity(a) - severity(b) ||
      b.priority - a.priority ||
      compareText(a.set, b.set) ||
      (position.get(a.id) ?? 0) - (position.get(b.id) ?? 0),
  );
  const rules = found.map(({ rule }, rank) => ({ ...rule, rank }));
  const byTool = rulesByTool(rules, tools);
  const checked = files.map((file) => file.checked).filter(({ name }) => name !== null);
  const version = versionOf(checked);
  const definitions = checked.flatMap((file) => file.definitions);
  return {
    set: {
      version,
      budgets: definitions,
      rules,
      byTool,
      couldPermit: (tool) => byTool.get(tool)?.couldPermit ?? false,
      redacted: (tool) => byTool.get(tool)?.redacted ?? NOTHING_REDACTED,
    },
    plan: {
      version,
      definitions,
      budgets: checked.flatMap((file) => file.budgets),
      rules: found.flatMap(({ plan }) => (plan === undefined ? [] : [plan])),
    },
  };
}

const REPORT_ORDER: readonly (typeof EFFECTS)[number][] = ['pause', 'deny', 'require_approval', 'constrain', 'allow'];

function severity(rule: CompiledRule): number {
  return REPORT_ORDER.indexOf(rule.effect);
}

/**
 * Finds budgets that count by a param of a call which is redacted. Its values would stand in the names of the buckets, which
 * whoever reads effects, budgets, events and exports is shown.
 */
function redactedBuckets(
  rules: readonly ReadRule[],
  budgets: readonly BudgetPlan[],
  tools: readonly Tool[],
): readonly Finding[] {
  const redacting = rules.filter(({ plan }) => plan.redact.length > 0);
  if (redacting.length === 0) return [];
  const inputs = tools.map(inputOfTool);
  const isOf = ({ rule }: ReadRule, input: (typeof inputs)[number]): boolean =>
    holds(rule.perTool, input, undefined, rule.unknownIs);
  return rules.flatMap((read) =>
    read.plan.obligations.flatMap((obligation): Finding[] => {
      const by =
        obligation.kind === 'budget' ? budgets.find(({ id }) => id === obligation.budget)?.by.facts : undefined;
      for (const { root, steps, text } of by ?? []) {
        const other =
          root !== 'params'
            ? undefined
            : redacting.find(
                (one) =>
                  one.plan.redact.includes(String(steps[0])) &&
                  inputs.some((input) => isOf(read, input) && isOf(one, input)),
              );
        if (other !== undefined && obligation.kind === 'budget')
          return [
            {
              code: 'redacted_bucket',
              severity: 'error',
              message: `'${read.rule.id}' charges the budget '${obligation.budget}', which counts by ${text}, and '${other.rule.id}' redacts that: buckets have names, and whoever reads effects or budgets would read it`,
              hint: `take ${text} out of the budget's 'by', and count by the agent, the target or another param; or out of 'redact'`,
              at: read.rule.position,
            },
          ];
      }
      return [];
    }),
  );
}
