import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, cpSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, expect, test, vi } from 'vitest';

const ROOT = join(import.meta.dirname, '..', '..');
/** A copy of the product: its demo keeps files and store in its own folder. */
const home = mkdtempSync(join(tmpdir(), 'svc-demo-'));
afterAll(() => rmSync(home, { recursive: true }));

test('the demo says on standard error what /readyz says of the log, and nothing else', async () => {
  // The launcher builds where that is needed.
  execFileSync(process.execPath, [join(ROOT, 'bin', 'svc.mjs'), '--version'], { stdio: 'ignore' });
  for (const name of ['dist', 'bin', 'config', 'policies', 'package.json'])
    cpSync(join(ROOT, name), join(home, name), { recursive: true });
  symlinkSync(join(ROOT, 'node_modules'), join(home, 'node_modules'));
  const demo = spawn(process.execPath, [join(home, 'bin', 'svc.mjs'), 'demo', '--port', '0', '--json'], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let err = '';
  demo.stderr.setEncoding('utf8').on('data', (text: string) => {
    err += text;
  });
  try {
    const [line] = await once(createInterface(demo.stdout), 'line');
    const { url }: { readonly url: string } = JSON.parse(String(line));
    expect(err).toBe('');
    appendFileSync(join(home, 'config', 'demo.yaml'), 'nonsense: 1\n');
    await vi.waitFor(async () => {
      expect(await (await fetch(`${url}/readyz`)).text()).toContain('The log says what is wrong');
    }, 30_000);
    await vi.waitFor(() => expect(err).toContain("'nonsense' is not a field"), 30_000);
    const levels = err
      .trimEnd()
      .split('\n')
      .map((one) => JSON.parse(one).level);
    expect(new Set(levels)).toEqual(new Set(['error']));
  } finally {
    demo.kill('SIGTERM');
    await once(demo, 'exit');
  }
});
