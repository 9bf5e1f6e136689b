import type { Watched } from './port.ts';

export interface Watcher {
  readonly kinds: readonly string[];
  readonly listener: (changed: Watched) => void;
}

/** @param changes `null`: anything may have changed */
export function notify(watchers: readonly Watcher[], changes: readonly Watched[] | null): void {
  for (const { kinds, listener } of watchers) {
    if (changes === null) for (const kind of kinds) listener({ workspace: null, kind, id: null });
    for (const changed of changes ?? []) if (kinds.includes(changed.kind)) listener(changed);
  }
}
