import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, test } from 'vitest';
import { StdioChild } from '../../../src/upstreams/mcp/stdio/child.ts';
import { Keeper, OWNER_VARIABLE } from '../../../src/upstreams/mcp/stdio/keeper.ts';
import { StdioServer, type StdioServerSettings } from '../../../src/upstreams/mcp/through.ts';
import { longestHold } from '../../longest-hold.ts';
import { ask, initialize, result, tool } from './ask.ts';

const ODD = join(import.meta.dirname, 'odd-server.mjs');
const require = createRequire(import.meta.url);
const EVERYTHING = require.resolve('@modelcontextprotocol/server-everything/dist/index.js');
const FILESYSTEM = require.resolve('@modelcontextprotocol/server-filesystem/dist/index.js');
const MEMORY = require.resolve('@modelcontextprotocol/server-memory/dist/index.js');

const folder = mkdtempSync(join(tmpdir(), 'svc-stdio-'));
const keeper = new Keeper();
const servers: StdioServer[] = [];
let clock = 0;

afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.destroy()));
});
afterAll(() => {
  keeper.close();
  rmSync(folder, { recursive: true, force: true });
});

interface Made {
  readonly command?: string;
  readonly args: readonly string[];
  readonly env?: Record<string, string>;
  readonly settings?: Partial<StdioServerSettings>;
  readonly graceMs?: number;
  readonly cwd?: string;
}

function serverOf({
  command = process.execPath,
  args,
  env = {},
  settings = {},
  graceMs = 300,
  cwd,
}: Made): StdioServer {
  const server = new StdioServer(
    {
      command: { command, args, env, cwd: cwd ?? null },
      most: 4,
      idleMs: 60_000,
      limits: { lineBytes: 1_000_000, graceMs },
      ...settings,
    },
    keeper,
    () => clock,
  );
  servers.push(server);
  return server;
}

const odd = (mode = 'good', more: Partial<Made> = {}) => serverOf({ args: [ODD, mode], ...more });

