import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isJsonObject, type JsonObject } from '../../src/json/value.ts';
import { statusShown } from '../../src/effects/model/answer.ts';
import { optionalTimeToWire } from '../../src/effects/wire/time.ts';
import { createBundleDigest, sealLine } from '../../src/receipts/bundle.ts';
import { commit } from '../../src/effects/model/commit.ts';
import { packBundle, policyVersion } from '../../src/policy/bundle.ts';
import { versionOfShown } from '../../src/policy/policy-texts.ts';
import type { ReceiptSigner } from '../../src/receipts/sign.ts';
import { verifyReceipt } from '../../src/receipts/verify.ts';
import { verifyBundle } from '../../src/receipts/verify-bundle.ts';
import { type Bench, keyBench, receiptInput } from './facts.ts';

const EDITS = 1_000;

let bench: Bench;
let signer: ReceiptSigner;
let trust: JsonObject;
beforeAll(async () => {
  bench = await keyBench();
  signer = await bench.open();
  trust = signer.jwks();
});
afterAll(() => bench.close());

/** The policies that the receipts name. */
const FILES = [
  {
    file: '/etc/svc/refunds.yaml',
    text: 'kind: PolicySet\nname: refunds\nlists: { trusted: { file: trusted.txt } }\nrules: []\n',
    lists: [{ name: 'trusted.txt', text: 'ada\ngrace\n' }],
  },
];
const VERSION = versionOfShown(FILES) ?? '';

/** Lines of a bundle with two receipts, before its seal. */
function lines(filter: JsonObject = { since: '2026-07-01T00:00:00.000Z' }): string[] {
  let seq = 40;
  const event = (kind: string, effectId: string | null, data: JsonObject = {}, by = 'owner'): string => {
    seq += 1;
    const actor = { type: 'gateway', id: by };
    return JSON.stringify({ type: 'event', seq, id: `evt_1_${seq}`, kind, effect_id: effectId, actor, data });
  };
  const call = (name: string): string[] => {
    const base = receiptInput();
    const { attempt, action, actor, trace } = base.effect;
    const rules = trace.matched.map(({ rule }) => rule);
    const told = { attempt, tool: action.tool, policy_version: VERSION, rules };
    const admitted = event('effect.admitted', `eff_${name}`, told, actor.agentId);
    const { jws } = signer.issue({
      ...base,
      id: `rcp_${name}`,
      effect: { ...base.effect, id: `eff_${name}`, holds: [], trace: { ...trace, policyVersion: VERSION } },
      ledger: { epoch: 1, seq },
    });
    return [
      admitted,
      event('execution.succeeded', `eff_${name}`, { attempt, status: statusShown(base.evidence.answered) }),
      event('receipt.issued', `eff_${name}`, { receipt_id: `rcp_${name}` }),
      JSON.stringify({ type: 'receipt', effect_id: `eff_${name}`, receipt_id: `rcp_${name}`, jws }),
    ];
  };
  const head = JSON.stringify({ type: 'bundle', v: 1, ws: 'demo', filter, keys: trust['keys'] });
  const effects = ['one', 'two'].map((name) => {
    const { action, actor, trace, attempt } = receiptInput().effect;
    const { evidence } = receiptInput();
    return JSON.stringify({
      type: 'effect',
      effect_id: `eff_${name}`,
      receipt_id: `rcp_${name}`,
      workspace: 'demo',
      state: 'committed',
      decision: 'committed',
      attempt,
      settled_by: { by: 'owner' },
      action_type: action.type,
      tool: action.tool,
      agent_id: actor.agentId,
      key_id: actor.keyId,
      user: actor.user,
      via: actor.via,
      policy: { version: VERSION, matched: trace.matched.map(({ rule }) => rule) },
      upstream: action.upstream,
      evidence: {
        status: statusShown(evidence.answered),
        started_at: optionalTimeToWire(evidence.startedAt),
        ended_at: optionalTimeToWire(evidence.endedAt),
      },
    });
  });
  const policy = JSON.stringify({ type: 'policy', version: VERSION, files: FILES });
  return [
    head,
    event('key.created', null),
    ...call('one'),
    event('pause.set', null),
    ...call('two'),
    ...effects,
    policy,
  ];
}

