import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { GOOD_KEY, startMcpUpstream } from '../system/mcp/upstream.ts';
import { svc } from './run.ts';

const PROGRAM = join(import.meta.dirname, 'program-server.mjs');

let folder: string;
let config: string;
let lock: string;
let pids: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-tools-programs-'));
  [config, lock, pids] = [join(folder, 'gateway.yaml'), join(folder, 'pins', 'pg.lock.json'), join(folder, 'pids')];
  vi.stubEnv('GIVEN', 'yes');
  vi.stubEnv('KEPT', 'back');
});
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

/** The configuration declares a program that does what `mode` says. */
function declare(
  mode: string,
  mcp = `command: ["${process.execPath}", "${PROGRAM}", ${mode}, "${pids}"], env: [GIVEN]`,
) {
  writeFileSync(
    config,
    `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "${folder}/data" }
policies: { paths: [] }
upstreams:
  - { id: api, url: "http://127.0.0.1:9" }
  - { id: pg, mcp: { ${mcp}, pins: "${lock}" } }
`,
  );
}

const tools = (verb: string, ...more: string[]) => svc('tools', verb, '--config', config, '--upstream', 'pg', ...more);
const names = (out: string) => (JSON.parse(out) as { tools: { name: string }[] }).tools.map(({ name }) => name);

/** Processes of the program that are there, dead ones that this process has not heard of too. */
function left(): readonly number[] {
  const all = JSON.parse(readFileSync(pids, 'utf8')) as number[];
  return all.filter((pid) => {
    const status = existsSync(`/proc/${pid}/status`) ? readFileSync(`/proc/${pid}/status`, 'utf8') : '';
    // A dead grandchild is for init to hear of.
    return status !== '' && (!/^State:\s+Z/m.test(status) || status.includes(`PPid:\t${process.pid}\n`));
  });
}

describe('svc tools with a server that the configuration declares', () => {
  test('a program: pinned where the configuration says, compared, approved; it gets the named variables alone, and ends', async () => {
    declare('good');
    expect(await tools('diff')).toMatchObject({ code: 1, out: expect.stringContaining('new       env') });
    expect(await tools('approve', '--all')).toMatchObject({ code: 2, err: expect.stringContaining('svc tools pin') });
    expect(await tools('pin')).toMatchObject({ code: 0, err: expect.stringContaining('2 tools are approved') });
    expect(JSON.parse(readFileSync(lock, 'utf8'))).toMatchObject({
      upstream: 'pg',
      server: 'pg',
      tools: [{ name: 'env', tool: { description: 'GIVEN SVC_STDIO_OWNER' } }, { name: 'more' }],
    });
    expect(left()).toEqual([]);
    expect(await tools('diff')).toMatchObject({ code: 0, out: 'Nothing is different.' });
    vi.stubEnv('GIVEN', undefined);
    const changed = await tools('diff');
    expect(changed).toMatchObject({ code: 1, err: expect.stringContaining('GIVEN is not set') });
    expect(changed.out).toContain('+ /description: "SVC_STDIO_OWNER"');
    expect(await tools('approve', 'env')).toMatchObject({ code: 0 });
    expect(await tools('diff')).toMatchObject({ code: 0 });
    expect(left()).toEqual([]);
    // What the gateway reads is what was pinned.
    expect(await svc('config', 'check', config)).toMatchObject({ code: 0, out: expect.stringContaining('2 tools') });
  });

  test('what the program started ends with it, also what heeds no signal', async () => {
    declare('helped');
    expect(await tools('list')).toMatchObject({ code: 0 });
    expect(JSON.parse(readFileSync(pids, 'utf8'))).toHaveLength(2);
    // What was killed is gone a moment later.
    await expect.poll(left).toEqual([]);
  });

  test('an official server; one without sessions, which no gateway starts; one that crashes; one that is not there', async () => {
    declare('official');
    expect(names((await tools('list', '--json')).out)).toEqual(['one']);
    declare('stateless');
    expect(await tools('list')).toMatchObject({ code: 2, err: expect.stringContaining('up to 2025-11-25') });
    expect(left()).toEqual([]);
    declare('crash');
    expect(await tools('list')).toMatchObject({ code: 2, err: expect.stringMatching(/exit code 3.*no database/) });
    declare('', 'command: ["./no-such-program"]');
    expect(await tools('pin')).toMatchObject({ code: 2, err: expect.stringContaining('ENOENT') });
    expect(existsSync(lock)).toBe(false);
  });

  test('one at an address is asked with what the configuration sends it, in both eras', async () => {
    const upstream = await startMcpUpstream();
    try {
      vi.stubEnv('THE_KEY', GOOD_KEY);
      for (const [path, found] of [
        ['/old', ['add', 'ask', 'count']],
        ['/new', ['add', 'routed']],
      ] as const) {
        declare('', `url: "${upstream.url}${path}"`);
        expect(await tools('list')).toMatchObject({ code: 2, err: expect.stringContaining("'pg' cannot be read") });
        writeFileSync(
          config,
          `${readFileSync(config, 'utf8').replace(' mcp:', ' credentials: { header: Authorization, value: "Bearer ${THE_KEY}" }, mcp:')}`,
        );
        expect(names((await tools('list', '--json')).out)).toEqual(found);
      }
      await expect.poll(() => upstream.sessions.size).toBe(0);
    } finally {
      await upstream.stop();
    }
  });

  test('what the rest of the configuration needs and is not here does not matter', async () => {
    declare('good');
    appendFileSync(config, 'webhooks: [{ id: team, url: "${NO_SUCH_VARIABLE}" }]\n');
    expect(await tools('pin')).toMatchObject({ code: 0 });
    expect(await tools('diff')).toMatchObject({ code: 0, out: 'Nothing is different.' });
  });

  test('options that name no server, or two, and lock files of others', async () => {
    declare('good');
    const said = async (...args: string[]) => (await svc('tools', ...args)).err;
    expect(await said('list')).toContain('--config FILE --upstream ID');
    expect(await said('list', '--config', config)).toContain('--upstream ID');
    expect(await said('list', '--url', 'http://127.0.0.1:9/')).toContain('--lock FILE');
    expect(await said('list', '--config', config, '--url', 'http://127.0.0.1:9/')).toContain('cannot be used with');
    expect(await said('list', '--config', config, '--upstream', 'pgg')).toMatch(/no MCP server 'pgg'.*[\s\S]*pg/);
    expect(await said('list', '--config', config, '--upstream', 'api')).toContain("no MCP server 'api'");
    expect(await said('pin', '--url', 'http://127.0.0.1:9/', '--lock', lock)).toContain('--upstream ID');
    vi.stubEnv('SOME_KEY', 'x');
    expect(await tools('list', '--key-env', 'SOME_KEY')).toMatchObject({ code: 64 });
    await tools('pin');
    writeFileSync(lock, readFileSync(lock, 'utf8').replace('"upstream": "pg"', '"upstream": "other"'));
    expect(await tools('diff')).toMatchObject({ code: 2, err: expect.stringContaining("pins of 'other'") });
    expect(left()).toEqual([]);
  });
});