function isAlive(pid: number): boolean {
  try {
    // A zombie still answers to signals.
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

const saidIn = (said: Record<string, unknown>): unknown => said['said'];

describe('real servers, unmodified', () => {
  const run = (file: string, ...args: string[]) => serverOf({ args: [file, ...args], env: { HOME: folder } });

  test('server-everything: tools, progress, a question in mid-call', async () => {
    const server = run(EVERYTHING, 'stdio');
    const session = await initialize(server);
    const { tools } = await result(server, session, 'tools/list', {});
    expect((tools as { name: string }[]).length).toBeGreaterThan(5);
    expect(await tool(server, session, 'echo', { message: 'hi' })).toMatchObject({ content: [{ text: 'Echo: hi' }] });
    const params = {
      name: 'trigger-long-running-operation',
      arguments: { duration: 0.2, steps: 2 },
      _meta: { progressToken: 'p' },
    };
    const long = ask(server, 'POST', { jsonrpc: '2.0', id: 7, method: 'tools/call', params }, { session });
    await long.end;
    expect(long.headers['content-type']).toBe('text/event-stream');
    expect(long.text.match(/"progressToken":"p"/g)?.length).toBe(2);
    expect(long.text).toContain('"id":7');
    await ask(server, 'DELETE', null, { session }).end;
    expect(server.report().running).toBe(0);
  });

  test('server-filesystem: reads in its folder', async () => {
    writeFileSync(join(folder, 'a.txt'), 'hello');
    const server = run(FILESYSTEM, folder);
    const session = await initialize(server);
    const said = await tool(server, session, 'read_text_file', { path: join(folder, 'a.txt') });
    expect(JSON.stringify(said)).toContain('hello');
  });

  test('server-memory: two sessions have a process each', async () => {
    const server = serverOf({
      args: [MEMORY],
      env: { MEMORY_FILE_PATH: join(folder, 'memory.jsonl') },
    });
    const [one, two] = [await initialize(server), await initialize(server)];
    const entities = [{ name: 'Ada', entityType: 'person', observations: ['counts'] }];
    await tool(server, one, 'create_entities', { entities });
    expect(JSON.stringify(await tool(server, one, 'read_graph'))).toContain('Ada');
    expect(new Set(server.pids().values()).size).toBe(2);
    await ask(server, 'DELETE', null, { session: one }).end;
    expect(JSON.stringify(await tool(server, two, 'read_graph'))).toContain('Ada');
  });
});

describe('what a child gets', () => {
  test('its environment is what is configured, and nothing of the gateway’s own', async () => {
    process.env['SVC_SECRET_OF_THE_GATEWAY'] = 'secret';
    const server = odd('good', { env: { GIVEN: 'yes' } });
    const environment = saidIn(await tool(server, await initialize(server), 'environment'));
    expect(environment).toEqual({ GIVEN: 'yes', [OWNER_VARIABLE]: keeper.owner });
  });

  test('messages as they are, one a line', async () => {
    const server = odd();
    const session = await initialize(server);
    const body = Buffer.from('{"jsonrpc":"2.0",\n"id":1,"method":"tools/call","params":{"name":"print"}}');
    expect(saidIn(await result(server, session, 'tools/call', { name: 'print' }))).toBe('printed');
    const seen: string[] = [];
    await new Promise<void>((resolve) => {
      server.dispatch(
        { method: 'POST', path: '/', headers: { 'mcp-session-id': session }, body },
        {
          onRequestStart() {},
          onResponseData: (_c, chunk) => void seen.push(String(chunk)),
          onResponseEnd: () => resolve(),
        },
      );
    });
    expect(seen.join('')).toContain('printed');
  });

  test('a call that the gate holds back is not written', async () => {
    const server = odd();
    const session = await initialize(server);
    const held = ask(
      server,
      'POST',
      { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'die' } },
      {
        session,
        gate: () => {
          throw new Error('paused');
        },
      },
    );
    await expect(held.end).rejects.toThrow('paused');
    expect(saidIn(await tool(server, session, 'print'))).toBe('printed');
  });
});

describe('what a child says', () => {
  test('goes to the request that it belongs to, and answers of the client to the child', async () => {
    const server = odd();
    const session = await initialize(server);
    const listening = ask(server, 'GET', null, { session });
    await listening.head;
    const silent = ask(
      server,
      'POST',
      { jsonrpc: '2.0', id: 2, method: 'tools/call', params: { name: 'silent' } },
      { session },
    );
    const params = { name: 'ask', _meta: { progressToken: 9 } };
    const asked = ask(server, 'POST', { jsonrpc: '2.0', id: 3, method: 'tools/call', params }, { session });
    await asked.head;
    await expect.poll(() => listening.text).toContain('elicitation/create');
    await ask(server, 'POST', { jsonrpc: '2.0', id: 'q', result: { action: 'accept' } }, { session }).end;
    await asked.end;
    expect(asked.text).toContain('"progressToken":9');
    expect(asked.text).toContain('"said":{"action":"accept"}');
    expect(silent.text).toBe('');
  });

  test('with nobody to hear it waits for the stream of the session', async () => {
    const server = odd();
    const session = await initialize(server);
    await tool(server, session, 'announce');
    const listening = ask(server, 'GET', null, { session });
    await expect.poll(() => listening.text).toContain('list_changed');
    expect(ask(server, 'GET', null, { session }).status).toBe(409);
    listening.controller?.abort(new Error('left'));
    const again = ask(server, 'GET', null, { session });
    await again.head;
    expect(again.status).toBe(200);
  });

  test('is not read while the reader does not read', async () => {
    const server = odd();
    const session = await initialize(server);
    const flood = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'flood' } };
    const paused = ask(server, 'POST', flood, { session, pause: true });
    await paused.head;
    const pid = server.pids().get(session) ?? 0;
    let before = -1;
    await expect
      .poll(
        () => {
          const isStill = paused.text.length === before;
          before = paused.text.length;
          return isStill;
        },
        { interval: 200 },
      )
      .toBe(true);
    expect(paused.text.length).toBeLessThan(1_000_000);
    expect(isAlive(pid)).toBe(true);
    paused.controller?.resume();
    await expect.poll(() => paused.text.length).toBeGreaterThan(before);
    paused.controller?.abort(new Error('left'));
  });

  test('a line without measure ends its session, and no other', async () => {
    const server = odd();
    const [bad, good] = [await initialize(server), await initialize(server)];
    await expect(tool(server, bad, 'long')).rejects.toThrow('a line of more than 1000000 bytes');
    expect(saidIn(await tool(server, good, 'print'))).toBe('printed');
    expect(server.report()).toMatchObject({ running: 1, lastEnd: expect.stringContaining('a line of more') });
  });
});