/** Sealed as a gateway seals it. */
function sealed(
  of: readonly string[],
  change: Partial<Parameters<ReceiptSigner['sealExport']>[0]> = {},
  by = signer,
): string {
  const text = of.map((line) => `${line}\n`).join('');
  const count = (type: string): number => of.filter((line) => line.startsWith(`{"type":"${type}"`)).length;
  const counts = {
    events: count('event'),
    effects: count('effect'),
    receipts: count('receipt'),
    policies: count('policy'),
  };
  const digest = createBundleDigest();
  digest.update(Buffer.from(text));
  return text + sealLine(by.sealExport({ workspace: 'demo', at: 0, ...digest.end(), ...counts, ...change }));
}

async function* cut(bytes: Buffer): AsyncGenerator<Buffer> {
  let begin = 0;
  for (let end = bytes.indexOf(10); end >= 0; end = bytes.indexOf(10, begin)) {
    yield bytes.subarray(begin, end + 1);
    begin = end + 1;
  }
  if (begin < bytes.length) yield bytes.subarray(begin);
}

const check = (bundle: string | Buffer, by: JsonObject | null = trust) =>
  verifyBundle(cut(Buffer.from(bundle)), by, policyVersion);
const failing = async (bundle: string) =>
  (await check(bundle)).checks.filter(({ status }) => status === 'failed').map(({ name }) => name);

it('a bundle as it was sealed is valid, and says by which key', async () => {
  const { verdict, keyId, payload, checks } = await check(sealed(lines()));
  expect(checks.filter(({ status }) => status !== 'passed')).toEqual([]);
  expect([verdict, keyId]).toEqual(['VALID', signer.kid()]);
  expect(payload).toMatchObject({ events: 8, receipts: 2, effects: 2, ws: 'demo' });
});

it('says of what it is, until when, and what it holds', async () => {
  const { checks } = await check(sealed(lines({ agent_id: 'bot', until: '2026-07-02T00:00:00Z' })));
  expect(checks[0]?.detail).toBe(
    'A bundle of workspace "demo": "agent_id" "bot", from the beginning until "2026-07-02T00:00:00Z", sealed "1970-01-01T00:00:00.000Z". 8 events, 2 effects, 2 receipts, 1 versions of policies.',
  );
});

it('one that holds nothing says so, and that nothing was checked', async () => {
  const { checks } = await check(sealed(lines().slice(0, 1)));
  expect(checks[0]?.detail).toContain('IT HOLDS NOTHING');
  expect(checks.find(({ name }) => name === 'chain')?.status).toBe('skipped');
});

it.each([
  'receipt_id',
  'workspace',
  'decision',
  'attempt',
  'settled_by.by',
  'action_type',
  'tool',
  'agent_id',
  'key_id',
  'user',
  'via',
  'policy.version',
  'policy.matched',
  'upstream',
  'evidence.status',
  'evidence.started_at',
  'evidence.ended_at',
])('an effect whose %s was edited and sealed again by the holder of the key differs from its receipt', async (path) => {
  const [name = '', inner] = path.split('.');
  const edited = lines().map((line) => {
    const value: JsonObject = JSON.parse(line);
    if (value['type'] !== 'effect') return line;
    const of = isJsonObject(value[name]) ? value[name] : {};
    return JSON.stringify({ ...value, [name]: inner === undefined ? 'other' : { ...of, [inner]: 'other' } });
  });
  const { verdict, checks } = await check(sealed(edited));
  expect(verdict).toBe('INVALID');
  expect(checks.find(({ name: of }) => of === 'chain')?.detail).toMatch(
    new RegExp(`effect "eff_one" differs from its receipt: ([\\w., ]+, )?${path.replace('_by.by', '_by')}(,|;|$)`),
  );
});

