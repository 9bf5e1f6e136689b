import type { Json } from '../../src/json/value.ts';
import type { PolicyInput } from '../../src/policy/evaluate.ts';

/**
 * A second, slow judgement of conditions, made from the words of the documentation alone: it reads the block as it
 * stands in YAML, knows no normal form, and imports nothing of the policy room but types. `undefined` is unknown.
 */
export type Kleene = boolean | undefined;

export interface ReferenceNames {
  readonly lists: Readonly<Record<string, readonly Json[]>>;
  readonly values: Readonly<Record<string, { by: (input: PolicyInput) => Json; of: Record<string, Json>; else: Json }>>;
  readonly conditions: Readonly<Record<string, Json>>;
}

interface Context {
  readonly input: PolicyInput;
  readonly item: Json | undefined;
  readonly names: ReferenceNames;
}

function and3(values: readonly Kleene[]): Kleene {
  if (values.includes(false)) return false;
  return values.includes(undefined) ? undefined : true;
}

function or3(values: readonly Kleene[]): Kleene {
  return not3(and3(values.map(not3)));
}

function not3(value: Kleene): Kleene {
  return value === undefined ? undefined : !value;
}

/** Truth of a block for a call. */
export function referenceTruth(block: Json, input: PolicyInput, names: ReferenceNames): Kleene {
  return truthOf(block, { input, item: undefined, names });
}

function truthOf(block: Json, context: Context): Kleene {
  const entries = entriesOf(block);
  const own = new Map(entries);
  if (own.has('fact')) {
    const path = own.get('path');
    const text =
      typeof path === 'string' ? `${plain(own.get('fact'))}.${path.replace(/^\$\./, '')}` : plain(own.get('fact'));
    return engineTruth(plain(own.get('operator')), read(text, context), own.get('value') ?? null, context);
  }
  return and3(
    entries.map(([key, value]) => {
      switch (key) {
        case 'all':
          return and3(elements(value).map((part) => truthOf(part, context)));
        case 'any':
          return or3(elements(value).map((part) => truthOf(part, context)));
        case 'not':
          return not3(truthOf(value, context));
        case 'condition':
          return truthOf(context.names.conditions[plain(value)] ?? null, context);
        default:
          return testsTruth(read(key, context), value, context);
      }
    }),
  );
}

function testsTruth(left: Json | undefined, tests: Json, context: Context): Kleene {
  if (typeof tests !== 'object' || tests === null) return operatorTruth('eq', left, tests, context);
  const entries = entriesOf(tests);
  const ifAbsent = entries.find(([name]) => name === 'if_absent')?.[1];
  return and3(
    entries
      .filter(([name]) => name !== 'if_absent')
      .map(([name, right]) =>
        typeof ifAbsent === 'boolean' && (left === undefined || left === null)
          ? ifAbsent
          : operatorTruth(name, left, right, context),
      ),
  );
}

function engineTruth(operator: string, left: Json | undefined, right: Json, context: Context): Kleene {
  if (operator.startsWith('not:')) return not3(engineTruth(operator.slice(4), left, right, context));
  if (operator.startsWith('someFact:') || operator.startsWith('everyFact:')) {
    if (!isList(left) || left.length > 10_000) return undefined;
    const rest = operator.slice(operator.indexOf(':') + 1);
    const truths = left.map((item) => engineTruth(rest, item, right, context));
    return operator.startsWith('some') ? or3(truths) : and3(truths);
  }
  if (operator === 'doesNotContain') return not3(operatorTruth('contains', left, right, context));
  return operatorTruth(ENGINE_NAMES[operator] ?? operator, left, right, context);
}

const ENGINE_NAMES: Readonly<Record<string, string>> = {
  equal: 'eq',
  notEqual: 'ne',
  notIn: 'nin',
  greaterThan: 'gt',
  greaterThanInclusive: 'gte',
  lessThan: 'lt',
  lessThanInclusive: 'lte',
  deepEqual: 'equals',
};

