import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { script, SCRIPT_NAMES } from '../../src/stores/redis/scripts.ts';

const FOLDER = fileURLToPath(new URL('../../src/stores/redis/scripts/', import.meta.url));

/** The words of a line of a script's leading comment: `-- @args epoch gateway`. */
function headerOf(body: string, tag: 'args' | 'rest' | 'replies'): readonly string[] {
  return new RegExp(`^-- @${tag} (.*)$`, 'm').exec(body)?.[1]?.split(' ') ?? [];
}

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
    expect(files.sort()).toEqual(SCRIPT_NAMES.map((name) => `${name}-1.lua`).sort());
    expect(SCRIPT_NAMES.length).toBeGreaterThanOrEqual(9);
  });

  it.each(SCRIPT_NAMES)('%s: the header names the arguments and replies that the code has', (name) => {
    const body = readFileSync(`${FOLDER}${name}-1.lua`, 'utf8');
    const args = headerOf(body, 'args');
    const replies = headerOf(body, 'replies');
    expect(args.slice(0, 3)).toEqual(['epoch', 'gateway', 'clock']);
    expect(replies.length).toBeGreaterThan(0);
    for (const tag of tagsReturned(body)) expect(replies).toContain(tag);
    for (const tag of replies) {
      const word = tag.replace('ok:', '');
      if (!REFUSALS.includes(word)) expect(body).toContain(`'${word}'`);
    }
    const highest = Math.max(0, ...[...body.matchAll(/(?:ARGV\[|document\()(\d+)/g)].map(([, index]) => Number(index)));
    expect(highest).toBeLessThanOrEqual(headerOf(body, 'rest').length > 0 ? Infinity : args.length);
  });

  it.each(SCRIPT_NAMES)('%s: derives every key from the one it is given, in the workspace’s slot', (name) => {
    const { source } = script(name);
    for (const [call, key] of source.matchAll(/\bcall\('[A-Z]+', ([^,)]+)/g)) {
      const allowed = /^(P \.\.|KEYS\[1\]|'replication'|unpack\(keys|list$)/.test(key ?? '');
      expect(allowed, call).toBe(true);
    }
  });

  it('never let cjson write a number, and give every number in full', () => {
    for (const name of SCRIPT_NAMES) {
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
    const checked = SCRIPT_NAMES.filter((name) => script(name).source.endsWith('\nreturn begin(false) or decide()'));
    expect(checked).toEqual(['leave', 'note', 'prune']);
    const unchecked = SCRIPT_NAMES.filter((name) => script(name).source.endsWith('\nreturn begin(true) or decide()'));
    expect(unchecked).toEqual(['epoch', 'handin', 'list', 'redo']);
    for (const name of ['join', 'commit'] as const) expect(script(name).source).toMatch(/\nlocal stop = begin\(/);
  });
});
