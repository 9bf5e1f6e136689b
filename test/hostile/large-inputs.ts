/** The longest body that the gateway takes, less some room. */
const BYTES = 1024 * 1024 - 2_000;
function listOf(unit: string, count = Math.floor(BYTES / (unit.length + 1))): string {
  return `[${Array.from({ length: Math.min(count, Math.floor(BYTES / (unit.length + 1))) }, () => unit).join(',')}]`;
}

function mapOf(name: (index: number) => string, count: number, value = '0'): string {
  let text = '{';
  for (let index = 0; index < count && text.length < BYTES; index += 1)
    text += `${index === 0 ? '' : ','}"${name(index)}":${value}`;
  return `${text}}`;
}

/**
 * JSON texts of up to 1 MiB that are the worst known for some part of the gateway; each is one value.
 * @param values as many as a body may have
 */
export function largeValues(values: number): Readonly<Record<string, string>> {
  // Some room for what stands around the value.
  const most = values - 100;
  const width = Math.floor(BYTES / most) - 6;
  // How often a piece of so many bytes stands in each of them.
  const times = (bytes: number, wanted: number): number => Math.min(wanted, Math.floor((width - 8) / bytes));
  return {
    'as many zeros as fit': listOf('0'),
    'as many empty lists as fit': listOf('[]'),
    'as many names as fit': mapOf((index) => index.toString(36), BYTES),
    'lists within lists': listOf(`${'['.repeat(60)}${']'.repeat(60)}`),
    'as many empty lists as may be': listOf('[]', most),
    'names as long as fit': mapOf((index) => String(index).padStart(width, 'a'), most),
    'names that end alike': mapOf((index) => `${index}${'a'.repeat(width - String(index).length)}`, most),
    'names that fold': mapOf((index) => `${index}${'\u212a'.repeat(times(3, 30))}`, most),
    'names in escapes': mapOf((index) => `${index}${String.raw`\u00e9`.repeat(times(6, 15))}`, most),
    'texts in escapes': listOf(`"${String.raw`\u0001`.repeat(times(6, 16))}"`, most),
    'one text': `"${'a'.repeat(BYTES)}"`,
    'one text in escapes': `"${String.raw`\u00e9`.repeat(BYTES / 6)}"`,
    'one text of quotes': `"${String.raw`\"`.repeat(BYTES / 2)}"`,
    'one long number': `0.${'1'.repeat(BYTES)}`,
    'a number that is no double': `1${'0'.repeat(BYTES)}`,
    'numbers of many digits': listOf(`0.000${'1'.repeat(times(1, 80))}e-7`, most),
    'a long name twice': `{"${'n'.repeat(BYTES / 2 - 10)}":0,"${'n'.repeat(BYTES / 2 - 10)}":0}`,
    'a long name over many': `{"${'n'.repeat(1_000)}":${mapOf((index) => `k${index}`, most - 10)}}`,
    'a name that is too long': `{"${'n'.repeat(BYTES / 2)}":${mapOf((index) => `k${index}`, most - 10)}}`,
    'long names within one another': `${`{"${'n'.repeat(1_000)}":`.repeat(60)}${mapOf((index) => `k${index}`, most - 100)}${'}'.repeat(60)}`,
    'marks of keys': listOf(`"svc_agent_AAAAAAAAAAAA_${'svc_a_'.repeat(times(6, 10))}"`, most),
    addresses: listOf(`"a.${'b-'.repeat(times(2, 20))}@x.example, y@evil.example"`, most),
    'addresses of the web': listOf(`"http://a/${'%41'.repeat(times(3, 25))} "`, most),
    'maps in a deep list': listOf(`${'{"a":'.repeat(60)}0${'}'.repeat(60)}`, Math.floor(most / 62)),
    'names in the wrong order': mapOf((index) => (most - index).toString(36).padStart(4, '0'), most),
    'names that are numbers': mapOf((index) => String((most - index) * 7), most),
    'names beyond ASCII': mapOf((index) => `${index.toString(36)}é`, most, '"é"'),
    fractions: listOf('0.1234567890123456', most),
    'short texts in escapes': listOf(String.raw`"é"`, most),
    'maps of one': listOf('{"a":0}', Math.floor(most / 2)),
    'maps of twelve': listOf(
      `{${'lkjihgfedcba'
        .split('')
        .map((name) => `"${name}":0`)
        .join(',')}}`,
      Math.floor(most / 13),
    ),
    'maps of three names': `[${Array.from({ length: Math.floor(most / 4) }, (_, index) => `{"c${index.toString(36)}":0,"b":"","a":[]}`).join(',')}]`,
    'maps that are nearly alike': `[${Array.from({ length: Math.floor(most / 3) }, (_, index) => `{"a":{"b":${index}}}`).join(',')}]`,
    spaces: `${' '.repeat(BYTES)}0`,
  };
}

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
