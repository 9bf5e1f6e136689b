import { script, SCRIPT_NAMES } from '../../src/stores/redis/scripts.ts';
import { handOn, startRelay } from './relay.ts';

/** A command as it went to the server. */
export interface SentCommand {
  /** A script by its name, `EVALSHA admit`; others by their first word. */
  readonly name: string;
  /** The first key of a script, else the first argument. */
  readonly about: string;
}

/** A way to a server that sees every command, can break off at one, and can hold every answer back. */
export interface CountedRoute {
  readonly url: string;
  /** What went by since the last call of this. */
  taken(): readonly SentCommand[];
  /** Each answer arrives so much later from now on, ms. */
  delay(ms: number): void;
  stop(): Promise<void>;
}

const NAMES = new Map(SCRIPT_NAMES.map((name) => [script(name).sha, name]));

/**
 * Starts a way to a server on loopback.
 * @param passes asked for each command; where it says no, the connection ends before it
 */
export async function countedRoute(
  port: number,
  passes: (command: SentCommand) => boolean = () => true,
): Promise<CountedRoute> {
  let seen: SentCommand[] = [];
  let delayMs = 0;
  const relay = await startRelay(
    () => port,
    (near, far) => {
      let unread: Buffer = Buffer.alloc(0);
      near.on('data', (bytes: Buffer) => {
        const { commands, rest } = commandsOf(Buffer.concat([unread, bytes]));
        unread = rest;
        const sent = commands.map(sentCommand);
        seen.push(...sent);
        if (sent.every(passes)) far.write(bytes);
        else near.destroy();
      });
      handOn(far, near, () => delayMs);
    },
  );
  return {
    url: `redis://127.0.0.1:${relay.port}`,
    taken() {
      const taken = seen;
      seen = [];
      return taken;
    },
    delay(ms) {
      delayMs = ms;
    },
    stop: relay.stop,
  };
}

function sentCommand(words: readonly string[]): SentCommand {
  const [name = '', first = '', , key = ''] = words;
  const upper = name.toUpperCase();
  if (upper !== 'EVALSHA' && upper !== 'EVAL') return { name: upper, about: first };
  return { name: `${upper} ${NAMES.get(first) ?? first.slice(0, 40)}`, about: key };
}

/** Whole commands at the start of what a client sent, and what is left. Clients send lists of strings only. */
function commandsOf(bytes: Buffer): { readonly commands: readonly (readonly string[])[]; readonly rest: Buffer } {
  const commands: string[][] = [];
  let from = 0;
  for (;;) {
    let at = from;
    /** The number after `*` or `$`; `null` where the line is not whole. */
    const count = (): number | null => {
      const end = bytes.indexOf('\r\n', at);
      if (end === -1) return null;
      const text = bytes.toString('latin1', at + 1, end);
      at = end + 2;
      return Number(text);
    };
    const words: string[] = [];
    const length = at < bytes.length ? count() : null;
    if (length === null) return { commands, rest: bytes.subarray(from) };
    for (let n = 0; n < length; n += 1) {
      const size = at < bytes.length ? count() : null;
      if (size === null || at + size + 2 > bytes.length) return { commands, rest: bytes.subarray(from) };
      words.push(bytes.toString('utf8', at, at + size));
      at += size + 2;
    }
    commands.push(words);
    from = at;
  }
}
