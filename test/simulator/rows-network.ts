import { StoreUnavailable } from '../../src/effects/store.ts';
import type { Answer, Change, RowStore, Seen } from '../../src/stores/port.ts';
import { commitTo, type MapRows, mapStore } from '../port/map-rows.ts';

/** Something on its way between a gateway and the store: a batch of changes, or a read. */
export interface Message {
  /** Gateway and number: the same in each run that the gateway takes the same way through. */
  readonly name: string;
  readonly from: string;
  readonly isRead: boolean;
  /** Waits to be made; or its answer waits to be delivered. */
  state: 'sent' | 'made';
  /** The gateway was told that the store is not available, and waits no longer. */
  isForgotten: boolean;
  readonly parts: Part[];
}

interface Part {
  make(): void;
  refuse(): void;
  deliver(isAsked: boolean): string;
  fail(): void;
}

/** The network between gateways and the one store. Nothing in it moves by itself. */
export interface Network {
  readonly messages: Message[];
  /** The store of one gateway, or of one that came in its place. */
  connect(gateway: string, clock: () => number): RowStore;
  /** Changes of the same turn travel together. To be called between two turns. */
  endTurn(): void;
  make(message: Message): void;
  /** The store makes nothing, and says that rows have moved. */
  refuse(message: Message): void;
  /** @returns what the gateway hears, where it is asked for */
  deliver(message: Message, isAsked: boolean): string;
  /** The gateway hears that the store is not available; what has not been made may be made still. */
  forget(message: Message): void;
  drop(message: Message): void;
  /** From now on nothing of a gateway gets an answer. */
  cut(gateway: string): void;
}

/** The store's side of a commit; a mutant puts its own in its place. */
export type Commit = typeof commitTo;

export function createNetwork(
  rows: MapRows,
  now: () => number,
  commit: Commit,
  told: (change: Change, answer: Answer) => void,
): Network {
  const messages: Message[] = [];
  const sent = new Map<string, number>();
  const cut = new Set<string>();
  let open = new Map<string, Message>();

  function send(from: string, isRead: boolean): Message {
    const there = isRead ? undefined : open.get(from);
    if (there !== undefined) return there;
    const number = (sent.get(from) ?? 0) + 1;
    sent.set(from, number);
    const message: Message = {
      name: `${from}:${isRead ? 'read' : 'batch'} ${number}`,
      from,
      isRead,
      state: 'sent',
      isForgotten: false,
      parts: [],
    };
    messages.push(message);
    if (!isRead) open.set(from, message);
    return message;
  }

  /** @param refusal what the store answers where it makes nothing */
  function ask<Value>(from: string, isRead: boolean, work: () => Value, refusal: () => Value): Promise<Value> {
    return new Promise((resolve, reject) => {
      if (cut.has(from)) return;
      let answer: Value | undefined;
      send(from, isRead).parts.push({
        make() {
          answer = work();
        },
        refuse() {
          answer = refusal();
        },
        deliver(isAsked) {
          if (answer === undefined) throw new Error('an answer is delivered that was not made');
          resolve(answer);
          return isAsked ? JSON.stringify(answer) : '';
        },
        fail: () => reject(new StoreUnavailable('The store does not answer.')),
      });
    });
  }

  function remove(message: Message): void {
    const at = messages.indexOf(message);
    if (at >= 0) messages.splice(at, 1);
    if (open.get(message.from) === message) open.delete(message.from);
  }

  return {
    messages,
    connect(gateway, clock) {
      const direct = mapStore(rows, now);
      const there = <Value>(work: () => Promise<Value>): Promise<Value> =>
        cut.has(gateway) ? new Promise(() => {}) : work();
      return {
        read(workspace, wants, sums) {
          const look = (): Seen => lookAt(rows, now(), workspace, wants, sums);
          return ask(gateway, true, look, look);
        },
        commit(change) {
          const work = (): Answer => {
            const answer = commit(rows, change, now());
            told(change, answer);
            return answer;
          };
          const refusal = (): Answer => {
            const { counters } = lookAt(rows, now(), change.workspace, [], change.sums);
            return { kind: 'moved', now: now(), epoch: rows.epoch, rows: [], counters };
          };
          return ask(gateway, false, work, refusal);
        },
        rows: (workspace, names) => there(() => direct.rows(workspace, names)),
        list: (query) => there(() => direct.list(query)),
        sums: (workspace, limit) => there(() => direct.sums(workspace, limit)),
        ledger: (query) => there(() => direct.ledger(query)),
        watch: () => {},
        prune: (workspace, limit) => there(() => direct.prune(workspace, limit)),
        now: clock,
        async close() {},
      };
    },
    endTurn() {
      open = new Map();
    },
    make(message) {
      for (const part of message.parts) part.make();
      if (message.isForgotten) remove(message);
      else message.state = 'made';
    },
    refuse(message) {
      for (const part of message.parts) part.refuse();
      message.state = 'made';
    },
    deliver(message, isAsked) {
      remove(message);
      return message.parts.map((part) => part.deliver(isAsked)).join();
    },
    forget(message) {
      for (const part of message.parts) part.fail();
      if (message.state === 'made') remove(message);
      else message.isForgotten = true;
    },
    drop(message) {
      remove(message);
      if (!message.isForgotten) for (const part of message.parts) part.fail();
    },
    cut: (gateway) => void cut.add(gateway),
  };
}

/** A read, at once: a change that writes nothing and confirms nothing says what is there. */
function lookAt(
  rows: MapRows,
  now: number,
  workspace: string,
  wants: Parameters<RowStore['read']>[1],
  sums: Parameters<RowStore['read']>[2],
): Seen {
  const answer = commitTo(
    rows,
    {
      id: 'look',
      workspace,
      epoch: rows.epoch,
      at: 0,
      from: now + 1,
      until: now,
      guards: wants.map((want) => ({ ...want, version: 'of no row' })),
      puts: [],
      sums: sums.map((sum) => ({ ...sum, hold: 0, spend: 0, limit: null, most: null, text: null })),
      resets: [],
      events: [],
    },
    now,
  );
  if (answer.kind === 'done') throw new Error('a look writes nothing');
  return answer;
}
