import { expect, it } from 'vitest';
import { createDraft } from '../../src/records/draft.ts';
import { ABSENT } from '../../src/stores/port.ts';

it('a row that came and went within a step is not written, and is guarded to have been absent', () => {
  const draft = createDraft({ workspace: 'w', now: 0, epoch: 1, row: () => null, counter: () => undefined });
  draft.put('thing', 'a', 'text', [], []);
  draft.put('thing', 'a', null, [], []);
  expect(draft.change('c1')?.change).toMatchObject({
    puts: [],
    guards: [{ kind: 'thing', id: 'a', version: ABSENT }],
  });
});
