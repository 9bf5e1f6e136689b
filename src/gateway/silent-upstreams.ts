import type { Note } from '../effects/model/note.ts';
import type { EffectPorts } from '../effects/ports.ts';

/** So many calls in a row without an answer are worth a note. */
const NOTEWORTHY = 3;
/** After this without a call nobody knows whether it still is silent, ms. */
const FORGOTTEN_MS = 3_600_000;

/** Which upstreams do not answer, by what became of the calls and reads that were sent there. */
export class SilentUpstreams {
  /** Of each upstream its calls in a row that had no answer, and why the last one had none. */
  readonly #silences = new Map<string, { since: number; calls: number; lastAt: number; code: string }>();
  readonly known: ReadonlyMap<string, unknown> = this.#silences;
  readonly #alert;

  /** @param alert told once for each silence that is worth a note */
  constructor(alert: (upstream: string, code: string) => void) {
    this.#alert = alert;
  }

  /** An upstream was called. @param code why there was no answer; `null`: there was one, whatever it said */
  heard(upstream: string, code: string | null): void {
    if (code === null) {
      this.#silences.delete(upstream);
      return;
    }
    const now = Date.now();
    const before = this.#silences.get(upstream) ?? { since: now, calls: 0 };
    const calls = before.calls + 1;
    this.#silences.set(upstream, { since: before.since, calls, lastAt: now, code });
    if (calls === NOTEWORTHY) this.#alert(upstream, code);
  }

  /** The same of a governed call. What the gateway held back says nothing of the upstream. */
  readonly called: EffectPorts['silent']['called'] = (upstream, { code, answered }) => {
    if (code !== 'not_dispatched') this.heard(upstream, answered === null ? code : null);
  };

  /** Of each upstream that is silent. The address stays out of it: everybody may read notes. */
  notes(now: number): readonly Note[] {
    return [...this.#silences].flatMap(([upstream, { since, calls, lastAt, code }]) => {
      if (calls < NOTEWORTHY || now - lastAt > FORGOTTEN_MS) return [];
      const message = `The last ${calls} calls of ${upstream} had no answer (${code}), the latest ${Math.round((now - lastAt) / 60_000)} min ago. svc doctor asks each upstream and says why it is not reached; svc effects list --state unknown has what may have arrived.`;
      return [{ part: 'upstream', message, since }];
    });
  }
}