test('for a child that does not read so much waits, and what is beyond it is not sent', async () => {
  const answer = '{"jsonrpc":"2.0","id":0,"result":{}}';
  const server = serverOf({ command: '/bin/sh', args: ['-c', `read line; echo '${answer}'; exec sleep 600`] });
  const session = await initialize(server);
  const message = { jsonrpc: '2.0', method: 'notifications/x', params: { text: 'x'.repeat(900_000) } };
  let taken = 0;
  let last = ask(server, 'POST', message, { session });
  for (; taken < 60; taken += 1) {
    await last.end;
    if (last.status !== 202) break;
    last = ask(server, 'POST', message, { session });
  }
  expect([last.status, last.text]).toEqual([503, expect.stringContaining('This message was not sent')]);
  // 32 MiB, and what the pipe itself holds.
  expect(taken * 900_000).toBeGreaterThan(31 * 1024 * 1024);
  expect(taken * 900_000).toBeLessThan(33 * 1024 * 1024);
});

test('of many lines at once some are taken in each turn of the event loop, and the rest waits', async () => {
  let lines = 0;
  let before = 0;
  let most = 0;
  const look = (): void => {
    most = Math.max(most, lines - before);
    before = lines;
  };
  const child = new StdioChild(
    { command: '/bin/sh', args: ['-c', "yes '[]' | head -n 100000"], env: {}, cwd: null },
    keeper,
    { lineBytes: 1_000, graceMs: 300 },
    { line: () => void (lines += 1), over: () => {} },
  );
  let isGone = false;
  void child.gone.then(() => {
    isGone = true;
  });
  while (!isGone) {
    await new Promise((resolve) => setImmediate(resolve));
    look();
  }
  expect(lines).toBe(100_000);
  expect(most).toBeLessThan(200);
});

