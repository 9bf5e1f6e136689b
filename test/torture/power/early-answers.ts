/**
 * The fault of a store that answers before the sync, as lines of `src/stores/embedded/sync-queue.ts` and what stands in their
 * place. The sync comes with the 20th commit only, so that cuts come in between however fast the disk and the machine
 * are: after a time it would be done, on a busy machine, before its caller has been told.
 */
export const ANSWERS_EARLY: readonly (readonly [from: string, to: string])[] = [
  ['let syncing = false;', 'let syncing = false; let unsynced = 0;'],
  [
    'waiting.push(transaction);',
    'transaction.answer(); unsynced += 1; if (unsynced % 20 !== 0) return; transaction = { answer() {}, fail() {} }; waiting.push(transaction);',
  ],
];
