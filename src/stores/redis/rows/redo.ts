import type { JournaledStep } from '../../journal/step-journal.ts';
import type { Change } from '../../port.ts';
import { unstored } from './names.ts';
import { NOTHING, packedChanges } from './words.ts';

/** A lost step as the script `redo` reads it: when it was made and the places that its changes got, then the batch. */
export function redoRecord({ at, redo, batch }: JournaledStep): Buffer {
  return Buffer.concat([Buffer.from(`${JSON.stringify({ at: String(at), seqs: redo.split(',') })}\n`), batch]);
}

/** The step that appended the decisions of operators when an epoch was opened. @param reply of the script `redo` */
export function openingStep(
  workspace: string,
  epoch: number,
  [, at, , step, seq = '', ...texts]: readonly string[],
): JournaledStep {
  const opened: Change = {
    ...NOTHING,
    id: 'opened',
    workspace,
    epoch,
    until: Number.MAX_SAFE_INTEGER,
    events: texts.map((text) => ({ about: null, text: unstored(text) })),
  };
  const batch = packedChanges([opened]);
  return { workspace, step: Number(step), at: Number(at), redo: seq, batch, epoch };
}
