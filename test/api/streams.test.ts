import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it, onTestFinished, vi } from 'vitest';
import { addExportRoute, bundleLines, takenInTime } from '../../src/api/export.ts';
import type { ApiPorts } from '../../src/api/ports.ts';
import { createServer } from '../../src/api/server.ts';
import { EXPORTED } from '../../src/effects/model/export.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { type Rig, startRig } from './rig.ts';

const WS = '/v1/workspaces/demo';

let rig: Rig;
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.close());

it.each([
  // There it is an effect of that name, which is not there.
  [`${WS}/effects/stream`, 404],
  [`${WS}/export`, 405],
])('HEAD opens no stream that nobody reads: %s', async (path, status) => {
  expect((await rig.send('GET', path)).status).toBe(200);
  expect((await rig.send('HEAD', path)).status).toBe(status);
});

it.each([
  ['export', 'export'],
  ['the ledger', 'ledger'],
])('a key that was made for one agent reads no %s, whatever its profile reads', async (_what, path) => {
  const auditor = async (agentId: string | null): Promise<string> => {
    const made = rig.ports.keys.create({
      user: 'olga',
      madeBy: null,
      name: 'audit',
      kind: 'profile',
      profile: 'auditor',
      workspace: 'demo',
      agentId,
      scopes: null,
      allowedTools: null,
      expiresInMs: null,
    });
    if (made.kind === 'refused') throw new Error(JSON.stringify(made.faults));
    await rig.ports.store.putKey(made.record, { type: 'gateway', id: 'test' });
    return made.key;
  };
  expect((await rig.send('GET', `${WS}/${path}`, { key: await auditor(null) })).status).toBe(200);
  const refused = await rig.send('GET', `${WS}/${path}`, { key: await auditor('bot') });
  expect([refused.status, refused.json['code']]).toEqual([403, 'wrong_key_kind']);
});

it('an export that is over makes room for the next: only two at a time are made', async () => {
  for (let made = 0; made < 4; made += 1)
    expect((await rig.send('GET', `${WS}/export?format=bundle`)).status, `export ${made + 1}`).toBe(200);
});

it('an export is saved under a name that fits its form; a bundle says until when it is, and has all', async () => {
  const nameOf = async (query: string) => {
    const { status, headers } = await rig.send('GET', `${WS}/export?${query}`);
    return [status, headers['content-disposition']];
  };
  expect(await nameOf('format=csv')).toEqual([200, 'attachment; filename="demo.csv"']);
  for (const query of ['', 'format=jsonl', 'format=bundle'])
    expect(await nameOf(query)).toEqual([200, 'attachment; filename="demo.jsonl"']);
  const part = await rig.send('GET', `${WS}/export?format=bundle&what=events`);
  expect([part.status, part.json['errors']]).toMatchObject([400, [{ path: '/query/what' }]]);
  const before = rig.ports.store.now();
  const { text } = await rig.send('GET', `${WS}/export?format=bundle&tool=payments.refund`);
  const { filter }: { filter: { tool: string; until: string } } = JSON.parse(text.slice(0, text.indexOf('\n')));
  expect(Object.keys(filter).toSorted()).toEqual(['tool', 'until']);
  expect(Date.parse(filter.until)).toBeGreaterThanOrEqual(Math.floor(before));
  expect(Date.parse(filter.until)).toBeLessThanOrEqual(rig.ports.store.now());
});

it('a bundle names each time that policies in force in its time were put there, and by whom, also where their texts are gone', async () => {
  const put = (version: string, second: number, id: string) =>
    ({ version, at: second * 1_000, by: { type: 'user', id }, how: 'activate' }) as const;
  const history = [put('v1', 30, 'omar'), put('v2', 20, 'tom'), put('v1', 10, 'maria')];
  const { store } = rig.core;
  const ports = {
    ...rig.ports,
    store: {
      ...store,
      get installId() {
        return store.installId;
      },
      policyHistory: () => Promise.resolve(history),
    },
    policyTexts: () => Promise.resolve(null),
  };
  const policiesOf = async (filter: { readonly since?: number; readonly until?: number }) => {
    const request = {
      workspace: 'demo',
      publicUrl: '',
      what: EXPORTED,
      form: 'json',
      filter: { since: null, until: 40_000, ...filter },
    } as const;
    const tools = () => ({ tool: null, now: 0 });
    const found: unknown[] = [];
    for await (const line of bundleLines(ports, request, tools, {}, true)) {
      if (!line.startsWith('{"type":"policy"')) continue;
      const { version, in_force: inForce, files } = JSON.parse(line);
      expect(files).toBeNull();
      found.push([version, inForce.map(({ by }: { readonly by: { readonly id: string } }) => by.id)]);
    }
    return found;
  };
  expect(await policiesOf({})).toEqual([
    ['v1', ['omar', 'maria']],
    ['v2', ['tom']],
  ]);
  // What was put there before the time was in force when it began.
  expect(await policiesOf({ since: 25_000 })).toEqual([
    ['v1', ['omar']],
    ['v2', ['tom']],
  ]);
  expect(await policiesOf({ until: 15_000 })).toEqual([['v1', ['maria']]]);
});

it('an export breaks off when its key is revoked, and not while the store cannot say it', async () => {
  let made = 0;
  async function* lines(): AsyncGenerator<string> {
    for (;;) {
      made += 1;
      yield `${made}\n`;
      await delay(20);
    }
  }
  const answers = [Promise.reject(new Error('the store is away')), Promise.resolve(true), Promise.resolve(false)];
  for (const answer of answers) answer.catch(() => undefined);
  const stream = takenInTime(lines(), () => answers.shift() ?? Promise.resolve(false));
  const closed = new Promise((resolve) => stream.once('close', resolve));
  stream.resume();
  await closed;
  expect(answers).toEqual([]);
  const before = made;
  await delay(100);
  expect(made).toBeLessThanOrEqual(before + 1);
}, 20_000);