it('a receipt of another place in the ledger is told, also where the seal fits', async () => {
  const whole = lines();
  const base = receiptInput();
  const effect = { ...base.effect, id: 'eff_one', holds: [], trace: { ...base.effect.trace, policyVersion: VERSION } };
  const { jws } = signer.issue({ ...base, id: 'rcp_one', effect, ledger: { epoch: 1, seq: 999 } });
  const moved = whole.map((line) => {
    const value: JsonObject = JSON.parse(line);
    return value['type'] === 'receipt' && value['effect_id'] === 'eff_one' ? JSON.stringify({ ...value, jws }) : line;
  });
  const { verdict, checks } = await check(sealed(moved));
  expect(verdict).toBe('INVALID');
  expect(JSON.stringify(checks)).toContain('another place in the ledger');
});

it(`edited in ${EDITS} ways it is refused each time: bits, and lines that are gone, doubled, moved, altered`, async () => {
  const whole = Buffer.from(sealed(lines()));
  const all: Buffer[] = [];
  for await (const line of cut(whole)) all.push(line);
  const at = fc.nat(all.length - 1);
  const put = (list: readonly Buffer[]): Buffer => Buffer.concat(list);
  const edit = fc.oneof(
    fc.tuple(fc.nat(whole.length - 1), fc.nat(7)).map(([place, bit]) => {
      const altered = Buffer.from(whole);
      altered.writeUInt8(altered.readUInt8(place) ^ (1 << bit), place);
      return altered;
    }),
    at.map((place) => put(all.toSpliced(place, 1))),
    fc.tuple(at, at).map(([from, to]) => put(all.toSpliced(to, 0, all[from] ?? Buffer.alloc(0)))),
    fc
      .tuple(at, at)
      .filter(([one, other]) => one !== other)
      .map(([one, other]) =>
        put(all.with(one, all[other] ?? Buffer.alloc(0)).with(other, all[one] ?? Buffer.alloc(0))),
      ),
    fc.nat(whole.length - 1).map((length) => whole.subarray(0, length)),
    fc.tuple(fc.nat(whole.length), fc.string({ minLength: 1 })).map(([place, text]) => {
      return put([whole.subarray(0, place), Buffer.from(text), whole.subarray(place)]);
    }),
  );
  const verdicts = new Set<string>();
  await fc.assert(
    fc.asyncProperty(
      edit.filter((altered) => !altered.equals(whole)),
      async (altered) => {
        // Where the head is no longer one, `svc verify` takes it for a receipt and finds none.
        const { verdict } = await check(altered);
        verdicts.add(verdict);
        expect(verdict).not.toBe('VALID');
      },
    ),
    { numRuns: EDITS },
  );
  // A seal that names another key could be somebody else's: few edits make one.
  expect(['INVALID', 'UNDECIDABLE']).toEqual(expect.arrayContaining([...verdicts]));
});

