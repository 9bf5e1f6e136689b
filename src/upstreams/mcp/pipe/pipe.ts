/** Headers of a request; of use to a pipe that is made of requests. */
export type PipeHeaders = Readonly<Record<string, string>>;

/** What carries messages to one server and back, in order, for one session. */
export interface Pipe {
  /** The id of the process at the other end; `null` where there is none. */
  readonly pid: number | null;
  /** Resolves when nothing of it is left. */
  readonly gone: Promise<void>;
  /** Sends one message, and tells what became of that. */
  send(message: Buffer, headers: PipeHeaders, sending: Sending): void;
  /** Reads no more of what the server says until {@link resume}. */
  pause(): void;
  resume(): void;
  /** Ends it in the way that the server expects. */
  end(): void;
  /** Ends it at once. */
  kill(why: string): void;
}

/** One message on its way into a pipe. After `start`, one of the others is called. */
export interface Sending {
  /** Asked in the turn in which it is written. @returns `false` where it may not be: nothing else is called */
  start(): boolean;
  taken(): void;
  /** The server has not taken it. @param answer a JSON-RPC error */
  refused(status: number, answer: Buffer): void;
  /** Whether the server has it is not known; without `start`, it has not. */
  lost(error: Error): void;
}

export interface PipeEvents {
  /** A message of the server. There may be line breaks between its parts. */
  line(bytes: Buffer): void;
  /** It has ended, or never began. Comes once, and nothing comes after it. */
  over(why: string): void;
}
