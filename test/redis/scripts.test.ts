import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { parseHeader, script, scriptFile, type ScriptName, SCRIPTS } from '../../src/stores/redis/scripts.ts';

const FOLDER = fileURLToPath(new URL('../../src/stores/redis/scripts/', import.meta.url));
const NAMES = Object.keys(SCRIPTS) as ScriptName[];

/** Tags that the frame understands before a step has run. */
const REFUSALS = ['absent', 'new_history', 'new_epoch', 'waiting', 'unregistered', 'replica', 'clock_ahead'];

function tagsReturned(body: string): readonly string[] {
  const code = body
    .split('\n')
    .filter((line) => !line.trimStart().startsWith('--'))
    .join('\n');
  return [...code.matchAll(/(?:answer|finish)\((?:\{ )?'([a-z_]+)'/g)].map(([, tag]) => `ok:${tag}`);
}

describe('the scripts of the Redis store', () => {
  it('are the files of the folder, and the files are the table', () => {
    const files = readdirSync(FOLDER).filter((name) => name.endsWith('.lua'));
    expect(files.sort()).toEqual(NAMES.map((name) => `${name}-1.lua`).sort());
    expect(NAMES.length).toBeGreaterThanOrEqual(9);
  });

  it.each(NAMES)('%s: the header names the arguments and replies that the table and the code have', (name) => {
    const body = readFileSync(scriptFile(name), 'utf8');
    const header = parseHeader(body);
    expect(header.args).toEqual(['epoch', 'gateway', 'clock', ...SCRIPTS[name]]);
    expect(header.replies.length).toBeGreaterThan(0);
    for (const tag of tagsReturned(body)) expect(header.replies).toContain(tag);
    for (const tag of header.replies) {
      const word = tag.replace('ok:', '');
      if (!REFUSALS.includes(word)) expect(body).toContain(`'${word}'`);
    }
    const highest = Math.max(0, ...[...body.matchAll(/(?:ARGV\[|document\()(\d+)/g)].map(([, index]) => Number(index)));
    expect(highest).toBeLessThanOrEqual(header.args.length + (header.rest.length > 0 ? Infinity : 0));
  });

  it.each(NAMES)('%s: derives every key from the one it is given, in the workspace’s slot', (name) => {
    const { source } = script(name);
    expect(source).not.toContain('@include missing');
    for (const [call, key] of source.matchAll(/\bcall\('[A-Z]+', ([^,)]+)/g)) {
      const allowed = /^(P \.\.|KEYS\[1\]|'replication'|unpack\(keys|list$)/.test(key ?? '');
      expect(allowed, call).toBe(true);
    }
  });

  it('never let cjson write a number, and give every number in full', () => {
    for (const name of NAMES) {
      const { source } = script(name);
      // Lists that are encoded hold strings: figures pass through int().
      for (const [call] of source.matchAll(/cjson\.encode\(\{[^}]*\}\)/g)) {
        const figures = call.replace(/\[[^\]]*\]/g, '').replace(/int\([^)]*\)/g, '');
        expect(figures).not.toMatch(/\bnow\b|\b\d+\b/);
      }
      expect(source).not.toMatch(/tostring\((?!index)/);
    }
  });

  it('put their includes before themselves, each once', () => {
    const { source } = script('commit');
    expect(source.match(/local function begin\(/g)).toHaveLength(1);
    expect(source.match(/local function parts_of\(/g)).toHaveLength(1);
    expect(source.indexOf('local function begin(')).toBeLessThan(source.indexOf('local function decide()'));
  });

  it('check the gateway before they do anything, unless they are for one that may not write', () => {
    const checked = NAMES.filter((name) => script(name).source.endsWith('\nreturn begin(false) or decide()'));
    expect(checked).toEqual(['leave', 'note', 'prune']);
    const unchecked = NAMES.filter((name) => script(name).source.endsWith('\nreturn begin(true) or decide()'));
    expect(unchecked).toEqual(['epoch', 'handin', 'list', 'redo']);
    for (const name of ['join', 'commit'] as const) expect(script(name).source).toMatch(/\nlocal stop = begin\(/);
  });
});
