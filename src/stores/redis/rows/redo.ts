import type { JournaledStep } from '../../journal/step-journal.ts';
import type { Change } from '../../port.ts';
import { unstored } from './names.ts';
import { NOTHING, wordsOfChanges } from './words.ts';

/** The ledger's text for an operator's decision about a gateway. */
export type OperatorEvent = (kind: 'store.loss_accepted' | 'gateway.declared_lost', gateway: string) => string;

/** A lost step as the script `redo` reads it: the batch of changes as it was sent, with the places that they got. */
export function redoRecord({ at, redo, words }: JournaledStep): string {
  return JSON.stringify({ at: String(at), seqs: redo.split(','), words });
}

/**
 * The step that appended the decisions of operators when an epoch was opened.
 * @param reply of the script `redo`
 */
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
  const words = wordsOfChanges([opened]);
  return { workspace, step: Number(step), at: Number(at), redo: seq, words, epoch };
}