function operatorTruth(name: string, left: Json | undefined, written: Json, context: Context): Kleene {
  if (name === 'exists') return (left !== undefined && left !== null) === written;
  if (name === 'type') {
    const wanted = isList(written) ? written : [written];
    return or3(
      wanted.map(
        (type) => left !== undefined && (type === kind(left) || (type === 'integer' && Number.isInteger(left))),
      ),
    );
  }
  if (left === undefined || left === null) return undefined;
  if (name === 'some' || name === 'every') {
    if (!isList(left) || left.length > 10_000) return undefined;
    const truths = left.map((item) => truthOf(written, { ...context, item }));
    return name === 'some' ? or3(truths) : and3(truths);
  }
  const right = rightSide(written, context);
  if (right === undefined || right === null) return undefined;
  switch (name) {
    case 'eq':
      return same(left, right);
    case 'ne':
      return not3(same(left, right));
    case 'in':
      return member(left, right);
    case 'nin':
      return not3(member(left, right));
    case 'gt':
      return typeof left === 'number' && typeof right === 'number' ? left > right : undefined;
    case 'gte':
      return typeof left === 'number' && typeof right === 'number' ? left >= right : undefined;
    case 'lt':
      return typeof left === 'number' && typeof right === 'number' ? left < right : undefined;
    case 'lte':
      return typeof left === 'number' && typeof right === 'number' ? left <= right : undefined;
    case 'equals':
      return kind(left) === kind(right) ? sorted(left) === sorted(right) : undefined;
    case 'starts_with':
      return texts(left, right, (text, part) => text.slice(0, part.length) === part);
    case 'ends_with':
      return texts(
        left,
        right,
        (text, part) => part.length <= text.length && text.slice(text.length - part.length) === part,
      );
    case 'substring':
      return texts(left, right, (text, part) => text.split(part).length > 1);
    case 'glob':
      return texts(left, right, globMatches);
    case 'regex':
      return texts(left, right, (text, part) => new RegExp(`^(?:${part})$`, 'us').test(text));
    case 'regex_find':
      return texts(left, right, (text, part) => new RegExp(part, 'us').test(text));
    case 'email_in':
      return typeof left === 'string'
        ? or3((isList(right) ? right : [right]).map((part) => mail(left, plain(part))))
        : undefined;
    case 'domain_in':
      return typeof left === 'string'
        ? or3((isList(right) ? right : [right]).map((part) => host(left, plain(part))))
        : undefined;
    case 'contains':
      return isList(left) && left.length <= 10_000 ? or3(left.map((item) => same(item, right))) : undefined;
    case 'contains_all':
      return isList(left) && left.length <= 10_000 && isList(right)
        ? and3(right.map((wanted) => or3(left.map((item) => same(item, wanted)))))
        : undefined;
    default:
      throw new Error(`the reference does not know ${name}`);
  }
}

/** `a*` stays within a segment, `**` does not; only what the generator writes. */
function globMatches(text: string, glob: string): boolean {
  if (glob === '') return text === '';
  if (glob.startsWith('**'))
    return Array.from({ length: text.length + 1 }, (_, at) => at).some((at) =>
      globMatches(text.slice(at), glob.slice(2)),
    );
  if (glob.startsWith('*')) {
    const segment = /^[^./:]*/.exec(text)?.[0].length ?? 0;
    return Array.from({ length: segment + 1 }, (_, at) => at).some((at) => globMatches(text.slice(at), glob.slice(1)));
  }
  if (glob.startsWith('?'))
    return text !== '' && !'./:'.includes(text.charAt(0)) && globMatches(text.slice(1), glob.slice(1));
  return text.startsWith(glob.charAt(0)) && globMatches(text.slice(1), glob.slice(1));
}

/** Plain addresses of small alphabets only; what else there is has its own tests. */
function mail(text: string, pattern: string): Kleene {
  const [name = '', domain = '', ...others] = text.split('@');
  const [wanted = '', where = ''] = pattern.split('@');
  if (others.length > 0 || !/^[a-z]+([+.][a-z]+)*$/i.test(name)) return undefined;
  const found = host(domain, where);
  if (found !== true || wanted === '*' || wanted === name) return found;
  const [box] = name.toLowerCase().split('+');
  return wanted.toLowerCase() === name.toLowerCase() || wanted.toLowerCase() === box ? undefined : false;
}

