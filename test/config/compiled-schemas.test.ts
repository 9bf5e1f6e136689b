import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { runInThisContext } from 'node:vm';
import type { ValidateFunction } from 'ajv/dist/2020.js';
import standaloneCode from 'ajv/dist/standalone/index.js';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import * as bounds from '../../src/config/bounds.ts';
import { compileDialect, compileFile, fileValidator, schemaValidator } from '../../src/config/validators.ts';

/** What the build writes to a file, run as that file would be. */
function written({ ajv, validate }: ReturnType<typeof compileDialect | typeof compileFile>): ValidateFunction {
  const load = createRequire(import.meta.url);
  const module: { exports: ValidateFunction } = { exports: validate };
  const code = standaloneCode.default(ajv, validate);
  const run: unknown = runInThisContext(`(function (module, require) {${code}\n})`);
  if (typeof run !== 'function') throw new Error('no function was made');
  run(module, (name: string) => (name === './bounds.js' ? bounds : load(name)));
  if (module.exports === validate) throw new Error('no function was written');
  return module.exports;
}

const CASES = readdirSync('test/config/broken')
  .flatMap((name) => readFileSync(`test/config/broken/${name}`, 'utf8').split(/^### .*$/m))
  .flatMap((text) => {
    try {
      return [JSON.stringify(parse(text.replaceAll(/^#=.*$/gm, '')))];
    } catch {
      return [];
    }
  });

function outcome(validate: ValidateFunction, data: unknown) {
  const isValid = validate(data);
  return { isValid, errors: validate.errors ?? [], data };
}

describe('schemas that the build compiles', () => {
  it('find what schemas find that are compiled by a start, and fill in the same defaults', () => {
    const [built, live] = [written(compileFile(true)), fileValidator()];
    expect(CASES.length).toBeGreaterThan(150);
    const found = CASES.map((text) => [outcome(built, JSON.parse(text)), outcome(live, JSON.parse(text))]);
    for (const [one, other] of found) expect(one).toEqual(other);
    for (const keyword of ['x-duration', 'x-size', 'required', 'pattern'])
      expect(found.some(([one]) => one?.errors.some((error) => error.keyword === keyword))).toBe(true);
  });

  it('of the dialect find the same in schemas', () => {
    const [built, live] = [written(compileDialect(true)), schemaValidator()];
    for (const schema of [
      { type: 'object' },
      { type: 'strng' },
      { properties: { a: { required: 1 } } },
      { items: [{}] },
    ])
      expect(outcome(built, schema)).toEqual(outcome(live, schema));
  });
});
