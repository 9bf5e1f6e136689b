import { constants, setPriority } from 'node:os';
import { describe, expect, test, vi } from 'vitest';
import { CommandFailure, type CliPorts, type FormatReport, type Restored } from '../../src/cli/ports.ts';
import { svcWith } from './run.ts';

/* What the commands for the store say of what was done, and with which exit code: what is behind them is given here. */

// The process of the tests keeps its priority.
vi.mock('node:os', async (original) => ({ ...(await original<typeof import('node:os')>()), setPriority: vi.fn() }));

const AT = Date.UTC(2026, 10, 25);
const CONFIG = ['--config', 'gateway.yaml'] as const;

describe('svc restore', () => {
  const SOUND: Restored = {
    madeAt: AT,
    replaced: null,
    hasLoss: false,
    transactions: 40,
    transactionsKnown: 40,
    carried: null,
    warning: null,
  };
  const restore = (of: Partial<Restored>, ...more: readonly string[]) =>
    svcWith({ restoreStore: async () => ({ ...SOUND, ...of }) }, 'restore', '/b', ...CONFIG, ...more);

  test('what is whole is 0, and nothing else has to be done than a start', async () => {
    expect(await restore({})).toEqual({
      code: 0,
      out: 'The backup of 2026-11-25T00:00:00.000Z is in place, in a new epoch; start the gateway now.',
      err: '',
    });
  });

  test('where calls may be missing it is 1, with the command that acknowledges it, also with --json', async () => {
    for (const more of [[], ['--json']]) {
      const { code, err } = await restore({ hasLoss: true, transactionsKnown: 47 }, ...more);
      expect([code, err]).toEqual([1, expect.stringContaining('svc store accept-loss --config gateway.yaml')]);
    }
  });

  test('it says how many transactions are known to be missing, where the store is gone', async () => {
    expect((await restore({ hasLoss: true, transactionsKnown: 47 })).out).toMatch(
      /^At least 7 transactions since the backup are lost\. .*run again/m,
    );
    // A store that was never known here has no figure to be compared with.
    expect((await restore({ transactionsKnown: 0 })).out).not.toContain('lost');
  });

  test('a store that could not be read to its end begins it with a warning; how many calls were brought over is said', async () => {
    const carried = { unknown: 3, receipts: 0, fault: null };
    expect((await restore({ carried, replaced: '/s/replaced-1' })).out.split('\n').slice(1)).toEqual([
      'The store that was there is in /s/replaced-1.',
      expect.stringMatching(/^3 calls had run since: their outcome is unknown now .* and they are not run again\.$/),
    ]);
    expect((await restore({ carried, transactionsKnown: 47 })).out).not.toContain('lost');
    const { out } = await restore({ carried: { ...carried, fault: 'malformed' }, hasLoss: true });
    expect(out).toMatch(/^WARNING: .* \(malformed\)\. .*SENT AGAIN/);
  });

  test('an interrupted one that is finished says where it stands what was brought over', async () => {
    expect((await restore({ transactionsKnown: null })).out).toContain('svc ledger --installation');
  });
});

describe('svc backup', () => {
  test.each([
    ['it is written', null, ''],
    [
      'it is written, and could not be noted',
      'EACCES',
      'The backup is whole. That it was made could not be noted beside the store: EACCES.',
    ],
  ])('%s: 0', async (_, warning, err) => {
    const backUpStore = async () => ({ madeAt: AT, transactions: 40, warning });
    expect(await svcWith({ backUpStore }, 'backup', '/b', ...CONFIG)).toEqual({
      code: 0,
      err,
      out: expect.stringContaining('The master secret and the signing keys are not in it'),
    });
  });

  test('takes the processors when calls leave them: it is begun after its priority is a lower one', async () => {
    vi.mocked(setPriority).mockClear();
    const backUpStore = async () => {
      expect(vi.mocked(setPriority).mock.calls).toEqual([[constants.priority.PRIORITY_BELOW_NORMAL]]);
      return { madeAt: AT, transactions: 40, warning: null };
    };
    expect((await svcWith({ backUpStore }, 'backup', '/b', ...CONFIG)).code).toBe(0);
  });
});

