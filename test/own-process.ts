import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * What a test file says when it changes what every file in its process sees: a module that is replaced (also by one with
 * a planted fault), a global, the environment.
 */
const CHANGES =
  /\bvi\.(mock|doMock)\b|\bplanted(In)?\(|planted-faults|process\.env\[[^\]]*\] *=[^=]|delete process\.env|process\.chdir|\bsetGlobalDispatcher\(|\bglobalThis\.\w+ *=[^=]/;

/** What may be changed beside others, who come later, by a file that changes it back. */
const CHANGED_BACK = [
  ['vi.stubEnv(', 'vi.unstubAllEnvs('],
  ['vi.stubGlobal(', 'vi.unstubAllGlobals('],
  ['vi.useFakeTimers(', 'vi.useRealTimers('],
] as const;

/** What it says when it claims how long the event loop is held, or what is kept in memory: others would add to that. */
const MEASURES = /\bshortest\(|monitorEventLoopDelay|eventLoopUtilization|performance\.now\(|memoryUsage\(|\bgc\(/;

/** Test files below the folders that need a process of their own; all others may share one, and the modules in it. */
export function needOwnProcess(folders: readonly string[]): readonly string[] {
  return folders.flatMap((folder) =>
    readdirSync(folder, { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('.test.ts'))
      .map((file) => join(folder, file))
      .filter((file) => {
        const text = readFileSync(file, 'utf8');
        const isLeft = CHANGED_BACK.some(([change, back]) => text.includes(change) && !text.includes(back));
        return isLeft || CHANGES.test(text) || MEASURES.test(text);
      }),
  );
}
