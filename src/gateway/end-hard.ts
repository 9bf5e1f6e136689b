/** Ends the process where an ordinary end would do harm, or would wait for a thread that never returns. */
export function endHard(): never {
  process.kill(process.pid, 'SIGKILL');
  // In a container, the first process does not receive this signal from itself.
  process.abort();
}
