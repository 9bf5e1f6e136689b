import { readFile } from 'node:fs/promises';
import { describe, expect, test } from 'vitest';
import { faultsOf, HEAD, judge, judgeParams, MAIL, outcome, rules, compileAll, tool } from './fixtures.ts';

/** `true`, `false` or `unknown` of one operator on one text. */
function truth(operator: string, text: string): string {
  const holds = outcome(judgeParams(rules(`{ id: r, effect: allow, when: { params.to: ${operator} } }`), { to: text }));
  const fails = outcome(
    judgeParams(rules(`{ id: r, effect: allow, unless: { params.to: ${operator} } }`), { to: text }),
  );
  if (holds === 'permit') return 'true';
  return fails === 'permit' ? 'false' : 'unknown';
}

describe('email_in', () => {
  const PEOPLE = '{ email_in: ["*@example.com", ada@example.org] }';
  test.each([
    ['x@example.com', 'true'],
    ['X.y+z@EXAMPLE.COM', 'true'],
    ['ada@example.org', 'true'],
    ['x@evil.com', 'false'],
    ['x@example.com.evil.com', 'false'],
    ['x@a.example.com', 'false'],
    ['x@notexample.com', 'false'],
    ['tom@example.org', 'false'],
    ["o'brien@example.com", 'true'],
    // Variants of a name that is listed matter only where it is listed.
    ['ADA@evil.com', 'false'],
    ['ada+evil@evil.com', 'false'],
  ])('%s: %s', (text, expected) => expect(truth(PEOPLE, text)).toBe(expected));

  test('a name is in the list at each of its domains', () => {
    const people = '{ email_in: [ada@example.org, ada@example.net, Ada@example.net] }';
    const said = ['ada@example.org', 'ada@example.net', 'Ada@example.net', 'ada@example.com'].map((to) =>
      truth(people, to),
    );
    expect(said).toEqual(['true', 'true', 'true', 'false']);
  });

  test.each([
    ['several addresses', 'x@evil.com, y@example.com'],
    ['several, by a comma alone', 'x@evil.com,y@example.com'],
    ['several, by semicolon', 'x@evil.com;y@example.com'],
    ['several, by a space', 'x@evil.com y@example.com'],
    ['several, by a line', 'x@evil.com\ny@example.com'],
    ['a header of its own', 'x@example.com\r\nBcc: y@evil.com'],
    ['display name', 'Ada <ada@example.com>'],
    ['display name that is an address', '"x@example.com" <y@evil.com>'],
    ['angles alone', '<x@example.com>'],
    ['comment', 'x@example.com (y@evil.com)'],
    ['comment within', 'x(c)@example.com'],
    ['quoted local part', '"x y"@example.com'],
    ['quoted local part with an address', '"y@evil.com"@example.com'],
    ['two @', 'y@evil.com@example.com'],
    ['percent route', 'y%evil.com@example.com'],
    ['bang path', 'evil.com!y@example.com'],
    ['source route', '@evil.com:y@example.com'],
    ['trailing dot', 'x@example.com.'],
    ['trailing space', 'x@example.com '],
    ['leading space', ' x@example.com'],
    ['address literal', 'x@[127.0.0.1]'],
    ['IP address', 'x@127.0.0.1'],
    ['one label', 'x@localhost'],
    ['other script', 'x@exаmple.com'],
    ['wide letters', 'x@ｅxample.com'],
    ['Kelvin sign', 'x@example.\u212aom'],
    ['encoded ASCII', 'x@xn--example-.com'],
    ['encoded letters that are none', 'x@xn--a.com'],
    ['local part of another script', 'ąda@example.com'],
    ['no local part', '@example.com'],
    ['two dots', 'x..y@example.com'],
    ['dot at the end of the local part', 'x.@example.com'],
    ['empty label', 'x@.example.com'],
    ['no @', 'example.com'],
    ['nothing', ''],
    ['null byte', 'x@example.com\u0000'],
    ['local part too long', `${'x'.repeat(65)}@example.com`],
    ['the name in another case', 'ADA@example.org'],
    ['the name with an addition', 'ada+evil@example.org'],
  ])('%s is neither in nor out', (_what, text) => expect(truth(PEOPLE, text)).toBe('unknown'));

  test('a name with an addition that is listed is itself alone, and in another case neither in nor out', () => {
    const listed = '{ email_in: [ada+news@example.org] }';
    const said = ['ada+news@example.org', 'Ada+news@example.org', 'tom+news@example.org'].map((to) =>
      truth(listed, to),
    );
    expect(said).toEqual(['true', 'unknown', 'false']);
  });

  test('what is neither in nor out is denied by a deny and not allowed by an allow', () => {
    const to = 'x@evil.com, y@example.com';
    const deny = rules(
      '{ id: a, effect: allow }',
      '{ id: d, effect: deny, when: { params.to: { email_in: ["*@evil.com"] } } }',
    );
    expect(outcome(judgeParams(deny, { to }))).toBe('denied_policy');
    expect(outcome(judgeParams(deny, { to: 'y@example.com' }))).toBe('permit');
  });

  test('a list of addresses is judged with every', () => {
    const set = rules(
      '{ id: a, effect: allow, when: { params.to: { every: { item: { email_in: ["*@example.com"] } } } } }',
    );
    expect(outcome(judgeParams(set, { to: ['a@example.com', 'b@example.com'] }))).toBe('permit');
    expect(outcome(judgeParams(set, { to: ['a@example.com', 'b@evil.com'] }))).toBe('denied_policy');
  });
});