describe('children that end, hang or never begin', () => {
  test.each([
    ['cannot be started', '/nonexistent/program', []],
    ['ends by itself', '/bin/sh', ['-c', 'exit 3']],
  ])('a child that %s says once that it is over, so that no later child is taken for it', async (_, command, args) => {
    const ends: string[] = [];
    const child = new StdioChild(
      { command, args, env: {}, cwd: null },
      keeper,
      { lineBytes: 1_000, graceMs: 300 },
      { line: () => {}, over: (why) => void ends.push(why) },
    );
    await child.gone;
    // What Node tells of its pipes comes after.
    for (let turns = 0; turns < 20; turns += 1) await new Promise((resolve) => setImmediate(resolve));
    expect(ends).toHaveLength(1);
  });

  test('killed in mid-call: the call breaks, the session is over, the next one has another child', async () => {
    const server = odd();
    const [one, two] = [await initialize(server), await initialize(server)];
    await expect(tool(server, one, 'die')).rejects.toThrow('it ended by SIGKILL');
    const after = ask(server, 'POST', { jsonrpc: '2.0', id: 5, method: 'tools/list' }, { session: one });
    expect([after.status, after.text]).toEqual([404, expect.stringContaining('Session not found')]);
    expect(saidIn(await tool(server, two, 'print'))).toBe('printed');
    await initialize(server);
  });

  test('killed: what it has started ends as well', async () => {
    const server = odd('stubborn');
    const session = await initialize(server);
    const [own, helper, escaped] = saidIn(await tool(server, session, 'helpers')) as [number, number, number];
    process.kill(own, 'SIGKILL');
    // Well before anybody ends the session.
    await expect.poll(() => isAlive(helper)).toBe(false);
    process.kill(escaped, 'SIGKILL');
  });

  test('stubborn: it ends with its group when its session does; helpers too', async () => {
    const server = odd('stubborn');
    const session = await initialize(server);
    const [own, helper, escaped] = saidIn(await tool(server, session, 'helpers')) as [number, number, number];
    expect([own, helper, escaped].every(isAlive)).toBe(true);
    await ask(server, 'DELETE', null, { session }).end;
    expect(ask(server, 'GET', null, { session }).status).toBe(404);
    await expect.poll(() => isAlive(own) || isAlive(helper)).toBe(false);
    await server.close();
    // It left its group. What ends it is the end of the gateway (test/system/mcp-stdio-owner.test.ts).
    process.kill(escaped, 'SIGKILL');
  });

  test('crashing on start: the client hears why, and it is tried again later and later', async () => {
    const server = odd('crash');
    const starts = async (): Promise<string> => {
      const asked = ask(server, 'POST', { jsonrpc: '2.0', id: 0, method: 'initialize', params: {} });
      await asked.end;
      return `${asked.status} ${asked.text}`;
    };
    expect(await starts()).toMatch(/^502 .*exit code 3; it said: no database/);
    expect(await starts()).toMatch(/^503 .*failed 1 times in a row, and is tried again in 250 ms/);
    clock += 250;
    expect(await starts()).toMatch(/^502/);
    clock += 499;
    expect(await starts()).toMatch(/^503 .*in 1 ms/);
    clock += 1;
    expect(await starts()).toMatch(/^502/);
    expect(server.report()).toMatchObject({ running: 0, failures: 3 });
    clock += 60_000;
    for (const command of ['/no/such/program', folder]) {
      const none = serverOf({ command, args: [] });
      await expect(initialize(none)).rejects.toThrow(/502 .*cannot be started: spawn .*(ENOENT|EACCES)/);
    }
  });

  test('flooding standard error: others are answered, the gateway is not held up', async () => {
    const noisy = odd('noisy');
    const good = odd();
    const [loud, session] = [await initialize(noisy), await initialize(good)];
    const held = await longestHold(async () => {
      for (let call = 0; call < 50; call += 1) await tool(good, session, 'print');
    });
    expect(held).toBeLessThan(50);
    const read = async (): Promise<number> => Number(saidIn(await tool(noisy, loud, 'written')));
    const [before, began] = [await read(), performance.now()];
    await new Promise((resolve) => setTimeout(resolve, 300));
    // It writes as fast as it can, and gets as far as it is read: a quarter of a MiB in a second.
    expect((await read()) - before).toBeLessThan(200_000 + (performance.now() - began) * 300);
    expect(saidIn(await tool(noisy, loud, 'print'))).toBe('printed');
  });

  test('there are so many children, and no more; unused ones end', async () => {
    const server = odd('good', { settings: { most: 1, idleMs: 50 } });
    const session = await initialize(server);
    await expect(initialize(server)).rejects.toThrow('503');
    expect(saidIn(await tool(server, session, 'print'))).toBe('printed');
    const listening = ask(server, 'GET', null, { session });
    await listening.head;
    clock += 51;
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(server.report().running).toBe(1);
    listening.controller?.abort(new Error('left'));
    clock += 51;
    await expect.poll(() => server.report().running).toBe(0);
    await initialize(server);
  });

  test('what nobody waits for any more keeps no session, though it is never answered', async () => {
    const server = odd('good', { settings: { most: 1, idleMs: 50 } });
    const session = await initialize(server);
    const silent = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'silent', arguments: {} } };
    const asked = ask(server, 'POST', silent, { session });
    clock += 51;
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(server.report().running).toBe(1);
    asked.controller?.abort(new Error('left'));
    clock += 51;
    await expect.poll(() => server.report().running).toBe(0);
  });

  test('one holder does not keep the others out: the idlest session of who has most makes room', async () => {
    const server = odd('good', { settings: { most: 3 } });
    const taken: string[] = [];
    for (let count = 0; count < 3; count += 1) {
      clock += 1;
      taken.push(await initialize(server, 'greedy'));
    }
    const [first = '', second = '', third = ''] = taken;
    // A client that is there listens. That does not hold the place.
    const listening = ask(server, 'GET', null, { session: second });
    await listening.head;
    clock += 1;
    for (const session of [first, third]) await tool(server, session, 'print');
    await expect(initialize(server, 'greedy')).rejects.toThrow('503');
    const [idlest] = [server.pids().get(second) ?? 0];
    const other = await initialize(server, 'other');
    await listening.end;
    await expect.poll(() => isAlive(idlest)).toBe(false);
    expect(ask(server, 'POST', { jsonrpc: '2.0', id: 1, method: 'ping' }, { session: second }).status).toBe(404);
    for (const session of [first, third, other]) expect(saidIn(await tool(server, session, 'print'))).toBe('printed');
    // Shares are as even as they can be.
    for (const holder of ['other', 'greedy']) await expect(initialize(server, holder)).rejects.toThrow('503');
    // What nobody has used for a minute goes also to who has as many.
    clock += 60_000;
    await tool(server, other, 'print');
    await tool(server, third, 'print');
    await initialize(server, 'other');
    await expect(tool(server, first, 'print')).rejects.toThrow('Session not found');
  });

  test('it is one of who has most, however long that of another has not been used', async () => {
    const server = odd('good', { settings: { most: 4 } });
    const modest = await initialize(server, 'modest');
    const taken: string[] = [];
    for (let count = 0; count < 3; count += 1) {
      clock += 1;
      taken.push(await initialize(server, 'greedy'));
    }
    clock += 1;
    const added = await initialize(server, 'new');
    const [first = '', ...others] = taken;
    await expect(tool(server, first, 'print')).rejects.toThrow('Session not found');
    for (const session of [modest, ...others, added])
      expect(saidIn(await tool(server, session, 'print'))).toBe('printed');
  });

  test('a session that makes room while it is asked answers first, takes nothing more, and ends', async () => {
    const server = odd('good', { settings: { most: 2 } });
    const [one, two] = [await initialize(server, 'greedy'), await initialize(server, 'greedy')];
    const question = { jsonrpc: '2.0', id: 7, method: 'tools/call', params: { name: 'ask' } };
    const [first, second] = [one, two].map((session) => ask(server, 'POST', question, { session }));
    await Promise.all([first?.head, second?.head]);
    const [child] = [server.pids().get(one) ?? 0];
    const other = await initialize(server, 'other');
    expect(saidIn(await tool(server, other, 'print'))).toBe('printed');
    expect(ask(server, 'POST', { jsonrpc: '2.0', id: 8, method: 'ping' }, { session: one }).status).toBe(404);
    expect([isAlive(child), server.report().running]).toEqual([true, 3]);
    // Its client is asked in the middle of the call, and answers.
    await ask(server, 'POST', { jsonrpc: '2.0', id: 'q', result: { which: 1 } }, { session: one }).end;
    await first?.end;
    expect(first?.text).toContain('"said":{"which":1}');
    await expect.poll(() => isAlive(child)).toBe(false);
    await expect.poll(() => server.report().running).toBe(2);
  });

  test('a session in which somebody waits for an answer is kept, though another was used since', async () => {
    const server = odd('good', { settings: { most: 2 } });
    const [asked, unused] = [await initialize(server, 'greedy'), await initialize(server, 'greedy')];
    const question = { jsonrpc: '2.0', id: 7, method: 'tools/call', params: { name: 'ask' } };
    const waits = ask(server, 'POST', question, { session: asked });
    await waits.head;
    clock += 1;
    await tool(server, unused, 'print');
    await initialize(server, 'other');
    await expect(tool(server, unused, 'print')).rejects.toThrow('Session not found');
    await ask(server, 'POST', { jsonrpc: '2.0', id: 'q', result: { which: 1 } }, { session: asked }).end;
    await waits.end;
    expect(saidIn(await tool(server, asked, 'print'))).toBe('printed');
  });

  test('clients without sessions are told which revisions there are', async () => {
    const server = odd();
    const _meta = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28' };
    const asked = ask(server, 'POST', { jsonrpc: '2.0', id: 4, method: 'server/discover', params: { _meta } });
    expect([asked.status, JSON.parse(asked.text)]).toEqual([
      400,
      {
        jsonrpc: '2.0',
        id: 4,
        error: expect.objectContaining({
          code: -32_022,
          data: { supported: expect.arrayContaining(['2025-11-25']), requested: '2026-07-28' },
        }),
      },
    ]);
    expect(server.report().running).toBe(0);
  });
});