test.each<[FormatReport['start'], readonly string[], number]>([
  ['opens', ['--check'], 0],
  ['makes', ['--check'], 0],
  ['none', ['--check'], 0],
  ['refuses', ['--check'], 1],
  ['opens', [], 0],
  ['refuses', [], 1],
  ['none', [], 1],
])('svc migrate of a store that a start %s, %j: %s', async (start, flags, code) => {
  const report: FormatReport = { store: 'embedded', format: 2, current: 2, start, records: null, explanation: ['x'] };
  expect((await svcWith({ checkFormat: async () => report }, 'migrate', ...flags, ...CONFIG)).code).toBe(code);
  const told = await svcWith({ checkFormat: async () => report }, 'migrate', ...flags, '--json', ...CONFIG);
  expect([told.code, JSON.parse(told.out)]).toEqual([code, report]);
});

test('svc backup and svc restore --json: the time as the API writes it, with what was brought over', async () => {
  const backUpStore = async () => ({ madeAt: AT, transactions: 40, warning: null });
  const made = await svcWith({ backUpStore }, 'backup', '/b', '--json', ...CONFIG);
  expect(JSON.parse(made.out)).toEqual({ folder: '/b', made_at: '2026-11-25T00:00:00.000Z', transactions: 40 });
  const asked: unknown[] = [];
  const carried = { unknown: 0, receipts: 2, fault: null };
  const restored = { madeAt: AT, replaced: null, hasLoss: false, transactions: 40, transactionsKnown: 47, carried };
  const restoreStore: CliPorts['restoreStore'] = async (of, folder, isReplaced) => {
    asked.push([of, folder, isReplaced]);
    return { ...restored, warning: 'It could not be noted.' };
  };
  const restore = (...more: readonly string[]) => svcWith({ restoreStore }, 'restore', '/b', ...CONFIG, ...more);
  expect(JSON.parse((await restore('--json')).out)).toEqual({
    made_at: '2026-11-25T00:00:00.000Z',
    replaced: null,
    has_loss: false,
    transactions: 40,
    transactions_known: 47,
    carried,
    warning: 'It could not be noted.',
  });
  // That none had run is said as well.
  expect((await restore('--replace')).out.split('\n').slice(1)).toEqual([
    expect.stringMatching(/^0 calls had run since/),
    'It could not be noted.',
  ]);
  const of = { configFile: 'gateway.yaml', environment: {} };
  expect(asked).toEqual([
    [of, '/b', false],
    [of, '/b', true],
  ]);
});

test('svc migrate says how many records of each kind there are', async () => {
  const report: FormatReport = {
    store: 'embedded',
    format: 2,
    current: 2,
    start: 'opens',
    records: { effects: 12, keys: 3 },
    explanation: ['The store has the format 2.'],
  };
  const { out } = await svcWith({ checkFormat: async () => report }, 'migrate', '--check', ...CONFIG);
  expect(out).toMatch(/^The store has the format 2\.\nrecords +count\neffects +12\nkeys +3$/);
});

test('svc fsck: a difference is 1, with where it is and what each side says; none is 0', async () => {
  const one = { workspace: 'demo', what: 'spent', where: 'refunds/day', ledger: '50', store: '40' } as const;
  const fsck = (found: Awaited<ReturnType<CliPorts['checkStore']>>, ...more: readonly string[]) =>
    svcWith({ checkStore: async () => found }, 'fsck', ...CONFIG, ...more);
  expect(await fsck([])).toEqual({ code: 0, out: 'The store is as its ledger says.', err: '' });
  const { code, out } = await fsck([one]);
  expect([code, out]).toEqual([1, expect.stringMatching(/\ndemo +spent +refunds\/day +50 +40$/)]);
  const told = await fsck([one], '--json');
  expect([told.code, JSON.parse(told.out)]).toEqual([1, { differences: [one] }]);
});

test('svc store accept-loss names the gateways whose journals writes wait for, and how one is declared lost', async () => {
  const accept = (awaited: readonly string[]) =>
    svcWith({ acceptLoss: async () => awaited }, 'store', 'accept-loss', ...CONFIG);
  expect((await accept([])).out).not.toContain('wait');
  expect((await accept(['gw-2'])).out).toContain('Writes wait for the journal of gw-2: ');
  expect((await accept(['gw-2', 'gw-3'])).out).toMatch(
    /^Writes wait for the journal of gw-2, gw-3: .*svc store recover --lost\.$/m,
  );
});