test.each([
  ['email_in: ["*@example.com"]', `${'a'.repeat(13)}@example.com`],
  ['domain_in: ["*.example.com"]', `${'a'.repeat(13)}.example.com`],
])(
  'addresses of a million steps together are judged (%s), and with one letter more nothing is known',
  (operator, text) => {
    const set = rules(`{ id: a, effect: allow, when: { params.to: { every: { item: { ${operator} } } } } }`);
    const to = Array.from({ length: 10_000 }, () => text);
    expect(outcome(judgeParams(set, { to }))).toBe('permit');
    expect(outcome(judgeParams(set, { to: [`a${text}`, ...to.slice(1)] }))).toBe('denied_policy');
  },
);

describe('domain_in', () => {
  const HOSTS = '{ domain_in: [example.com, "*.example.org", "**.example.net", münchen.example] }';
  test.each([
    ['example.com', 'true'],
    ['EXAMPLE.com', 'true'],
    ['a.example.com', 'false'],
    ['example.com.evil.org', 'false'],
    ['a.example.org', 'true'],
    ['example.org', 'false'],
    ['b.a.example.org', 'false'],
    ['a.example.net', 'true'],
    ['b.a.example.net', 'true'],
    ['example.net', 'false'],
    ['xn--mnchen-3ya.example', 'true'],
    ['münchen.example', 'unknown'],
    ['user@example.com', 'unknown'],
    ['example.com:443', 'unknown'],
    ['https://example.com', 'unknown'],
    ['example.com/', 'unknown'],
    ['example.com.', 'unknown'],
    ['.example.com', 'unknown'],
    ['exa%6dple.com', 'unknown'],
    ['example.com\\evil.com', 'unknown'],
    ['10.0.0.1', 'unknown'],
    ['0x7f.1', 'unknown'],
    ['localhost', 'unknown'],
    ['exаmple.com', 'unknown'],
    [`${'a.'.repeat(130)}com`, 'unknown'],
    [`${'a.'.repeat(120)}example.net`, 'true'],
    [`${'a.'.repeat(121)}example.net`, 'true'],
    [`${'a.'.repeat(122)}example.net`, 'unknown'],
    ['a.example.1', 'unknown'],
  ])('%s: %s', (text, expected) => expect(truth(HOSTS, text)).toBe(expected));
});

test('patterns that mean nothing are faults at their place', () => {
  const faults = (tests: string) =>
    faultsOf(`${HEAD}rules:\n  - { id: r, effect: deny, when: { params.to: ${tests} } }\n`);
  expect(faults('{ email_in: "@example.com" }')).toEqual([
    "5:59 bad_right_side 'email_in' has a pattern that cannot be used: '@example.com' is no mail address; write *@example.com or ada@example.com",
  ]);
  expect(faults('{ domain_in: "*example.com" }')).toEqual([
    "5:60 bad_right_side 'domain_in' has a pattern that cannot be used: '*example.com' is no domain; write example.com, *.example.com (one label more) or **.example.com",
  ]);
  for (const pattern of ['example.com', '*@*', 'a*@example.com', '"a b"@example.com', '*@com', '*@a.*.com'])
    expect(faults(`{ email_in: '${pattern}' }`).join(), pattern).toContain('bad_right_side');
  expect(faults('{ domain_in: { fact: agent.team } }').join()).toContain('takes no fact on the right');
  expect(faults('{ domain_in: [] }').join()).toContain('bad_right_side');
});

test('the shipped mail rule allows one address of ours, and nothing beside it', async () => {
  const { set } = compileAll(
    [await readFile('policies/platform.yaml', 'utf8')],
    [tool('deploy.start'), MAIL],
    new Map(),
    new Map([['deploy-slot', 1]]),
  );
  const mail = (to: string) => outcome(judge(set, { tool: MAIL, params: { to } }));
  expect([mail('x@example.com'), mail('x@EXAMPLE.org')]).toEqual(['permit', 'permit']);
  for (const to of [
    'x@evil.com, y@example.com',
    'x@evil.com',
    '"x@evil.com" <y@example.com>',
    'x@evil.com\n@example.com',
  ])
    expect(mail(to), to).toBe('denied_policy');
});
