import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { ask, type Effect, of } from './api.ts';
import { follow } from './live.ts';

/** Which effects are shown, as the API takes it. */
export interface Filter {
  readonly decision?: string;
  readonly tool?: string;
  readonly agent_id?: string;
  readonly target?: string;
  readonly rule?: string;
  /** Who approved or rejected it. An effect does not say it: only the list knows. */
  readonly approver?: string;
  readonly since?: string;
}

interface Listed {
  readonly effects: readonly Effect[];
  readonly cursor: string | null;
}

interface Effects {
  /** Newest first. */
  readonly effects: readonly Effect[];
  readonly isLive: boolean;
  /** Whether there are no older ones. */
  readonly isEnd: boolean;
  /** Whether nothing has been read yet. */
  readonly isFirst: boolean;
  /** How many new ones are not shown yet, because the reader is further down: nothing jumps. */
  readonly fresh: number | typeof MANY;
  readonly fault: unknown;
  /** Reads older ones. */
  readonly more: () => void;
  readonly showFresh: () => void;
}

const PAGE = 100;
/** A list that was overtaken, or has grown too long at its top, is read again at most this often, ms. */
const REREAD_MS = 1_000;
/** With more rows than this the list begins anew, while the reader is at its top. */
const MOST_AT_TOP = 2_000;
/** So many new ones are kept, to count them, while the reader is further down; beyond them there are {@link MANY}. */
const MOST_FRESH = 1_000;
export const MANY = 'many';

/** The effects that fit a filter, kept up to date by the stream. */
export function useEffects(workspace: string, filter: Filter): Effects {
  const [listed, setListed] = useState<Listed | null>(null);
  const [fresh, setFresh] = useState<readonly Effect[] | typeof MANY>([]);
  const [isLive, setLive] = useState(false);
  const [fault, setFault] = useState<unknown>(null);
  const isReading = useRef(false);
  const latest = useRef<unknown>(null);
  const rereading = useRef(0);
  const words = JSON.stringify(filter);

  const read = useCallback(
    (cursor: string | null) => {
      const query = new URLSearchParams({ ...filter, limit: String(PAGE), ...(cursor === null ? {} : { cursor }) });
      return ask<{ effects: Effect[]; next_cursor: string | null }>(
        'GET',
        `${of(workspace)}/effects?${query.toString()}`,
      );
    },
    [workspace, words],
  );

  const readFirst = useCallback(async (): Promise<void> => {
    latest.current = read;
    try {
      const { effects, next_cursor } = await read(null);
      // The reader has gone on to other filters.
      if (latest.current !== read) return;
      setFresh([]);
      setFault(null);
      setListed({ effects, cursor: next_cursor });
    } catch (error) {
      if (latest.current === read) setFault(error);
    }
  }, [read]);

  const readAgain = useCallback((): void => {
    if (isAway()) return setFresh(MANY);
    if (rereading.current !== 0) return;
    rereading.current = window.setTimeout(() => {
      rereading.current = 0;
      void readFirst();
    }, REREAD_MS);
  }, [readFirst]);

  useEffect(() => {
    setListed(null);
    void readFirst();
    const stop = follow(workspace, {
      standing: setLive,
      lost: readAgain,
      changed(effects) {
        if (filter.approver !== undefined) return isAway() ? undefined : readAgain();
        const isToCount = isAway();
        const fitting = effects.filter((one) => fits(one, filter));
        setListed((before) => {
          if (before === null) return null;
          const shown = replaced(before.effects, effects, filter);
          return { ...before, effects: isToCount ? shown : merged(shown, fitting) };
        });
        if (isToCount) setFresh((known) => (known === MANY ? MANY : counted(merged(known, fitting))));
      },
    });
    return () => {
      stop();
      clearTimeout(rereading.current);
      rereading.current = 0;
    };
  }, [workspace, words, readFirst, readAgain]);

  // Back at the top, the list begins anew where it has a gap, or has grown long.
  const isOvertaken = fresh.length > 0 || (listed !== null && listed.effects.length > MOST_AT_TOP);
  useEffect(() => {
    if (isOvertaken && !isAway()) readAgain();
  }, [isOvertaken, listed, readAgain]);

  const more = (): void => {
    if (isReading.current || listed?.cursor == null) return;
    isReading.current = true;
    read(listed.cursor)
      .then(
        ({ effects, next_cursor }) =>
          setListed((now) =>
            now?.cursor === listed.cursor ? { effects: appended(now.effects, effects), cursor: next_cursor } : now,
          ),
        setFault,
      )
      .finally(() => {
        isReading.current = false;
      });
  };

  const known = new Set(fresh.length === 0 ? [] : listed?.effects.map(({ id }) => id));
  return {
    effects: listed?.effects ?? NONE,
    isLive,
    isEnd: listed !== null && listed.cursor === null,
    isFirst: listed === null && fault === null,
    fresh: fresh === MANY ? MANY : fresh.filter(({ id }) => !known.has(id)).length,
    fault,
    more,
    showFresh() {
      window.scrollTo(0, 0);
      void readFirst();
    },
  };
}

const NONE: readonly Effect[] = [];

/** Whether the reader is further down, where new rows would move what is read. */
function isAway(): boolean {
  return window.scrollY > 240;
}

function fits(effect: Effect, { decision, tool, agent_id, target, rule, since }: Filter): boolean {
  return (
    (decision === undefined || effect.decision === decision) &&
    (tool === undefined || effect.tool === tool) &&
    (agent_id === undefined || effect.agent_id === agent_id) &&
    (target === undefined || effect.target === target) &&
    (rule === undefined || effect.policy.matched.includes(rule)) &&
    (since === undefined || effect.created_at >= since)
  );
}

function counted(fresh: readonly Effect[]): readonly Effect[] | typeof MANY {
  return fresh.length > MOST_FRESH ? MANY : fresh;
}

/** The same rows, those that changed as they are now, without those that no longer fit. */
function replaced(shown: readonly Effect[], changed: readonly Effect[], filter: Filter): readonly Effect[] {
  const now = new Map(changed.map((effect) => [effect.id, effect]));
  if (!shown.some(({ id }) => now.has(id))) return shown;
  return shown.map((effect) => now.get(effect.id) ?? effect).filter((effect) => fits(effect, filter));
}

/** With those that are new, newest first. */
function merged(shown: readonly Effect[], changed: readonly Effect[]): readonly Effect[] {
  const known = new Set(shown.map(({ id }) => id));
  const added = [...new Map(changed.filter(({ id }) => !known.has(id)).map((effect) => [effect.id, effect])).values()];
  if (added.length === 0) return shown;
  const oldest = shown.at(-1)?.created_at;
  // An old effect that changed belongs further down than what was read so far.
  const inReach = added.filter(({ created_at }) => oldest === undefined || created_at >= oldest);
  return [...inReach, ...shown].sort((one, other) =>
    one.created_at < other.created_at ? 1 : one.created_at > other.created_at ? -1 : 0,
  );
}

function appended(shown: readonly Effect[], older: readonly Effect[]): readonly Effect[] {
  const known = new Set(shown.map(({ id }) => id));
  return [...shown, ...older.filter(({ id }) => !known.has(id))];
}
