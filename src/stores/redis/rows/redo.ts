import type { JournaledStep } from '../../journal/step-journal.ts';
import type { Change } from '../../port.ts';
import type { StoreForm } from '../fleet.ts';
import { stored, unstored } from './names.ts';
import { NOTHING, wordsOfChanges } from './words.ts';

/** The ledger's text for an operator's decision about a gateway. */
export type OperatorEvent = StoreForm['eventOf'];

/** Steps are batches of changes, as they were sent, with the places that they got. */
export function changesAsSent(operatorEvent: OperatorEvent): StoreForm {
  return {
    recordOf: ({ at, redo, words }) => JSON.stringify({ at: String(at), seqs: redo.split(','), words }),
    eventOf: (kind, gateway) => stored(operatorEvent(kind, gateway)),
    openedBy,
  };
}

function openedBy(
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
