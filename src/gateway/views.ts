import { Brain } from '../brain/brain.ts';
import { createEntityFacts } from '../brain/facts.ts';
import { createBrainWriter } from '../brain/writer.ts';
import { namesGateway } from '../api/own-names.ts';
import type { People } from '../effects/run/recall.ts';
import type { EffectStore } from '../effects/store.ts';
import { wasNamed } from '../identity/authenticate.ts';
import { createDirectory, type Directory } from '../identity/directory.ts';
import { keyState } from '../identity/key-record.ts';
import { createUpstreams, type Upstreams } from '../upstreams/upstreams.ts';
import type { ExitStack } from './exit-stack.ts';
import type { Ground } from './ground.ts';
import type { OwnSettings } from './in-force.ts';
import type { PauseRecord, PauseScope } from '../effects/model/pause.ts';
import type { PauseMatch, PauseSubject, PauseView } from '../effects/ports.ts';
import { compilePattern } from '../policy/glob.ts';
import type { ApiPorts } from '../api/ports.ts';
import type { Reason } from '../effects/model/decision.ts';
import type { Note } from '../effects/model/note.ts';
import { pinnedCall, type Tool } from '../effects/model/tool.ts';
import { comparisonInSteps, type LiveServer, type PinComparison, type ServerWords } from '../pins/compare.ts';
import type { PinnedTool } from '../pins/lock-file.ts';
import { type Catalog, type PinnedAt, pinnedAt } from '../upstreams/catalog.ts';
import type { McpUpstream } from '../upstreams/mcp/mcp-upstream.ts';
import { type OnSeen, pinOf } from '../upstreams/mcp/pin-watch.ts';
import { inSlices } from './slices.ts';

/** What calls are judged by beside the policies, and where they go. */
export type Views = ReturnType<typeof openViews>;

/** Opens what the gateway knows of agents, people, pauses, the company brain and the upstreams. */
export function openViews(
  { held, configuration, store, secrets, logger }: Ground,
  own: OwnSettings,
  opened: ExitStack,
) {
  const brain = new Brain({
    store,
    turns: store.turns,
    failed: (workspace, err) => logger.error({ workspace, err }, 'the company brain cannot be read; it is tried again'),
  });
  opened.push(async () => brain.close());
  const brainWriter = createBrainWriter({
    store,
    digestKey: (workspace) => secrets.fingerprintKey(workspace),
    limits: () => held.inForce.configuration.brain.limits,
  });
  let toolsSeen: ReturnType<typeof createPinAlarm>['heed'] = () => undefined;
  const upstreams = createUpstreams(
    configuration.upstreams,
    configuration.limits,
    store.now,
    (upstream, names) => toolsSeen(upstream, names),
    (address) => namesGateway(address, own.read()),
  );
  opened.push(() => upstreams.close());
  const directory = createDirectory(configuration, store);
  return {
    directory,
    people: peopleOf(directory, store),
    pauses: createPauseView(store),
    entities: createEntityFacts(store),
    brain,
    brainWriter,
    upstreams,
    pins: createPinView(upstreams, () => held.inForce),
    /** From now on the alarm hears what MCP servers say of their tools. */
    heed(alarm: typeof toolsSeen): void {
      toolsSeen = alarm;
    },
  };
}

function peopleOf(directory: Directory, store: EffectStore): People {
  return {
    rolesOf: (user) => directory.rolesOf(user),
    // A user whom the configuration does not name has no roles: only the key is known.
    since: async (user) => (directory.isUser(user) ? store.userSince(user) : 0),
    agent: (workspace, id) => directory.agent(workspace, id),
    async key(keyId) {
      const record = await store.key(keyId.slice('key_'.length));
      // A call is only sent while its key is valid. During the overlap of a rotation, the old key still is.
      if (record === null || keyState(record, store.now()) !== 'active') return null;
      const isOver =
        record.user !== null && !directory.isUser(record.user) && (await wasNamed(record.user, directory, store));
      return isOver ? null : { profile: record.profile };
    },
  };
}

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

type Shown = ApiPorts['pins'];

/** Whether the tools of MCP servers are as they were approved. */
export interface PinView extends Shown {
  /** What is to be waited for before a call is judged; `null` where enough is known. */
  known(tool: Tool): Promise<void> | null;
  /** Why a call of the tool is refused whatever policy says; `null` where its pin refuses nothing. */
  refusal(tool: Tool): Reason | null;
}

interface Declared {
  readonly configuration: { readonly upstreams: readonly { readonly id: string }[] };
  readonly catalog: Pick<Catalog, 'tools' | 'tool'>;
}

/** Characters of a tool that is compared here. A look takes longer ones, and what compares them takes its time. */
const MOST_COMPARED = 64 * 1024;

