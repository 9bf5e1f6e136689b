import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, cpSync, existsSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, expect, test, vi } from 'vitest';

const ROOT = join(import.meta.dirname, '..', '..');
/** A copy of the product: its demo keeps files and store in its own folder. */
const home = mkdtempSync(join(tmpdir(), 'svc-demo-'));
afterAll(() => rmSync(home, { recursive: true }));

test.each([
  { as: 'JSON', options: ['--json'] },
  { as: 'text', options: [] },
])(
  'the demo says on standard error what /readyz says of the log, as $as, and nothing else',
  async ({ as, options }) => {
    // The launcher builds where that is needed.
    execFileSync(process.execPath, [join(ROOT, 'bin', 'svc.mjs'), '--version'], { stdio: 'ignore' });
    for (const name of ['dist', 'bin', 'config', 'policies', 'package.json'])
      cpSync(join(ROOT, name), join(home, name), { recursive: true });
    if (!existsSync(join(home, 'node_modules'))) symlinkSync(join(ROOT, 'node_modules'), join(home, 'node_modules'));
    const demo = spawn(process.execPath, [join(home, 'bin', 'svc.mjs'), 'demo', '--port', '0', ...options], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let err = '';
    demo.stderr.setEncoding('utf8').on('data', (text: string) => {
      err += text;
    });
    try {
      let url = '';
      for await (const line of createInterface(demo.stdout)) {
        if (as === 'JSON')
          expect(JSON.parse(line).console_url).toMatch(/^http:\/\/localhost:\d+\/console\/sign-in#link=/);
        url = /http:\/\/127\.0\.0\.1:\d+/.exec(line)?.[0] ?? '';
        if (url !== '') break;
      }
      expect(err).toBe('');
      appendFileSync(join(home, 'config', 'demo.yaml'), 'nonsense: 1\n');
      await vi.waitFor(async () => {
        expect(await (await fetch(`${url}/readyz`)).text()).toContain('The log says what is wrong');
      }, 30_000);
      await vi.waitFor(() => expect(err).toContain("'nonsense' is not a field"), 30_000);
      if (as === 'text') {
        expect(err).toMatch(/^svc: error: .*\n {2}\S*demo\.yaml:\d+:1 error 'nonsense' is not a field/);
        return;
      }
      const levels = err
        .trimEnd()
        .split('\n')
        .map((one) => JSON.parse(one).level);
      expect(new Set(levels)).toEqual(new Set(['error']));
    } finally {
      demo.kill('SIGTERM');
      await once(demo, 'exit');
    }
  },
);