describe('a bundle that was altered names the first line that is not as it was sealed', () => {
  const place = async (bundle: string): Promise<string> =>
    /is (line \d+(?: or later)?|one of the lines \d+ to \d+)\.$/.exec(
      (await check(bundle)).checks.find(({ name }) => name === 'seal')?.detail ?? '',
    )?.[1] ?? '';
  const apart = (of: readonly string[]) => `${of.join('\n')}\n`;

  it('whichever it is, edited, left out, doubled, or in the place of another', async () => {
    const whole = sealed(lines()).trimEnd().split('\n');
    for (const [index, line] of whole.slice(0, -1).entries()) {
      const named = [`line ${index + 1}`];
      expect([await place(apart(whole.with(index, `${line} `)))], line).toEqual(named);
      if (index < whole.length - 2) {
        expect([await place(apart(whole.toSpliced(index, 1)))], line).toEqual(named);
        const next = whole[index + 1] ?? '';
        expect([await place(apart(whole.with(index, next).with(index + 1, line)))], line).toEqual(named);
      }
    }
    expect(await place(apart(whole.toSpliced(-2, 1)))).toBe(`line ${whole.length - 1} or later`);
    expect(await place(apart(whole.toSpliced(-1, 0, whole.at(-2) ?? '')))).toBe(`line ${whole.length} or later`);
  });

  it('of many lines, among few', async () => {
    const many = 5_000;
    const keys = Array.from({ length: many }, (_, at) =>
      JSON.stringify({ type: 'event', seq: 100 + at, id: `evt_1_${100 + at}`, kind: 'key.created', effect_id: null }),
    );
    const head = JSON.stringify({ type: 'bundle', v: 1, ws: 'demo', filter: { since: 'x' }, keys: trust['keys'] });
    const bundle = sealed([head, ...keys]);
    expect((await check(bundle)).verdict).toBe('VALID');
    for (const at of [3, 2_500, 4_999]) {
      const altered = bundle.trimEnd().split('\n');
      const named = await place(apart(altered.with(at - 1, `${altered[at - 1]} `)));
      const [from = 0, to = 0] = [...named.matchAll(/\d+/g)].map(Number);
      expect([from <= at, at <= to, to - from < 8], named).toEqual([true, true, true]);
    }
    // With half of the lines the marks stand closer than those of the seal.
    const seal = bundle.trimEnd().split('\n').at(-1) ?? '';
    expect(await place(apart([head, ...keys.slice(0, 700), seal]))).toMatch(/^line 69\d or later$/);
  });

  it('but for one whose seal has no marks', async () => {
    const bundle = sealed(lines(), { marks: '', every: 0 });
    expect((await check(bundle)).verdict).toBe('VALID');
    expect(await failing(bundle.replace('pause.set', 'pause.lif'))).toEqual(['seal']);
  });
});

