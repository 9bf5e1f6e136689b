import { stored } from './rows/names.ts';

/** The name in keys for the workspace without a name, which is the installation. */
const INSTALLATION = '_';

/**
 * A workspace's part of a key: the hash tag, so that all its keys are in one slot of a cluster. Different workspaces
 * get different tags; the empty name is the installation's.
 */
export function workspaceTag(workspace: string): string {
  if (workspace === '') return INSTALLATION;
  if (workspace === INSTALLATION) return '%5F';
  return stored(workspace).replace(/[^A-Za-z0-9_.-]/gu, (character) =>
    [...Buffer.from(character)].map((byte) => `%${byte.toString(16).padStart(2, '0').toUpperCase()}`).join(''),
  );
}

/** The meta hash of a workspace; scripts derive all other keys from it. */
export function metaKey(workspace: string): string {
  return keyOf(workspace, 'w');
}

export function keyOf(workspace: string, name: string): string {
  return `svc:{${workspaceTag(workspace)}}:${name}`;
}

export const CHANGES_PATTERN = 'svc:{*}:changes';

export function tagOfChannel(channel: string): string {
  return channel.slice('svc:{'.length, channel.indexOf('}'));
}

const SLOTS = 16_384;

/** Slot of a tag in a cluster: CRC16 (XMODEM) modulo 16384. */
export function slotOf(tag: string): number {
  let crc = 0;
  for (const byte of Buffer.from(tag)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit += 1) crc = crc & 0x8000 ? ((crc << 1) ^ 0x1021) & 0xffff : (crc << 1) & 0xffff;
  }
  return crc % SLOTS;
}
