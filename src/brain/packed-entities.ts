import { createHash } from 'node:crypto';
import { deserialize, serialize } from 'node:v8';
import { entityName, textOfEntity } from '../effects/model/entity.ts';
import type { EntityFiles, FileEntity } from './entity-files.ts';
import { MOST_AT_ONCE } from './writer.ts';

/** Entities of files as one thread sends them to the other: in pieces, each of which is read and put in a few ms. */
export interface PackedEntities {
  /** Of all that the files say, and where. */
  readonly digest: string;
  /** A workspace without any is absent. */
  readonly byWorkspace: ReadonlyMap<string, PackedWorkspace>;
}

export interface PackedWorkspace {
  readonly digest: string;
  readonly pieces: readonly Uint8Array[];
}

/** Characters of the entities in one piece, unless one alone has more. */
const PIECE_CHARACTERS = 64 * 1024;

/** What no file says. */
export const NO_ENTITIES: PackedEntities = packEntities({ byWorkspace: new Map(), files: [] });

export function packEntities({ byWorkspace }: EntityFiles): PackedEntities {
  const packed = new Map([...byWorkspace].map(([workspace, entities]) => [workspace, packWorkspace(entities)]));
  const hash = createHash('sha256');
  for (const [workspace, { digest }] of packed) hash.update(`${workspace}\n${digest}\n`);
  return { digest: hash.digest('base64url'), byWorkspace: packed };
}

export function unpackPiece(piece: Uint8Array): readonly FileEntity[] {
  // Only `packWorkspace` makes pieces.
  const entities: readonly FileEntity[] = deserialize(piece);
  return entities;
}

export function buffersOfEntities({ byWorkspace }: PackedEntities): ArrayBufferLike[] {
  return [...byWorkspace.values()].flatMap(({ pieces }) => pieces.map(({ buffer }) => buffer));
}

function packWorkspace(entities: readonly FileEntity[]): PackedWorkspace {
  const hash = createHash('sha256');
  const pieces: Uint8Array[] = [];
  let piece: FileEntity[] = [];
  let characters = 0;
  const close = (): void => {
    if (piece.length > 0) pieces.push(new Uint8Array(serialize(piece)));
    piece = [];
    characters = 0;
  };
  for (const one of entities) {
    const text = textOfEntity(one.entity);
    hash.update(`${JSON.stringify([one.file, entityName(one.entity), text])}\n`);
    if (piece.length === MOST_AT_ONCE || characters + text.length > PIECE_CHARACTERS) close();
    piece.push(one);
    characters += text.length;
  }
  close();
  return { digest: hash.digest('base64url'), pieces };
}
