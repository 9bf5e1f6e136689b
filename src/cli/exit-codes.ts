import type { Command } from 'commander';

/** What the exit codes of every command mean. `docs/operating/exit-codes.md` has the same tables. */
export const EXIT_CODES = {
  0: 'done',
  1: 'the answer is no, or the gateway refused',
  2: 'could not run: no key, no answer, or a file or store that cannot be used',
  64: 'the command line is wrong; nothing was tried',
} as const;

/** What they mean of single commands, where that is more; `null`: nothing more. */
export const OF_COMMANDS: Readonly<Record<string, readonly [done: string, no: string, failed: string | null]>> = {
  start: ['stopped by a signal', 'ended by a fault of its own, after what ran was settled', null],
  doctor: ['nothing failed', 'something failed', null],
  status: ['nothing waits for somebody', 'something does', 'it cannot be told, or the key may not see all of it'],
  'config check': ['it can be used', 'there are findings', 'it cannot be read'],
  init: ['written', 'written, but the configuration has findings; with --diff: something changes', 'not written'],
  'keys revoke': ['revoked, now or before', 'there is no such key, or the gateway refused', null],
  'keys rotate': ['rotated', 'no such key, or it was ended; or the gateway refused', null],
  'effects resolve': ['settled', 'refused for one or more', null],
  export: ['written', 'the gateway refused', 'could not run, or the answer broke off: no file was made'],
  'policy digest': ['printed', 'they are no policy sets', 'a file cannot be read'],
  resume: ['lifted, or nothing is paused', 'something is paused and no pause was named', null],
  verify: ['VALID', 'INVALID', 'UNDECIDABLE, or a file cannot be read'],
  fsck: ['the store is as its ledger says', 'something differs', null],
  restore: ['restored', 'restored, but calls that ran since the backup may be missing', 'not restored'],
  migrate: ['a start opens the store, or makes one', 'a start refuses it, or there is no migration', null],
  'tools diff': ['nothing is different', 'something is different', null],
};

/** The exit codes of a command, as they stand under its help. */
export function exitCodesOf(command: Command): string {
  const words: string[] = [];
  for (let at: Command | null = command; at?.parent; at = at.parent) words.unshift(at.name());
  const [done, no, failed] = OF_COMMANDS[words.join(' ')] ?? [EXIT_CODES[0], EXIT_CODES[1], null];
  return `\nExit codes:\n  0   ${done}\n  1   ${no}\n  2   ${failed ?? EXIT_CODES[2]}\n  64  ${EXIT_CODES[64]}`;
}