test('1,000 starts and ends leave no process, no zombie and no descriptor', async () => {
  // A shell that answers and ends: the cheapest child that there is.
  const answer = '{"jsonrpc":"2.0","id":0,"result":{}}';
  const script = `read line; echo '${answer}'; read line`;
  const server = serverOf({ command: '/bin/sh', args: ['-c', script], settings: { most: 20 } });
  const open = () =>
    readdirSync('/proc/self/fd')
      .map((fd) => {
        try {
          return readlinkSync(`/proc/self/fd/${fd}`).replace(/\d+/g, 'N');
        } catch {
          return '';
        }
      })
      .filter((target) => /^(pipe|socket)/.test(target)).length;
  await initialize(server);
  await server.close();
  const before = open();
  const many = serverOf({ command: '/bin/sh', args: ['-c', script], settings: { most: 20 } });
  const pids = new Set<number>();
  const restart = async (count: number): Promise<void> => {
    for (let round = 0; round < count; round += 1) {
      const asked = ask(many, 'POST', { jsonrpc: '2.0', id: 0, method: 'initialize', params: {} });
      await asked.end;
      const session = String(asked.headers['mcp-session-id']);
      const pid = many.pids().get(session);
      if (typeof pid === 'number') pids.add(pid);
      // Half of them end by themselves, at their next line.
      if (round % 2 === 0) await ask(many, 'DELETE', null, { session }).end;
      else await ask(many, 'POST', { jsonrpc: '2.0', method: 'x' }, { session }).end;
    }
  };
  await Promise.all([restart(250), restart(250), restart(250), restart(250)]);
  await many.close();
  expect(pids.size).toBeGreaterThan(900);
  await expect.poll(() => [...pids].filter((pid) => isAlive(pid)).length).toBe(0);
  const zombies = readdirSync('/proc').filter((name) => {
    try {
      const status = readFileSync(`/proc/${name}/status`, 'utf8');
      return /^State:\s+Z/m.test(status) && new RegExp(`^PPid:\\s+${process.pid}$`, 'm').test(status);
    } catch {
      return false;
    }
  });
  expect(zombies).toEqual([]);
  expect(open()).toBeLessThanOrEqual(before);
});