describe('what has no receipt is held against its events, where a bundle has all of a time', () => {
  const SALT = Buffer.alloc(16, 7).toString('base64url');
  let seq: number;
  const event = (kind: string, effectId: string, data: JsonObject, more: JsonObject = {}): string => {
    seq += 1;
    const actor = { type: 'agent', id: 'bot' };
    return JSON.stringify({ type: 'event', seq, id: `evt_1_${seq}`, kind, effect_id: effectId, actor, data, ...more });
  };
  const effect = (id: string, state: string): string =>
    JSON.stringify({ type: 'effect', effect_id: id, workspace: 'demo', state });

  function story(
    filter: JsonObject = { since: '2026-07-01T00:00:00.000Z', until: '2026-08-01T00:00:00.000Z' },
  ): string[] {
    seq = 0;
    return [
      JSON.stringify({ type: 'bundle', v: 1, ws: 'demo', filter, keys: trust['keys'] }),
      event('effect.denied', 'eff_denied', {}),
      event('approval.requested', 'eff_rejected', {}),
      event(
        'approval.rejected',
        'eff_rejected',
        { user: 'maria', comment: commit(SALT, 'too much') },
        { words: { comment: 'too much', comment_salt: SALT } },
      ),
      event('effect.admitted', 'eff_unknown', { attempt: 1 }),
      event('execution.lost', 'eff_unknown', { attempt: 1 }),
      event('effect.admitted', 'eff_gone', { attempt: 1 }),
      event('execution.succeeded', 'eff_gone', { attempt: 1 }),
      event('receipt.issued', 'eff_gone', { receipt_id: 'rcp_gone' }),
      JSON.stringify({ type: 'receipt', effect_id: 'eff_gone', receipt_id: 'rcp_gone', jws: null }),
      effect('eff_denied', 'denied'),
      effect('eff_rejected', 'rejected'),
      effect('eff_unknown', 'unknown'),
    ];
  }

  it('is as it was, or what may have become of it after the time', async () => {
    const { verdict, checks } = await check(sealed(story()));
    expect(verdict).toBe('VALID');
    expect(checks.find(({ name }) => name === 'words')).toMatchObject({
      status: 'passed',
      detail: 'The words of rejections are those that their events commit to: 1.',
    });
    expect((await check(sealed(story().with(-1, effect('eff_unknown', 'committed'))))).verdict).toBe('VALID');
  });

  it.each<[string, (of: string[]) => string[], string]>([
    ['a state', (of) => edited(of, 'eff_denied', { state: 'committed' }), 'its events say denied'],
    ['a rejection', (of) => edited(of, 'eff_rejected', { state: 'committed' }), 'its events say rejected'],
    ['a workspace', (of) => edited(of, 'eff_denied', { workspace: 'other' }), 'of another workspace'],
    ['a receipt left out', (of) => [...of, effect('eff_gone', 'committed')], 'its receipt is not'],
    ['a committed one', (of) => [...of, effect('eff_gone', 'unknown')], 'events say committed'],
    ['an id', (of) => edited(of, 'eff_denied', { effect_id: 7 }), 'an effect without its id'],
    ['words', (of) => of.map((line) => line.replace('"too much"', '"too little"')), 'other words'],
    ['a salt', (of) => of.map((line) => line.replace(SALT, SALT.replace('B', 'C'))), 'other words'],
    ['a commitment', (of) => of.map((line) => line.replace('"sc1:', '"sc1:A')), 'other words'],
    ['words of no rejection', (of) => of.map((line) => line.replace('.rejected"', '.granted"')), 'other words'],
  ])('%s that was edited, and sealed again by the holder of the key, is told', async (_, edit, told) => {
    const { verdict, checks } = await check(sealed(edit(story())));
    expect(verdict).toBe('INVALID');
    expect(checks.find(({ name }) => name === 'chain')?.detail).toContain(told);
  });

  it('in a bundle of one agent some events may be missing, and words may be kept no more', async () => {
    const some = story({ until: '2026-08-01T00:00:00.000Z', agent_id: 'bot' });
    expect((await check(sealed(edited(some, 'eff_denied', { state: 'failed' })))).verdict).toBe('VALID');
    const bare = story().map((line) => line.replace(/,"words":\{[^}]*\}/, ''));
    const { verdict, checks } = await check(sealed(bare));
    expect([verdict, checks.find(({ name }) => name === 'words')]).toEqual(['VALID', undefined]);
  });

  function edited(of: readonly string[], id: string, edit: JsonObject): string[] {
    return of.map((line) => {
      const value: JsonObject = JSON.parse(line);
      const isIt = value['type'] === 'effect' && value['effect_id'] === id;
      return isIt ? JSON.stringify({ ...value, ...edit }) : line;
    });
  }
});

