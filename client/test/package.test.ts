import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';

const client = dirname(dirname(fileURLToPath(import.meta.url)));
const tsc = join(dirname(createRequire(import.meta.url).resolve('typescript/package.json')), 'bin', 'tsc');
const scratch = mkdtempSync(join(tmpdir(), 'svc-client-'));

const built = join(scratch, 'client');

beforeAll(() => {
  run(process.execPath, [join(client, 'build.mjs'), join(built, 'dist')], client);
  cpSync(join(client, 'package.json'), join(built, 'package.json'));
});

afterAll(() => {
  rmSync(scratch, { recursive: true, force: true });
});

function run(command: string, args: readonly string[], cwd: string): string {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd, encoding: 'utf8' });
  if (status !== 0) throw new Error(`${args.join(' ')}: ${stdout}${stderr}`);
  return stdout;
}

test('is at most 5 kB gzip in all', () => {
  const folder = join(built, 'dist', 'esm');
  const files = readdirSync(folder).filter((file) => file.endsWith('.js'));
  expect(files.length).toBeGreaterThan(3);
  const bytes = gzipSync(Buffer.concat(files.map((file) => readFileSync(join(folder, file))))).length;
  expect(bytes).toBeLessThanOrEqual(5000);
});

test('is the same as an ES module and as CommonJS, and needs nothing', () => {
  const names = 'Object.keys(m).sort().join()';
  const esm = run(
    process.execPath,
    ['--input-type=module', '-e', `import * as m from '@svc-gateway/client'; console.log(${names})`],
    built,
  );
  const cjs = run(
    process.execPath,
    ['--input-type=commonjs', '-e', `const m = require('@svc-gateway/client'); console.log(${names})`],
    built,
  );
  expect(esm.trim()).toBe('Svc,SvcError');
  expect(cjs).toBe(esm);
  expect(JSON.parse(readFileSync(join(client, 'package.json'), 'utf8'))).not.toHaveProperty('dependencies');
});

test.each(['module', 'commonjs'])('its declarations hold for a consumer that is %s', (type) => {
  const consumer = join(scratch, type);
  mkdirSync(join(consumer, 'node_modules', '@svc-gateway'), { recursive: true });
  symlinkSync(built, join(consumer, 'node_modules', '@svc-gateway', 'client'));
  writeFileSync(join(consumer, 'package.json'), JSON.stringify({ type }));
  writeFileSync(
    join(consumer, 'tsconfig.json'),
    JSON.stringify({
      compilerOptions: {
        module: 'nodenext',
        target: 'es2022',
        lib: ['es2022', 'dom'],
        strict: true,
        noEmit: true,
        types: [],
      },
      include: ['*.ts'],
    }),
  );
  const program = (status: string): string => `
    import { Svc } from '@svc-gateway/client';
    export async function refund(): Promise<string> {
      const result = await new Svc({ apiKey: 'k' }).call({ tool: 't', params: {} });
      if (result.status === '${status}') return result.receipt.jws;
      return result.reason.code;
    }`;
  writeFileSync(join(consumer, 'use.ts'), program('committed'));
  run(process.execPath, [tsc, '-p', consumer], consumer);
  writeFileSync(join(consumer, 'use.ts'), program('in_progress'));
  expect(() => run(process.execPath, [tsc, '-p', consumer], consumer)).toThrow(/receipt/);
});
