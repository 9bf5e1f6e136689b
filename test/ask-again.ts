/** For ten seconds. */
const TRIES = 40;
const PAUSE_MS = 250;

/**
 * Asks again, as clients do, while the gateway says that it is overloaded and did nothing: a busy machine, or a freeze
 * that a test made, and no answer to what is asked.
 * @param textOf the body of an answer
 */
export async function askAgain<T>(ask: () => Promise<T>, textOf: (answer: T) => string): Promise<T> {
  let answer = await ask();
  for (let tries = 0; textOf(answer).includes('The gateway is overloaded') && tries < TRIES; tries += 1) {
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    answer = await ask();
  }
  return answer;
}
