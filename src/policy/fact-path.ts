import { didYouMean } from '../diagnostics/nearest.ts';
import { readSteps, writeSteps } from '../json/path-steps.ts';
import { followSteps, isJsonObject, type Json, type JsonObject } from '../json/value.ts';
import type { PolicyInput } from './input.ts';

/**
 * A place in the input of a decision: a root from a fixed vocabulary, and steps from there. Steps follow only own keys
 * of objects and indices of lists. A dot in a path never matches a dot inside a key.
 */
export interface FactPath {
  readonly root: (typeof FACT_ROOTS)[number];
  readonly steps: readonly (string | number)[];
  /** Canonical spelling. Of `brain` it names the entity too: sets may call different entities by the same name. */
  readonly text: string;
  /** Only of `brain`: which entity it is a part of. */
  readonly entity?: EntityPlan;
}

/** Which entity of the company brain a name stands for in one policy set. */
export interface EntityPlan {
  readonly type: string;
  readonly id: FactPath;
  /** Links to follow from there, by their `rel`. */
  readonly links: readonly string[];
}

/** What the names after `brain.` stand for; `null` where such facts cannot stand. */
export type Entities = ReadonlyMap<string, EntityPlan> | null;

/** Why a text is not a path, or not one that is allowed here. */
export interface PathFault {
  readonly code: 'bad_path' | 'unknown_fact' | 'not_yet_supported';
  readonly message: string;
  readonly hint: string | null;
}

/** Reads a fact; `undefined` where there is none. Inside `some` and `every`, `item` is the present element. */
export type ReadFact = (input: PolicyInput, item: Json | undefined) => Json | undefined;

/** Names under a root that rules can use. `*` stands for any one name. */
const VOCABULARY: Readonly<Record<string, readonly string[]>> = {
  agent: ['id', 'team', 'roles', 'owner', 'attributes.*'],
  key: ['id', 'kind', 'profile', 'user'],
  tool: ['name', 'upstream', 'kind', 'tags', 'risk', 'declared', 'pin'],
  request: ['ip', 'headers.*'],
};
/** Parts with free names, and the word for one of them. */
const OPEN_NAMES = [
  ['attributes', 'attribute'],
  ['headers', 'header'],
] as const;
const ROOTS = ['agent', 'key', 'tool', 'params', 'target', 'env', 'request', 'brain'] as const;
const FACT_ROOTS = [...ROOTS, 'workspace', 'item'] as const;
const LATER_ROOTS = ['state', 'budget', 'time'];

/**
 * Parses `root(.ident | [n] | ["any key"])*` against the fixed vocabulary.
 * @param within where the path stands; `item` has a meaning only in a block
 * @param entities what the set calls its entities
 */
export function parseFactPath(text: string, within: 'rule' | 'block', entities: Entities): FactPath | PathFault {
  const root = /^[A-Za-z_]+/.exec(text)?.[0] ?? '';
  if (LATER_ROOTS.includes(root))
    return { code: 'not_yet_supported', message: `Facts of '${root}' are not yet supported`, hint: null };
  if (root === 'item' && within === 'rule')
    return {
      code: 'unknown_fact',
      message: `'item' has a meaning only inside some and every`,
      hint: 'write params.<list>: { every: { item.<field>: … } }',
    };
  const known: readonly string[] = within === 'block' ? [...ROOTS, 'item'] : ROOTS;
  if (!known.includes(root))
    return {
      code: 'unknown_fact',
      message: `Unknown fact '${text}'`,
      hint:
        didYouMean(root, known) ??
        `facts begin with ${known.join(', ')}${root === '' ? '' : `; a param is params.${root}`}`,
    };
  const steps = readSteps(text, root.length);
  if ('message' in steps) return { code: 'bad_path', ...steps };
  if (root === 'brain') return brainPath(steps, text, entities);
  return vocabularyFault(root, steps, text) ?? factPath(root, inOneSpelling(root, steps));
}

