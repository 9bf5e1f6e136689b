import type { PauseRecord, PauseScope } from '../effects/model/pause.ts';
import type { PauseMatch, PauseSubject, PauseView } from '../effects/ports.ts';
import type { EffectStore } from '../effects/store.ts';
import { compilePattern } from '../policy/glob.ts';

/** A version that no store has: an admission with it is stale, so the view is loaded. */
const NOT_LOADED = -1;

/**
 * The gateway's view of pauses, with their patterns compiled. A notice from the store or a stale admission reloads it.
 */
export interface LivePauseView extends PauseView {
  refresh(workspace: string): Promise<void>;
  /** Workspaces whose pauses are known here. */
  loaded(): readonly string[];
  isLoaded(workspace: string): boolean;
  onChange(listener: (workspace: string) => void): void;
}

/** Makes the view. A workspace is loaded when it is first asked for. */
export function createPauseView(store: EffectStore): LivePauseView {
  const known = new Map<
    string,
    {
      readonly version: number;
      readonly pauses: readonly { readonly pause: PauseRecord; readonly stops: (subject: PauseSubject) => boolean }[];
    }
  >();
  const listeners: ((workspace: string) => void)[] = [];

  async function refresh(workspace: string): Promise<void> {
    const { version, pauses } = await store.pauses(workspace);
    const before = known.get(workspace);
    if (before !== undefined && before.version >= version) return;
    // What was compiled is kept: a pause more costs no more where there are many.
    const compiled = new Map(before?.pauses.map(({ pause, stops }) => [JSON.stringify(pause.scope), stops]));
    const stops = ({ scope }: PauseRecord) => compiled.get(JSON.stringify(scope)) ?? matcher(scope);
    known.set(workspace, { version, pauses: pauses.map((pause) => ({ pause, stops: stops(pause) })) });
    for (const listener of listeners) listener(workspace);
  }

  store.onPausesChanged((workspace) => {
    // If the refresh fails, the old version stays, and admission finds it stale.
    refresh(workspace).catch(() => undefined);
  });

  return {
    refresh,
    loaded: () => [...known.keys()],
    isLoaded: (workspace) => known.has(workspace),
    version: (workspace) => known.get(workspace)?.version ?? NOT_LOADED,
    match(workspace, subject, now): PauseMatch | null {
      for (const { pause, stops } of known.get(workspace)?.pauses ?? []) {
        if ((pause.until === null || now < pause.until) && stops(subject))
          return { id: pause.id, reason: pause.reason, until: pause.until };
      }
      return null;
    },
    onChange: (listener) => void listeners.push(listener),
  };
}

function matcher(scope: PauseScope): (subject: PauseSubject) => boolean {
  switch (scope.kind) {
    case 'workspace':
      return () => true;
    case 'agent':
      return ({ agentId }) => agentId === scope.id;
    case 'upstream':
      return ({ upstream }) => upstream === scope.id;
    case 'key':
      return ({ keyId }) => keyId === scope.id;
    case 'tool': {
      const compiled = compilePattern('glob', scope.glob);
      // A pattern that cannot be read stops everything: no pause may silently do nothing.
      return compiled.ok ? ({ tool }) => compiled.test(tool) : () => true;
    }
  }
}
