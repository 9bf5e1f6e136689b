import { Brain } from '../brain/brain.ts';
import { createEntityFacts } from '../brain/facts.ts';
import { createBrainWriter } from '../brain/writer.ts';
import { namesGateway } from '../api/own-names.ts';
import type { People } from '../effects/run/recall.ts';
import type { EffectStore } from '../effects/store.ts';
import { wasNamed } from '../identity/authenticate.ts';
import { createDirectory, type Directory } from '../identity/directory.ts';
import { keyState } from '../identity/key-record.ts';
import { createUpstreams } from '../upstreams/upstreams.ts';
import type { ExitStack } from './exit-stack.ts';
import type { Ground } from './ground.ts';
import type { OwnSettings } from './own-settings.ts';
import { createPauseView } from './pause-view.ts';
import { type createPinAlarm, createPinView } from './pin-view.ts';

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
