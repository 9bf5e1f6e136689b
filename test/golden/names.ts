/** What differs from run to run: keys, ids, times, signatures, salted digests, addresses. First match wins. */
const VARYING = new RegExp(
  [
    String.raw`(?<jws>\beyJ[\w-]+\.[\w-]+\.[\w-]+)`,
    String.raw`(?<key>svc_(?:acct|agent|admin|mcp)_[0-9A-Za-z]{50})`,
    String.raw`(?<id>\b(?:[a-z]{2,6}_[0-9a-hjkmnp-tv-z]{26}|key_[0-9A-Za-z]{12})\b)`,
    String.raw`(?<uuid>\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?:\.[\w-]{43})?)`,
    String.raw`(?<time>\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)`,
    String.raw`(?<commitment>sc1:[\w-]{43}|(?<=comment_salt\\?":\s?\\?")[\w-]{22})`,
    String.raw`(?<address>\b127\.0\.0\.1:\d+)`,
    String.raw`(?<pin>\\?"(?:tool_pin|pin|digest|key_id)\\?":\\?"[\w-]{43}\\?")`,
    String.raw`(?<once>\bonce:[0-9a-hjkmnp-tv-z]{26})`,
    String.raw`(?<derived>\bderived:\d+:\d+)`,
    String.raw`(?<folder>/[\w/.-]*svc-gw-\w{6})`,
    String.raw`(?<kid>\bkey [\w-]{43}(?=\.))`,
    String.raw`(?<window>"c:\d{13}:\d{13}")`,
    String.raw`(?<cursor>\b[0-9a-z]{8,9}\.(?=(?:eff|apr)_))`,
    String.raw`(?<seq>\\?"seq\\?":\d+|\bevt_\d+_\d+)`,
    String.raw`(?<node>\\?"node\\?":\\?"\d+\.\d+\.\d+\\?")`,
    String.raw`(?<ms>\\?"(?:duration_ms|retry_after_ms)\\?":\d+(?:\.\d+)?)`,
  ].join('|'),
  'g',
);

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
/** A time that is nearer than this is now: how long calls take is the machine's matter. */
const NOW_MS = 45_000;

/** Gives what varies a name by where it appeared first, so that one thing more in a call changes no other call. */
export class Names {
  readonly #addresses: ReadonlyMap<string, string>;
  readonly #isCounted: boolean;
  readonly #began = Date.now();
  readonly #known = new Map<string, string>();
  /** Of the call that is being recorded, by kind. */
  #counts = new Map<string, number>();
  #call = 0;

  /**
   * @param addresses names of `host:port`
   * @param isCounted whether the places in the ledger are the same in each run; where reads are, which the gateway writes
   *   in batches by time, they are not
   */
  constructor(addresses: ReadonlyMap<string, string>, isCounted: boolean) {
    this.#addresses = addresses;
    this.#isCounted = isCounted;
  }

  begin(call: number): void {
    this.#call = call;
    this.#counts = new Map();
  }

  /** A name of one's own for a text, such as that of a key. */
  give(value: string, name: string): void {
    this.#known.set(value, `<${name}>`);
  }

  /** The text, with names in the place of what varies. */
  of(text: string): string {
    return text.replace(VARYING, (found: string, ...more: unknown[]) => {
      const groups = more.at(-1);
      if (typeof groups !== 'object' || groups === null) return found;
      const kind = Object.entries(groups).find(([, value]) => value !== undefined)?.[0] ?? '';
      return this.#nameOf(kind, found);
    });
  }

  /** A name for a value of a kind, by where it appeared first. */
  named(kind: string, value: string): string {
    let name = this.#known.get(value);
    if (name === undefined) {
      const count = (this.#counts.get(kind) ?? 0) + 1;
      this.#counts.set(kind, count);
      name = `<${kind} ${this.#call}.${count}>`;
      this.#known.set(value, name);
    }
    return name;
  }

  #nameOf(kind: string, found: string): string {
    switch (kind) {
      case 'jws':
      case 'commitment':
      case 'window':
      case 'cursor':
      case 'folder':
        return `<${kind}>`;
      case 'seq':
        return this.#isCounted ? found : found.replace(/(?:evt_\d+_)?\d+$/, '<seq>');
      case 'kid':
        return 'key <kid>';
      case 'pin':
        return this.#member(found, kind);
      case 'address':
        return this.#addresses.get(found) ?? found;
      case 'derived':
        return found.replace(/\d+$/, '<window>');
      case 'node':
      case 'ms':
        return `${found.slice(0, found.indexOf(':'))}:<${kind}>`;
      case 'time':
        return this.#time(found);
      case 'id':
        return this.named(found.slice(0, found.indexOf('_')), found);
      default:
        return this.named(kind, found);
    }
  }

  /** The name of a member stays; its value, 43 characters of a digest, is named. */
  #member(found: string, kind: string): string {
    const value = /[\w-]{43}/.exec(found)?.[0] ?? '';
    return found.replace(value, this.named(kind, value));
  }

  /** How far a time is ahead, in units that a slow machine does not change; remembered, since it comes nearer. */
  #time(text: string): string {
    const known = this.#known.get(text);
    if (known !== undefined) return known;
    const at = Date.parse(text);
    const ahead = at - Date.now();
    let name = '<now>';
    if (at % DAY_MS === 0) name = `<${text.slice(5, 10)}>`;
    else if (at < this.#began - NOW_MS) name = `<before the run: ${text}>`;
    else if (ahead > 2 * DAY_MS) name = `<+${Math.round(ahead / DAY_MS)}d>`;
    else if (ahead > 100 * MINUTE_MS) name = `<+${Math.round(ahead / HOUR_MS)}h>`;
    else if (ahead > NOW_MS) name = `<+${Math.round(ahead / MINUTE_MS)}m>`;
    if (name !== '<now>') this.#known.set(text, name);
    return name;
  }
}
