import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Difference, Recording } from './recording.ts';

/** So many differences are shown in full; more are named. */
const SHOWN = 12;

/** Lines that are shown of one. */
const LINES_SHOWN = 80;

/** What differs, in words: the first calls in full, all by name. */
export function describe(differences: readonly Difference[], recording: Recording, store: string): string {
  const sorted = differences.toSorted((a, b) => a.number - b.number);
  const full = sorted.slice(0, SHOWN).map((one) => `${nameOf(one, store)}\n${shown(one, recording)}`);
  const more = sorted.slice(SHOWN).map((one) => nameOf(one, store));
  return [...full, ...more].join('\n');
}

function nameOf({ number, title, was, is, parts }: Difference, store: string): string {
  const outcome = was === is ? is : `${was} -> ${is}`;
  return `call ${number} (${title}) on ${store}: ${outcome}; differs in ${parts.join(', ') || 'its title'}`;
}

function shown({ number, text, parts }: Difference, recording: Recording): string {
  const was = recording.texts.get(number);
  if (was === undefined) {
    const how = `of this call only a digest is kept: for its text as it was, run "npm run test:golden -- --text ${number}" on the commit of the recording`;
    return `${short(partsOf(text, ['request', ...parts]))}(${how})\n`;
  }
  const folder = mkdtempSync(join(tmpdir(), 'svc-golden-diff-'));
  try {
    writeFileSync(join(folder, 'recorded'), spread(was));
    writeFileSync(join(folder, 'now'), spread(text));
    const words = ['diff', '--no-index', '--no-color', '-U3', 'recorded', 'now'];
    const { stdout } = spawnSync('git', words, { cwd: folder, encoding: 'utf8' });
    return short(stdout.split('\n').slice(4).join('\n'));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Of a text, some parts; what differs is in them. */
function partsOf(text: string, parts: readonly string[]): string {
  const all = text.split(/^(?=-- \w+$)/m);
  return spread(all.filter((one) => parts.some((part) => one.startsWith(`-- ${part}\n`))).join(''));
}

function short(text: string): string {
  const lines = text.split('\n');
  if (lines.length <= LINES_SHOWN) return text;
  return `${lines.slice(0, LINES_SHOWN).join('\n')}\n… (${lines.length - LINES_SHOWN} lines more: --text shows all)\n`;
}

/** JSON over many lines, so that a difference is a line. */
export function spread(text: string): string {
  return text
    .split('\n')
    .map((line) => {
      try {
        return /^[[{]/.test(line)
          ? JSON.stringify(JSON.parse(line.replaceAll(/<the receipt>|:<\w+>/g, quoted)), null, 1)
          : line;
      } catch {
        return line;
      }
    })
    .join('\n');
}

function quoted(found: string): string {
  return found.startsWith(':') ? `:"${found.slice(1)}"` : `"${found}"`;
}
