import { spawn } from 'node:child_process';
import { rmSync } from 'node:fs';
import { afterAll, expect, test } from 'vitest';
import { storeFolder } from '../contract/embedded-store.ts';
import { compileStore } from '../stores/compiled.ts';
import { faultAfter } from './load-fault.ts';

const compiled = compileStore(['test/port/load.ts']);
afterAll(compiled.remove);

/** Runs the load on a folder and kills it in the middle, once so many lines are there; answers with all lines. */
function loadAndKill(path: string, prefix: string, lines: number): Promise<readonly string[]> {
  const child = spawn(process.execPath, [compiled.file('test/port/load.ts'), path, prefix, '1000000'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let output = '';
  return new Promise((resolve, reject) => {
    child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
      output += chunk;
      if (output.split('\n').length > lines) child.kill('SIGKILL');
    });
    child.on('close', (code, signal) => {
      if (signal === 'SIGKILL') resolve(output.split('\n').slice(0, -1));
      else reject(new Error(`the load ended with ${code}`));
    });
  });
}

test('a process that is killed in the middle of its batches loses nothing that it was told, time after time', async () => {
  const path = storeFolder();
  try {
    const told: string[] = [];
    for (const [round, lines] of [40, 300, 777, 1_500].entries()) {
      told.push(...(await loadAndKill(path, `round${round}`, lines)));
      expect(await faultAfter(path, told)).toBeNull();
    }
    expect(told.length).toBeGreaterThan(2_500);
  } finally {
    rmSync(path, { recursive: true });
  }
});
