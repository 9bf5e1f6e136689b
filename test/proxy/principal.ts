import type { Principal } from '../../src/effects/model/principal.ts';

/** The agent `bot` of the workspace `demo`, with a key that may do everything that an agent may. */
export const BOT: Principal = {
  kind: 'agent',
  workspace: 'demo',
  agentId: 'bot',
  keyId: 'key_1',
  user: null,
  madeBy: null,
  keyCreatedAt: 0,
  readOnly: false,
  allowedTools: null,
};