function host(text: string, pattern: string): Kleene {
  if (!/^[a-z-]+([.][a-z-]+)+$/i.test(text)) return undefined;
  const labels = text.toLowerCase().split('.');
  const more = labels.length - pattern.replace(/^[*]+[.]/, '').split('.').length;
  const ends = labels.slice(Math.max(0, more)).join('.') === pattern.replace(/^[*]+[.]/, '');
  if (pattern.startsWith('**')) return ends && more >= 1;
  return ends && more === (pattern.startsWith('*') ? 1 : 0);
}

function same(left: Json, right: Json): Kleene {
  return isScalar(left) && kind(left) === kind(right) ? left === right : undefined;
}

function member(left: Json, right: Json): Kleene {
  if (!isList(right) || !isScalar(left)) return undefined;
  if (right.length === 0) return false;
  return kind(left) === kind(right[0] ?? null) ? right.some((item) => item === left) : undefined;
}

function texts(left: Json, right: Json, test: (text: string, part: string) => boolean): Kleene {
  if (typeof left !== 'string') return undefined;
  const parts = isList(right) ? right : [right];
  if (parts.length === 0) return undefined;
  return parts.every((part) => typeof part === 'string' && part !== '')
    ? parts.some((part) => test(left, plain(part)))
    : undefined;
}

function rightSide(written: Json, context: Context): Json | undefined {
  if (typeof written === 'string' && written.startsWith('$')) {
    const list = context.names.lists[written.slice(1)];
    if (list !== undefined) return list;
    const table = context.names.values[written.slice(1)];
    if (table === undefined) throw new Error(`the reference does not know ${written}`);
    return table.of[plain(table.by(context.input))] ?? table.else;
  }
  const fact = typeof written === 'object' && written !== null ? new Map(entriesOf(written)).get('fact') : undefined;
  return typeof fact === 'string' ? read(fact, context) : written;
}

/** The facts that the generator names, each by hand. */
function read(path: string, { input, item }: Context): Json | undefined {
  const param = (name: string): Json | undefined => new Map(Object.entries(input.params)).get(name);
  const part = (value: Json | undefined, name: string): Json | undefined =>
    isList(value) || typeof value !== 'object' || value === null ? undefined : new Map(Object.entries(value)).get(name);
  switch (path) {
    case 'agent.team':
      return input.agent.team;
    case 'agent.roles':
      return input.agent.roles;
    case 'agent.attributes.trust':
      return part(input.agent.attributes, 'trust');
    case 'env':
      return input.env;
    case 'tool.kind':
      return input.tool.kind;
    case 'target':
      return input.target;
    case 'key.profile':
      return input.key.profile;
    case 'request.ip':
      return input.requestIp;
    case 'params["a.b"]':
      return param('a.b');
    case 'params.nested.a':
      return part(param('nested'), 'a');
    case 'params.list[0]': {
      const list = param('list');
      return isList(list) ? list[0] : undefined;
    }
    case 'item':
      return item;
    case 'item.sku':
      return part(item, 'sku');
    case 'item.qty':
      return part(item, 'qty');
    default:
      if (!/^params\.[a-z]+$/.test(path)) throw new Error(`the reference does not know ${path}`);
      return param(path.slice('params.'.length));
  }
}

function kind(value: Json): string {
  return value === null ? 'null' : isList(value) ? 'array' : typeof value;
}

function sorted(value: Json): string {
  if (isList(value)) return `[${value.map(sorted).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  return `{${entriesOf(value)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, member]) => `${JSON.stringify(name)}:${sorted(member)}`)
    .join(',')}}`;
}

function entriesOf(value: Json): [string, Json][] {
  return typeof value === 'object' && value !== null ? Object.entries(value) : [];
}

function elements(value: Json): readonly Json[] {
  return isList(value) ? value : [];
}

function isList(value: Json | undefined): value is readonly Json[] {
  return Array.isArray(value);
}

function isScalar(value: Json): boolean {
  return ['string', 'number', 'boolean'].includes(typeof value);
}

/** A name as text; anything else names nothing. */
function plain(value: Json | undefined): string {
  return typeof value === 'object' || value === undefined ? '' : `${value}`;
}