/** `brain.<name>` and then `id`, `type`, `name`, an attribute, or `attributes` and any path. */
function brainPath(steps: readonly (string | number)[], text: string, entities: Entities): FactPath | PathFault {
  const fault = (message: string, hint: string | null): PathFault => ({ code: 'unknown_fact', message, hint });
  if (entities === null) return fault(`'${text}' cannot stand here: it is a fact of the company brain`, null);
  const [name, ...rest] = steps;
  const entity = typeof name === 'string' ? entities.get(name) : undefined;
  if (entity === undefined)
    return fault(
      `The set names no entity for '${text}'`,
      (typeof name === 'string' ? didYouMean(name, entities.keys()) : null) ??
        'say under entities which one it is: entities: { customer: { type: customer, id: params.customer_id } }',
    );
  if (rest.length === 0)
    return fault(`'${text}' is a whole entity`, `write ${text}.id, .type, .name or the name of an attribute`);
  const of = [`${entity.type} ${entity.id.text}`, ...entity.links].join(' > ');
  return { root: 'brain', steps: rest, text: `brain${writeSteps(steps)} <${of}>`, entity };
}

/** Header names are case-insensitive. In facts they are in lower case. */
function inOneSpelling(root: string, steps: readonly (string | number)[]): readonly (string | number)[] {
  const [first, second] = steps;
  if (root !== 'request' || first !== 'headers' || typeof second !== 'string') return steps;
  return [first, second.toLowerCase()];
}

export function isPathFault(parsed: object): parsed is PathFault {
  return 'code' in parsed;
}

/** Paths that `match` compiles to, and that rules cannot write. */
export function internalPath(root: 'workspace' | 'tool' | 'agent', ...steps: readonly string[]): FactPath {
  return factPath(root, steps);
}

function factPath(root: string, steps: readonly (string | number)[]): FactPath {
  return { root: asRoot(root), steps, text: root + writeSteps(steps) };
}

function asRoot(root: string): FactPath['root'] {
  const found = FACT_ROOTS.find((one) => one === root);
  if (found === undefined) throw new Error(`no root of facts: ${root}`);
  return found;
}

function vocabularyFault(root: string, steps: readonly (string | number)[], text: string): PathFault | null {
  const fault = (message: string, hint: string | null): PathFault => ({ code: 'unknown_fact', message, hint });
  if (root === 'item') return null;
  if (root === 'params')
    return steps.length > 0 ? null : fault(`'params' needs a name`, 'write params.<name>, for example params.amount');
  const names = VOCABULARY[root];
  if (names === undefined) return steps.length === 0 ? null : fault(`'${root}' has no parts: '${text}'`, null);
  const [first, second] = steps;
  if (typeof first !== 'string') return fault(`'${root}' needs a name`, `it has ${names.join(', ')}`);
  for (const [open, what] of OPEN_NAMES)
    if (first === open && names.includes(`${open}.*`))
      return typeof second === 'string' && steps.length === 2
        ? null
        : fault(`'${text}' names no ${what}`, `write ${root}.${open}.<name>`);
  if (!names.includes(first))
    return fault(`Unknown fact '${text}'`, didYouMean(first, names) ?? `${root} has ${names.join(', ')}`);
  const fits = steps.length === 1 || (isListOfNames(first) && steps.length === 2 && typeof second === 'number');
  return fits ? null : fault(`'${root}.${first}' has no parts: '${text}'`, null);
}

/** The type of a present fact; `null` where the caller, or the author of the attribute, chooses it. */
export function factType({ root, steps }: FactPath): 'string' | 'array' | 'boolean' | null {
  if (root === 'brain') return steps.length === 1 && isOfEntity(steps[0]) ? 'string' : null;
  if (root === 'tool' && steps[0] === 'declared') return 'boolean';
  if (root === 'params' || root === 'item' || steps[0] === 'attributes') return null;
  return isListOfNames(steps[0]) && steps.length === 1 ? 'array' : 'string';
}

function isListOfNames(step: string | number | undefined): boolean {
  return step === 'roles' || step === 'tags';
}

/** Whether the value is the same in every call of one tool. */
export function isFixedPerTool(path: FactPath): boolean {
  return path.root === 'tool' && path.steps[0] !== 'pin';
}

/** Whether the caller chooses the value. */
export function isCallersWord(path: FactPath): boolean {
  if (path.root === 'request') return path.steps[0] === 'headers';
  return path.root === 'params' || path.root === 'target' || path.root === 'item';
}

