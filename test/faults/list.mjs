// The planted faults, from the JSON files beside this one. How one is written: `README.md`.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const FIELDS = ['file', 'text', 'instead', 'why', 'test', 'pattern'];
const NEEDED = ['file', 'text', 'instead', 'why', 'test'];

/** @throws Error for an entry that is not written as it has to be */
export function plantedFaults() {
  const folder = import.meta.dirname;
  const faults = readdirSync(folder)
    .filter((file) => file.endsWith('.json'))
    .flatMap((file) =>
      Object.entries(JSON.parse(readFileSync(join(folder, file), 'utf8'))).map(([name, fault]) => ({ name, ...fault })),
    );
  for (const { name, ...fault } of faults) {
    const unknown = Object.keys(fault).filter((field) => !FIELDS.includes(field));
    const missing = NEEDED.filter((field) => typeof fault[field] !== 'string');
    if (unknown.length + missing.length > 0)
      throw new Error(`the fault ${name}: ${[...unknown, ...missing].join(', ')} is unknown or missing`);
    if (faults.filter((other) => other.name === name).length > 1) throw new Error(`two faults are called ${name}`);
  }
  return faults;
}

/** What is wrong with a fault: its text has to be in its file once, and the tests that it names have to be there. */
export function staleness({ name, file, text, instead, test, pattern = '' }, read) {
  const source = read(file);
  const tests = read(test);
  if (source === null) return `${name}: there is no ${file}`;
  const times = source.split(text).length - 1;
  if (times !== 1) return `${name}: ${file} has ${times === 0 ? 'no more' : `${times} times`}: ${text}`;
  if (text === instead) return `${name}: changes nothing`;
  if (tests === null) return `${name}: there is no ${test}`;
  return pattern.length > 0 && pattern.length < 4 ? `${name}: the pattern '${pattern}' matches too much` : null;
}
