// Runs the launcher with the words it is given; its last line on standard error is what that took.
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

process.argv.splice(1, 1, join(import.meta.dirname, '..', '..', 'bin', 'svc.mjs'));
process.on('exit', () => {
  const { maxRSS, userCPUTime, systemCPUTime } = process.resourceUsage();
  process.stderr.write(`\n${JSON.stringify({ kilobytes: maxRSS, cpuMs: (userCPUTime + systemCPUTime) / 1000 })}\n`);
});
await import(pathToFileURL(process.argv[1]).href);