/** Makes the reader of a path. It never throws, whatever the params are. */
export function readerOf(path: FactPath): ReadFact {
  const [first, ...rest] = path.steps;
  switch (path.root) {
    case 'params':
      if (typeof first === 'string' && rest.length === 0) return (input) => ownMember(input.params, first);
      return (input) => followSteps(input.params, path.steps);
    case 'item':
      return (_input, item) => followSteps(item, path.steps);
    case 'brain':
      return brainReader(path);
    case 'target':
      return (input) => input.target;
    case 'env':
      return (input) => input.env;
    case 'workspace':
      return (input) => input.workspace;
    case 'request':
      return requestReader(first, rest);
    case 'key':
      return keyReader(first);
    case 'agent':
      return agentReader(first, rest);
    case 'tool':
      return toolReader(first, rest);
  }
}

/** What every entity has; all other names are attributes. */
function isOfEntity(step: string | number | undefined): step is 'id' | 'type' | 'name' {
  return step === 'id' || step === 'type' || step === 'name';
}

/** Reads a part of an entity. It is absent where the entity is not there, or not known. */
function brainReader({ entity, steps }: FactPath): ReadFact {
  if (entity === undefined) return absent;
  const { type, links } = entity;
  const readId = readerOf(entity.id);
  const [first] = steps;
  const within = first === 'attributes' ? steps.slice(1) : steps;
  return (input) => {
    const id = readId(input, undefined);
    let found = typeof id === 'string' ? (input.entity?.(type, id) ?? null) : null;
    for (const rel of links) {
      const to = found?.links.filter((link) => link.rel === rel) ?? [];
      const [only] = to;
      // With several such links nobody can say which one is meant.
      found = only !== undefined && to.length === 1 ? (input.entity?.(only.type, only.id) ?? null) : null;
    }
    if (found === null) return undefined;
    return isOfEntity(first) && steps.length === 1 ? found[first] : followSteps(found.attributes, within);
  };
}

function requestReader(name: string | number | undefined, rest: readonly (string | number)[]): ReadFact {
  switch (name) {
    case 'ip':
      return (input) => input.requestIp;
    case 'headers':
      return (input) => followSteps(input.headers, rest);
    case undefined:
    default:
      return absent;
  }
}

function keyReader(name: string | number | undefined): ReadFact {
  switch (name) {
    case 'id':
      return (input) => input.key.id;
    case 'kind':
      return (input) => input.key.kind;
    case 'profile':
      return (input) => input.key.profile;
    case 'user':
      return (input) => input.key.user;
    case undefined:
    default:
      return absent;
  }
}

function agentReader(name: string | number | undefined, rest: readonly (string | number)[]): ReadFact {
  switch (name) {
    case 'id':
      return (input) => input.agent.id;
    case 'team':
      return (input) => input.agent.team;
    case 'owner':
      return (input) => input.agent.owner;
    case 'roles':
      return (input) => followSteps(input.agent.roles, rest);
    case 'attributes':
      return (input) => followSteps(input.agent.attributes, rest);
    case undefined:
    default:
      return absent;
  }
}

function toolReader(name: string | number | undefined, rest: readonly (string | number)[]): ReadFact {
  switch (name) {
    case 'name':
      return (input) => input.tool.name;
    case 'upstream':
      return (input) => input.tool.upstream;
    case 'kind':
      return (input) => input.tool.kind;
    case 'risk':
      return (input) => input.tool.risk;
    case 'tags':
      return (input) => followSteps(input.tool.tags, rest);
    case 'declared':
      return (input) => input.tool.declared !== false;
    case 'pin':
      return (input) => input.pin ?? undefined;
    case 'action_type':
      return (input) => input.tool.actionType;
    case 'param_names':
      return (input) => declaredParams(input.tool.paramsSchema);
    case undefined:
    default:
      return absent;
  }
}

function absent(): undefined {
  return undefined;
}

export function declaredParams(schema: JsonObject | null): readonly string[] {
  const properties = schema === null ? undefined : ownMember(schema, 'properties');
  return isJsonObject(properties) ? Object.keys(properties) : [];
}

function ownMember(object: JsonObject, name: string): Json | undefined {
  return Object.hasOwn(object, name) ? object[name] : undefined;
}