test('svc store accept-time says from when the store goes on, and when it was there before', async () => {
  const acceptClock = async () => ({ before: AT, time: AT + 86_400_000 });
  const { out } = await svcWith({ acceptClock }, 'store', 'accept-time', ...CONFIG);
  expect(out).toBe(
    'The store goes on from 2026-11-26T00:00:00.000Z; before, it was 2026-11-25T00:00:00.000Z there. A gateway that runs takes it up.',
  );
});

test('svc store recover: the gateway that is named is declared lost before it is said to be', async () => {
  const lost: unknown[] = [];
  const recoverLost: CliPorts['recoverLost'] = async (of, gateway) => void lost.push([of, gateway]);
  const recover = (...more: readonly string[]) =>
    svcWith({ recoverLost }, 'store', 'recover', '--lost', 'gw-2', ...CONFIG, ...more);
  expect(await recover()).toEqual({ code: 0, out: 'Writes no longer wait for gw-2.', err: '' });
  expect(lost).toEqual([[{ configFile: 'gateway.yaml', environment: {} }, 'gw-2']]);
  expect(JSON.parse((await recover('--json')).out)).toEqual({ lost: 'gw-2' });
  const refusing = async (): Promise<void> => {
    throw new CommandFailure('No gateway gw-2 is awaited.');
  };
  const words = ['store', 'recover', '--lost', 'gw-2', ...CONFIG];
  expect(await svcWith({ recoverLost: refusing }, ...words)).toEqual({
    code: 2,
    out: '',
    err: 'svc: No gateway gw-2 is awaited.',
  });
});

test('svc store accept-loss and accept-time --json: what was accepted', async () => {
  const acceptLoss = async (): Promise<readonly string[]> => ['gw-2'];
  const loss = await svcWith({ acceptLoss }, 'store', 'accept-loss', '--json', ...CONFIG);
  expect(JSON.parse(loss.out)).toEqual({ accepted: true, awaited: ['gw-2'] });
  const acceptClock = async () => ({ before: AT, time: AT + 86_400_000 });
  const time = await svcWith({ acceptClock }, 'store', 'accept-time', '--json', ...CONFIG);
  expect(JSON.parse(time.out)).toEqual({ before: '2026-11-25T00:00:00.000Z', accepted: '2026-11-26T00:00:00.000Z' });
});

describe('svc keys', () => {
  test('one that is not there is 1, and so is one that was ended before', async () => {
    const listKeys = async () => [];
    const revoke = await svcWith(
      { listKeys, revokeKey: async () => null },
      'keys',
      'revoke',
      'key_000000000000',
      ...CONFIG,
    );
    expect(revoke).toEqual({ code: 1, out: '', err: 'svc: There is no key key_000000000000.' });
    for (const [kind, why] of [
      ['absent', 'There is no key key_000000000000.'],
      ['ended', 'key_000000000000 is revoked or was rotated before.'],
    ] as const)
      expect(
        await svcWith({ rotateKey: async () => ({ kind }) }, 'keys', 'rotate', 'key_000000000000', ...CONFIG),
      ).toEqual({ code: 1, out: '', err: `svc: ${why}` });
  });

  test('the old one of a rotation stays good for an hour where nothing else is said', async () => {
    const overlaps: number[] = [];
    const rotateKey: CliPorts['rotateKey'] = async (_, id, overlapMs) => {
      overlaps.push(overlapMs);
      return { kind: 'rotated', record: { id: 'key_2', replaces: id }, key: 'svc_x' };
    };
    const rotate = (...more: readonly string[]) =>
      svcWith({ rotateKey }, 'keys', 'rotate', 'key_000000000000', ...CONFIG, ...more);
    // The key alone is on standard output.
    expect(await rotate()).toMatchObject({ code: 0, out: 'svc_x', err: expect.stringContaining('key_2') });
    await rotate('--overlap', '600');
    expect(overlaps).toEqual([3_600_000, 600_000]);
  });
});