it('of one user one export is made at a time, and two of all', async () => {
  let end: () => void = () => undefined;
  const ended = new Promise<void>((resolve) => {
    end = resolve;
  });
  const store: ApiPorts['store'] = {
    ...rig.core.store,
    get installId() {
      return rig.core.store.installId;
    },
    async *exported() {
      const counts = { events: 1, effects: 0, receipts: 0 };
      yield { text: 'some\n', counts };
      await ended;
      yield { text: 'all\n', counts };
    },
  };
  const app = createServer({
    logger: createLogger({ level: 'silent', sink: process.stdout }),
    settings: () => rig.ports.settings(),
    bodyLimit: 1_000,
    connections: 100,
  });
  app.addHook('onRequest', async (request) => {
    const [keyId = '', user = null] = String(request.headers['x-api-key']).split(' of ');
    const rights = { kind: 'account', workspace: 'demo', readOnly: false, allowedTools: null } as const;
    const principal = { ...rights, keyId, user, madeBy: null, keyCreatedAt: 0 };
    request.caller = {
      principal,
      view: { kind: 'workspace', workspace: 'demo' },
      refusal: null,
      authenticatedAt: 0,
      authenticatedInMs: 0,
    };
  });
  addExportRoute(app, { ...rig.ports, store });
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  const ask = (key: string) => fetch(`${url}${WS}/export?what=events`, { headers: { 'x-api-key': key } });
  const refused = async (key: string) => {
    const answer = await ask(key);
    if (answer.status === 200) return [answer.status, 'under way'];
    const { detail }: { detail?: unknown } = Object(await answer.json());
    return [answer.status, detail];
  };
  onTestFinished(async () => {
    end();
    await app.close();
  });
  const first = await ask('key_1 of tom');
  const own = 'Another export of yours is being made. Ask again when one has ended.';
  expect(await refused('key_1 of tom')).toEqual([429, own]);
  expect(await refused('key_2 of tom')).toEqual([429, own]);
  const second = await ask('key_3');
  expect(await refused('key_3')).toEqual([429, own]);
  expect(await refused('key_4')).toEqual([429, 'Other exports are being made. Ask again when one has ended.']);
  expect((await ask('key_4')).headers.get('retry-after')).toBe('10');
  end();
  for (const answer of [first, second]) expect([answer.status, await answer.text()]).toEqual([200, 'some\nall\n']);
  expect((await ask('key_4')).status).toBe(200);
});

it('an export that is taken at a megabyte a minute lasts for longer than a minute', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] });
  async function* lines(): AsyncGenerator<string> {
    for (;;) yield 'x'.repeat(600_000);
  }
  const stream = takenInTime(lines(), () => Promise.resolve(true));
  for (let taken = 0; taken < 8; taken += 1) {
    await expect.poll(() => stream.read() !== null).toBe(true);
    vi.advanceTimersByTime(30_000);
    expect(stream.destroyed).toBe(false);
  }
  stream.destroy();
  vi.useRealTimers();
});

it('an export that is taken a little now and then is broken off, and the log says why', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] });
  async function* lines(): AsyncGenerator<string> {
    for (;;) yield 'x'.repeat(100_000);
  }
  const stream = takenInTime(lines(), () => Promise.resolve(true));
  const why: string[] = [];
  stream.once('error', ({ message }) => why.push(message));
  for (let taken = 0; taken < 5; taken += 1) {
    await expect.poll(() => stream.read() !== null).toBe(true);
    expect(stream.destroyed).toBe(false);
    vi.advanceTimersByTime(14_000);
  }
  expect(stream.destroyed).toBe(true);
  await expect.poll(() => why).toEqual(['Less than 1 MiB of it was taken in a minute.']);
  vi.useRealTimers();
});

it('an export that is made slowly, and taken at once, is not broken off', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] });
  let make: () => void = () => undefined;
  async function* lines(): AsyncGenerator<string> {
    for (;;) {
      await new Promise<void>((resolve) => {
        make = resolve;
      });
      yield 'a line';
    }
  }
  const stream = takenInTime(lines(), () => Promise.resolve(true));
  let taken = 0;
  stream.on('data', () => {
    taken += 1;
  });
  for (let made = 1; made <= 8; made += 1) {
    await delay(5);
    vi.advanceTimersByTime(30_000);
    make();
    await expect.poll(() => taken).toBe(made);
  }
  expect(stream.destroyed).toBe(false);
  stream.destroy();
  make();
  vi.useRealTimers();
});

it('an export of which nobody takes anything is broken off after a minute', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] });
  let ended = false;
  async function* lines(): AsyncGenerator<string> {
    try {
      for (;;) yield 'x'.repeat(100_000);
    } finally {
      ended = true;
    }
  }
  let asked = 0;
  const stream = takenInTime(lines(), () => {
    asked += 1;
    return Promise.resolve(true);
  });
  stream.read(0);
  await delay(20);
  vi.advanceTimersByTime(60_000);
  expect([asked, stream.destroyed]).toEqual([30, false]);
  vi.advanceTimersByTime(2_000);
  expect(stream.destroyed).toBe(true);
  await expect.poll(() => ended).toBe(true);
  await expect.poll(() => vi.getTimerCount()).toBe(0);
  vi.useRealTimers();
});
