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
  /** New ones that are not shown yet, because the reader is further down: nothing jumps. */
  readonly fresh: number;
  readonly fault: unknown;
  /** Reads older ones. */
  readonly more: () => void;
  readonly showFresh: () => void;
}

const PAGE = 100;
/** A list that was overtaken is read again at most this often, ms. */
const REREAD_MS = 1_000;

/** The effects that fit a filter, kept up to date by the stream. */
export function useEffects(workspace: string, filter: Filter): Effects {
  const [listed, setListed] = useState<Listed | null>(null);
  const [fresh, setFresh] = useState<readonly Effect[]>([]);
  const [isLive, setLive] = useState(false);
  const [fault, setFault] = useState<unknown>(null);
  const isReading = useRef(false);
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
    try {
      const { effects, next_cursor } = await read(null);
      setFresh([]);
      setFault(null);
      setListed({ effects, cursor: next_cursor });
    } catch (error) {
      setFault(error);
    }
  }, [read]);

  useEffect(() => {
    setListed(null);
    void readFirst();
    const readAgain = (): void => {
      if (rereading.current !== 0 || isAway()) return;
      rereading.current = window.setTimeout(() => {
        rereading.current = 0;
        void readFirst();
      }, REREAD_MS);
    };
    const stop = follow(workspace, {
      standing: setLive,
      lost: readAgain,
      changed(effects) {
        if (filter.approver !== undefined) {
          readAgain();
          return;
        }
        setListed((before) => before && { ...before, effects: replaced(before.effects, effects, filter) });
        const added = (known: readonly Effect[]): readonly Effect[] =>
          merged(
            known,
            effects.filter((one) => fits(one, filter)),
          );
        if (isAway()) setFresh(added);
        else
          setListed(
            (before) =>
              before && {
                ...before,
                effects: merged(
                  before.effects,
                  effects.filter((one) => fits(one, filter)),
                ),
              },
          );
      },
    });
    return () => {
      stop();
      clearTimeout(rereading.current);
      rereading.current = 0;
    };
  }, [workspace, words, readFirst]);

  const more = (): void => {
    if (isReading.current || listed?.cursor == null) return;
    isReading.current = true;
    read(listed.cursor)
      .then(
        ({ effects, next_cursor }) =>
          setListed((before) => before && { effects: appended(before.effects, effects), cursor: next_cursor }),
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
    fresh: fresh.filter(({ id }) => !known.has(id)).length,
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
