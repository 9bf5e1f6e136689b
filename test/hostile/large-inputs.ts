/** The longest body that the gateway takes, less some room. */
const BYTES = 1024 * 1024 - 2_000;
/** As many values as a body may have, less some room. */
const VALUES = 4_900;

function listOf(unit: string, count = Math.floor(BYTES / (unit.length + 1))): string {
  return `[${Array.from({ length: Math.min(count, Math.floor(BYTES / (unit.length + 1))) }, () => unit).join(',')}]`;
}

function mapOf(name: (index: number) => string, count: number, value = '0'): string {
  let text = '{';
  for (let index = 0; index < count && text.length < BYTES; index += 1)
    text += `${index === 0 ? '' : ','}"${name(index)}":${value}`;
  return `${text}}`;
}

const WIDTH = Math.floor(BYTES / VALUES) - 6;

/** JSON texts of up to 1 MiB that are the worst known for some part of the gateway; each is one value. */
export const LARGE_VALUES: Readonly<Record<string, string>> = {
  'as many zeros as fit': listOf('0'),
  'as many empty lists as fit': listOf('[]'),
  'as many names as fit': mapOf((index) => index.toString(36), BYTES),
  'lists within lists': listOf(`${'['.repeat(60)}${']'.repeat(60)}`),
  'as many empty lists as may be': listOf('[]', VALUES),
  'names as long as fit': mapOf((index) => String(index).padStart(WIDTH, 'a'), VALUES),
  'names that end alike': mapOf((index) => `${index}${'a'.repeat(WIDTH - String(index).length)}`, VALUES),
  'names that fold': mapOf((index) => `${index}${'\u212a'.repeat(30)}`, VALUES),
  'names in escapes': mapOf((index) => `${index}${String.raw`\u00e9`.repeat(15)}`, VALUES),
  'texts in escapes': listOf(`"${String.raw`\u0001`.repeat(16)}"`, VALUES),
  'one text': `"${'a'.repeat(BYTES)}"`,
  'one text in escapes': `"${String.raw`\u00e9`.repeat(BYTES / 6)}"`,
  'one text of quotes': `"${String.raw`\"`.repeat(BYTES / 2)}"`,
  'one long number': `0.${'1'.repeat(BYTES)}`,
  'a number that is no double': `1${'0'.repeat(BYTES)}`,
  'numbers of many digits': listOf(`0.000${'1'.repeat(80)}e-7`, VALUES),
  'a long name twice': `{"${'n'.repeat(BYTES / 2 - 10)}":0,"${'n'.repeat(BYTES / 2 - 10)}":0}`,
  'a long name over many': `{"${'n'.repeat(1_000)}":${mapOf((index) => `k${index}`, VALUES - 10)}}`,
  'a name that is too long': `{"${'n'.repeat(BYTES / 2)}":${mapOf((index) => `k${index}`, VALUES - 10)}}`,
  'long names within one another': `${`{"${'n'.repeat(1_000)}":`.repeat(60)}${mapOf((index) => `k${index}`, VALUES - 100)}${'}'.repeat(60)}`,
  'marks of keys': listOf(`"svc_agent_AAAAAAAAAAAA_${'svc_a_'.repeat(10)}"`, VALUES),
  addresses: listOf(`"a.${'b-'.repeat(20)}@x.example, y@evil.example"`, VALUES),
  'addresses of the web': listOf(`"http://a/${'%41'.repeat(25)} "`, VALUES),
  'maps in a deep list': listOf(`${'{"a":'.repeat(60)}0${'}'.repeat(60)}`, 78),
  'maps that are nearly alike': `[${Array.from({ length: 1_600 }, (_, index) => `{"a":{"b":${index}}}`).join(',')}]`,
  spaces: `${' '.repeat(BYTES)}0`,
};

/** A state in which `a.a.a.…` can be read in very many ways, within the values of one body. */
export function ambiguousState(depth: number): string {
  const levels: string[] = ['{}'];
  for (let level = 1; level <= depth; level += 1) {
    const [one = '{}', two] = [levels[level - 1], levels[level - 2]];
    levels.push(two === undefined ? `{"a":${one}}` : `{"a":${one},"a.a":${two}}`);
  }
  return levels.at(-1) ?? '{}';
}

/** Checks of states that are the worst known: fields, conditions and two states, as members of a body without braces. */
export const HARD_CHECKS: Readonly<
  Record<string, { readonly fields: readonly string[]; readonly conditions: string; readonly state: string }>
> = {
  'names with dots': hard(
    Array.from({ length: 900 }, (_, index) => `${'a.'.repeat(14)}b${index}`),
    '1',
    ambiguousState(14),
  ),
  'fields within fields': hard(
    Array.from({ length: 55 }, (_, index) => `${'d.'.repeat(index)}d`),
    '{"$in":[{}]}',
    `${'{"d":'.repeat(56)}${mapOf((index) => `k${index}`, 1_500)}${'}'.repeat(56)}`,
  ),
  'large parts that differ': hard(
    Array.from({ length: 50 }, (_, index) => `${'d.'.repeat(index)}d`),
    '2',
    `${'{"d":'.repeat(51)}"${'x'.repeat(400_000)}"${'}'.repeat(51)}`,
  ),
  'slow expressions': {
    fields: [],
    conditions: `{${Array.from({ length: 16 }, (_, index) => `"t${index}":{"$regex":"[xy]*x[xy]{20}[0-9]z"}`).join(',')}}`,
    state: `{${Array.from({ length: 16 }, (_, index) => `"t${index}":"${'xyyx'.repeat(1000)}9 z"`).join(',')}}`,
  },
  'large expressions': {
    fields: [],
    conditions: `{${Array.from({ length: 16 }, (_, index) => `"t${index}":{"$regex":"[^a]{480}"}`).join(',')}}`,
    state: `{"t1":"${'b'.repeat(4000)}"}`,
  },
  'long paths': hard(
    Array.from({ length: 900 }, (_, index) => `${index}${'.a'.repeat(480)}`),
    '1',
    '{"a":1}',
  ),
};

function hard(fields: readonly string[], condition: string, state: string) {
  return { fields, conditions: `{${fields.map((field) => `${JSON.stringify(field)}:${condition}`).join(',')}}`, state };
}