describe('what a seal does not make good', () => {
  const without = (pattern: RegExp) => lines().filter((line) => !pattern.test(line));

  it.each<[string, () => string[]]>([
    ['an event that is missing', () => without(/pause\.set/)],
    [
      'an event that is missing, where those after it are said to be of a later epoch',
      () => {
        const gone = lines().findIndex((line) => line.includes('pause.set'));
        return lines().flatMap((line, at) =>
          at === gone ? [] : [at > gone ? line.replace('"evt_1_', '"evt_2_') : line],
        );
      },
    ],
    ['a receipt that is missing', () => without(/"type":"receipt","effect_id":"eff_one"/)],
    ['the last receipt that is missing', () => without(/"type":"(receipt","effect_id":"eff_two|effect"|policy")/)],
    ['a receipt of another effect', () => lines().map((line) => line.replace('rcp_one","jws', 'rcp_two","jws'))],
    [
      'a receipt under the id of another',
      () => lines().map((line) => line.replace('"receipt_id":"rcp_one"', '"receipt_id":"rcp_six"')),
    ],
    ['a receipt that no event names', () => [...lines(), lines().find((line) => line.includes('"jws"')) ?? '']],
    [
      'an admission in another place',
      () => lines().map((line) => line.replace('"effect_id":"eff_one","actor"', '"effect_id":"eff_x","actor"')),
    ],
    ['a receipt of another workspace', () => lines().map((line) => line.replace('"ws":"demo"', '"ws":"other"'))],
    ['a line of no kind', () => [...lines(), '{"type":"note"}']],
    ['a line that is no JSON', () => [...lines(), '{"type":"event",}']],
    ['no head', () => lines().slice(1)],
    ['a head of a later version', () => lines().map((line) => line.replace('"bundle","v":1', '"bundle","v":2'))],
    ['a head of another kind', () => lines().map((line) => line.replace('"type":"bundle"', '"type":"archive"'))],
    ['an event whose id is of another place', () => lines().map((line) => line.replace('"evt_1_41"', '"evt_1_42"'))],
    ['an event with an id of no form', () => lines().map((line) => line.replace('"evt_1_41"', '"evt_1_41x"'))],
    ['an event whose id is no text', () => lines().map((line) => line.replace('"evt_1_41"', '41'))],
  ])('%s', async (_, altered) => {
    expect((await check(sealed(altered()))).verdict).toBe('INVALID');
  });

  it('faults are told with their lines, twenty of them, and how many more there are', async () => {
    const detail = async (notes: number): Promise<string> => {
      const bundle = sealed([...lines(), ...Array.from({ length: notes }, () => '{"type":"note"}')]);
      return (await check(bundle)).checks.find(({ name }) => name === 'chain')?.detail ?? '';
    };
    expect(await detail(1)).toBe(`line ${lines().length + 1}: a line of no kind that a bundle has`);
    expect((await detail(20)).split('; ')).toHaveLength(20);
    expect(await detail(20)).not.toContain('more');
    expect((await detail(23)).split('; ').slice(19)).toEqual([expect.stringMatching(/^line /), 'and 3 more']);
  });

  it('counts that do not fit, and another workspace', async () => {
    expect(await failing(sealed(lines(), { events: 9 }))).toEqual(['seal']);
    expect(await failing(sealed(lines(), { workspace: 'other' }))).toEqual(['seal']);
  });

  it('receipts of another issuer', async () => {
    const other = await bench.open('https://other.example');
    expect(other.kid()).toBe(signer.kid());
    expect(await failing(sealed(lines(), {}, other))).toEqual(['seal']);
  });

  it.each([
    ['issuer', () => bench.open('https://other.example'), 'demo'],
    ['workspace', async () => signer, 'elsewhere'],
    ['effect', async () => signer, 'demo', 'eff_six'],
  ])('one receipt of another %s among the others', async (what, open, workspace, id = 'eff_two') => {
    const by = await open();
    const whole = lines().map((line): JsonObject => JSON.parse(line));
    const seq = Number(
      whole.find((one) => one['kind'] === 'effect.admitted' && one['effect_id'] === 'eff_two')?.['seq'],
    );
    const base = receiptInput();
    const trace = { ...base.effect.trace, policyVersion: VERSION };
    const effect = { ...base.effect, workspace, id, holds: [], trace };
    const { jws } = by.issue({ ...base, id: 'rcp_two', effect, ledger: { epoch: 1, seq } });
    const mixed = whole.map((one) =>
      one['effect_id'] === 'eff_two' && one['type'] === 'receipt' ? { ...one, jws } : one,
    );
    const { checks } = await check(sealed(mixed.map((one) => JSON.stringify(one))));
    const failed = checks.filter(({ status }) => status === 'failed');
    expect(failed.map(({ name }) => name)).toEqual(['chain']);
    expect(failed[0]?.detail).toContain(`a receipt of another ${what}`);
  });

  it('the beginning of the ledger that is missing, where no time was asked for', async () => {
    const until = { until: '2026-07-01T00:00:00.000Z' };
    expect(await failing(sealed(lines(until)))).toEqual(['chain']);
    expect((await check(sealed(lines({ ...until, agent_id: 'bot' })))).verdict).toBe('VALID');
    const first = JSON.stringify({ type: 'event', seq: 1, id: 'evt_1_1', kind: 'key.created', effect_id: null });
    const [head = ''] = lines(until);
    expect((await check(sealed([head, first]))).verdict).toBe('VALID');
  });

  it('in a bundle of one agent places are left out, and none comes twice', async () => {
    const filter = { agent_id: 'bot', until: '2026-07-01T00:00:00.000Z' };
    const some = lines(filter).filter((line) => !line.includes('pause.set'));
    expect((await check(sealed(some))).verdict).toBe('VALID');
    expect(await failing(sealed([...some.slice(0, 2), ...some.slice(1)]))).toEqual(['chain']);
  });

  it('after a loss that was accepted the ledger goes on in the next epoch', async () => {
    const next = lines().map((line) => line.replace(/"seq":4[789](,"id":"evt_)1/, '"seq":9$12'));
    expect(await failing(sealed(next))).toContain('chain');
    const event = JSON.stringify({ type: 'event', seq: 3, id: 'evt_2_3', kind: 'key.created', effect_id: null });
    expect((await check(sealed([...lines(), event]))).verdict).toBe('VALID');
    const back = JSON.stringify({ type: 'event', seq: 4, id: 'evt_1_4', kind: 'key.created', effect_id: null });
    expect(await failing(sealed([...lines(), event, back]))).toEqual(['chain']);
  });
});

describe('texts of policies', () => {
  const withFiles = (files: JsonObject[]): string[] => [
    ...lines().slice(0, -1),
    JSON.stringify({ type: 'policy', version: VERSION, files }),
  ];
  const [FILE = { file: '', text: '', lists: [] }] = FILES;

  it('are found to be those of the version that receipts name; comments and layout make no difference', async () => {
    const laidOut = { ...FILE, text: `# of June\n${FILE.text.replace('rules: []', 'rules:\n  []')}` };
    for (const files of [FILES, [laidOut]]) {
      const { verdict, checks } = await check(sealed(withFiles(files)));
      expect([verdict, checks.find(({ name }) => name === 'policies')?.status]).toEqual(['VALID', 'passed']);
    }
  });

  it.each<[string, JsonObject[]]>([
    ['a rule that was added', [{ ...FILE, text: FILE.text.replace('[]', '[{ id: all, effect: allow }]') }]],
    ['a list that is longer', [{ ...FILE, lists: [{ name: 'trusted.txt', text: 'ada\ngrace\neve\n' }] }]],
    ['a list that is missing', [{ ...FILE, lists: [] }]],
    ['a file that is missing', []],
    ['another file', [...FILES, { file: 'b.yaml', text: 'name: b\n', lists: [] }]],
    ['a text that is no policy set', [{ ...FILE, text: '[' }]],
    ['something of another form', [{ text: 1 }]],
  ])('are told from %s, sealed again by the holder of the key', async (_, files) => {
    const { verdict, checks } = await check(sealed(withFiles(files)));
    expect(verdict).toBe('INVALID');
    expect(JSON.stringify(checks)).toContain('policies that are not those of version');
  });

  it('that are too large for a line are in several, packed, in their order and whole', async () => {
    const list = Array.from({ length: 30_000 }, (_, at) => createHash('sha256').update(`${at}`).digest('hex'));
    const large = [{ ...FILE, lists: [{ name: 'trusted.txt', text: list.join('\n') }] }];
    const version = versionOfShown(large) ?? '';
    const texts = large.map(({ file, text }) => ({ file, text, lists: new Map([['trusted.txt', list.join('\n')]]) }));
    const packed = packBundle(texts);
    expect(packed.length).toBeGreaterThan(2);
    const parts = packed.map((text, index) => ({ part: index + 1, parts: packed.length, packed: text }));
    const bundle = (of: readonly object[], name = version) => [
      ...lines(),
      ...of.map((part) => JSON.stringify({ type: 'policy', version: name, ...part })),
    ];
    const outcome = async (of: readonly string[]) => {
      const { verdict, checks } = await check(sealed(of, { policies: 2 }));
      return [verdict, checks.find(({ name }) => name === 'policies')?.detail];
    };
    expect(await outcome(bundle(parts))).toEqual(['VALID', 'The texts of policies are those of their versions: 2.']);
    const [first = {}, second = {}] = parts;
    expect((await outcome(bundle(parts, VERSION)))[0]).toBe('INVALID');
    expect((await outcome(bundle(parts.slice(0, -1))))[1]).toContain('is missing');
    expect((await outcome(bundle([second, first, ...parts.slice(2)])))[0]).toBe('INVALID');
    expect((await outcome(bundle([first, { files: FILES }])))[0]).toBe('INVALID');
    const altered = parts.with(1, { part: 2, parts: packed.length, packed: (packed[1] ?? '').replace('A', 'B') });
    expect((await outcome(bundle(altered)))[0]).toBe('INVALID');
  });

  it('that are kept no more are named, and who put them in force is there', async () => {
    const gone = JSON.stringify({ type: 'policy', version: VERSION, in_force: [], files: null });
    const { verdict, checks } = await check(sealed([...lines().slice(0, -1), gone]));
    expect([verdict, checks.find(({ name }) => name === 'policies')?.status]).toEqual(['VALID', 'skipped']);
  });

  it('that are missing are named', async () => {
    const { verdict, checks } = await check(sealed(lines().slice(0, -1)));
    expect(verdict).toBe('VALID');
    const found = checks.find(({ name }) => name === 'policies');
    expect([found?.status, found?.detail.includes(VERSION)]).toEqual(['skipped', true]);
  });

  it('that only an effect without a receipt names are looked for as well', async () => {
    const policy = { version: 'sha256:of-a-denial', matched: [] };
    const denied = { type: 'effect', effect_id: 'eff_three', workspace: 'demo', state: 'denied', policy };
    const { verdict, checks } = await check(sealed([...lines(), JSON.stringify(denied)]));
    const found = checks.find(({ name }) => name === 'policies');
    expect([verdict, found?.status, found?.detail]).toEqual([
      'VALID',
      'skipped',
      expect.stringContaining('of-a-denial'),
    ]);
  });
});

describe('whose keys', () => {
  it('without trusted keys it fits together, and whose it is stays undecided', async () => {
    const { verdict, checks } = await check(sealed(lines()), null);
    expect(verdict).toBe('UNDECIDABLE');
    expect(checks.find(({ status }) => status === 'undecided')?.detail).toContain(signer.kid());
    expect((await check(sealed(lines()).replace('pause.set', 'pause.lif'), null)).verdict).toBe('INVALID');
  });

  it('sealed again by somebody else it is not valid by the keys of the gateway', async () => {
    const other = await keyBench();
    const thief = await other.open();
    const mine = signer;
    signer = thief;
    const forged = sealed(lines());
    signer = mine;
    await other.close();
    expect((await check(forged)).verdict).not.toBe('VALID');
    expect((await check(forged, null)).verdict).not.toBe('VALID');
  });

  it('says that the ends of lines were changed, as mail does', async () => {
    const checked = await check(sealed(lines()).replaceAll('\n', '\r\n'));
    expect(checked.verdict).toBe('INVALID');
    expect(JSON.stringify(checked.checks)).toContain('CRLF for LF');
  });

  it('a seal is no receipt, and a receipt no seal', async () => {
    const seal = signer.sealExport({
      workspace: 'demo',
      at: 0,
      sha256: 'x',
      marks: '',
      every: 1,
      events: 0,
      effects: 0,
      receipts: 0,
      policies: 0,
    });
    expect(verifyReceipt({ content: seal, trust, disclosure: null }).verdict).toBe('INVALID');
    const { jws } = signer.issue(receiptInput());
    const text = sealed(lines()).replace(/\{"type":"seal".*\n$/, sealLine(jws));
    expect((await check(text)).verdict).toBe('INVALID');
  });
});