/** Looks at tools beside what their servers say of them now. @param declared what is declared now */
export function createPinView(upstreams: Pick<Upstreams, 'server'>, declared: () => Declared): PinView {
  const stateOf: PinView['stateOf'] = (tool) => {
    const call = pinnedCall(tool);
    const server = call === null ? null : upstreams.server(tool.upstream);
    // Without a server nothing can be sent either.
    return call === null || server === null ? null : server.pins.stateOf(server.settings.mcp.words, call);
  };
  return {
    stateOf,
    known(tool) {
      const call = pinnedCall(tool);
      const server = call === null ? null : upstreams.server(tool.upstream);
      return call === null || server === null ? null : server.pins.known(server, call);
    },
    refusal(tool) {
      const state = stateOf(tool);
      switch (state) {
        case null:
        case 'pinned':
          return null;
        case 'changed':
          return {
            code: 'tool_quarantined',
            message: `The server says something else of ${tool.name} than what was approved. Somebody has to look at what changed and approve it (svc tools diff, svc tools approve).`,
          };
        case 'gone':
          return {
            code: 'tool_quarantined',
            message: `The server does not list ${tool.name} any more. Somebody has to look at what changed (svc tools diff).`,
          };
        case 'unseen': {
          const why = upstreams.server(tool.upstream)?.pins.failure ?? 'it was not looked at yet';
          return {
            code: 'tool_unseen',
            message: `Whether ${tool.name} is as it was approved cannot be seen: the server does not say what its tools are (${why.slice(0, 200)}). Call again in a moment.`,
          };
        }
      }
    },
    seen: () =>
      declared().configuration.upstreams.flatMap(({ id: upstream }) => {
        const pins = upstreams.server(upstream)?.pins;
        if (pins === undefined) return [];
        const { catalog } = declared();
        const unapproved = pins.names().filter((name) => pinnedAt(catalog, upstream, name) === null);
        return [{ upstream, failure: pins.failure, unapproved }];
      }),
    async compare(upstream) {
      const server = upstreams.server(upstream);
      if (server === null) return null;
      const live = await server.pins.read(server);
      return typeof live === 'string'
        ? live
        : inSlices(comparing(upstream, server.settings.mcp.words, declared().catalog, live));
    },
  };
}

/** Yields wherever it may be interrupted. */
function* comparing(
  upstream: string,
  words: ServerWords | undefined,
  catalog: Pick<Catalog, 'tools'>,
  live: LiveServer,
): Generator<void, PinComparison> {
  const tools: PinnedTool[] = [];
  for (const tool of catalog.tools()) {
    const call = tool.upstream === upstream ? pinnedCall(tool) : null;
    if (call === null) continue;
    tools.push({ name: call.name, sha256: pinOf(call), tool: call.pinned });
    yield;
  }
  const lock = { upstream, server: null, instructions: null, ...words, tools };
  return yield* comparisonInSteps(upstream, lock, live, MOST_COMPARED);
}

/**
 * Tells, once for each, that a tool is quarantined or that a server lists tools nobody has approved, and that a tool is
 * as approved again. What has not been seen is no news.
 * @param declared what is declared now
 */
export function createPinAlarm(parts: {
  readonly upstreams: Pick<Upstreams, 'server'>;
  readonly declared: () => Declared;
  readonly quarantined: (tool: string, state: 'changed' | 'gone') => void;
  readonly released: (tool: string) => void;
  readonly unapproved: (upstream: string, names: readonly string[]) => void;
}): { readonly heed: (upstream: string, ...seen: Parameters<OnSeen>) => void; readonly notes: () => readonly Note[] } {
  const reported = new Map<string, { readonly state: 'changed' | 'gone'; readonly since: number }>();
  const listed = new Map<string, string>();
  const judge = ({ pins, settings }: McpUpstream, { tool, call }: PinnedAt): void => {
    const state = pins.stateOf(settings.mcp.words, call);
    if (state === 'unseen' || state === (reported.get(tool.name)?.state ?? 'pinned')) return;
    if (state === 'pinned') {
      reported.delete(tool.name);
      parts.released(tool.name);
    } else {
      reported.set(tool.name, { state, since: Date.now() });
      parts.quarantined(tool.name, state);
    }
  };
  const heed = (upstream: string, ...[seen]: Parameters<OnSeen>): void => {
    const server = parts.upstreams.server(upstream);
    if (server === null) return;
    const { catalog } = parts.declared();
    if (seen !== null) {
      // A list that passes costs what is in it, however many tools are declared.
      for (const name of seen) {
        const pinned = pinnedAt(catalog, upstream, name);
        if (pinned !== null) judge(server, pinned);
      }
      return;
    }
    for (const tool of catalog.tools()) {
      const call = tool.upstream === upstream ? pinnedCall(tool) : null;
      if (call !== null) judge(server, { tool, call });
    }
    const names = server.pins.names().filter((name) => pinnedAt(catalog, upstream, name) === null);
    const text = JSON.stringify(names);
    if (text === (listed.get(upstream) ?? '[]')) return;
    listed.set(upstream, text);
    if (names.length > 0) parts.unapproved(upstream, names);
  };
  const notes = (): readonly Note[] =>
    parts.declared().configuration.upstreams.flatMap(({ id }) => {
      const { catalog } = parts.declared();
      const held = [...reported].flatMap(([name, one]) => (catalog.tool(name)?.upstream === id ? one.since : []));
      if (held.length === 0) return [];
      const message = `Tools of the MCP server ${id} that are not called, because it says something else of them than was approved: ${held.length}. svc tools diff --config gateway.yaml --upstream ${id} shows it, svc tools approve approves it.`;
      return [{ part: 'tools', message, since: Math.min(...held) }];
    });
  return { heed, notes };
}
