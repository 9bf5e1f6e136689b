import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { openStepJournal, type StepJournal } from '../../src/stores/journal/step-journal.ts';
import { makeDisk } from '../torture/disk.ts';

/** Appends steps of 3 KiB, a few at once. @returns the numbers of those that were taken */
async function append(journal: StepJournal, from: number, count: number): Promise<readonly number[]> {
  const steps = Array.from({ length: count }, (_, n) => from + n);
  const taken = await Promise.allSettled(
    steps.map((step) =>
      journal.appended({ workspace: 'w', step, at: step, redo: 'x'.repeat(3000), batch: Buffer.alloc(0), epoch: 1 }),
    ),
  );
  return steps.filter((_, n) => taken[n]?.status === 'fulfilled');
}

const stepsIn = async (journal: StepJournal): Promise<readonly number[]> =>
  (await journal.after('w', 0)).map(({ step }) => step);

it.skipIf(process.getuid?.() !== 0)(
  'a disk that is full again and again: what was acknowledged is there, also after the gateway came back',
  async (context) => {
    const disk = await makeDisk();
    try {
      if (disk.fill === null) return context.skip('this machine lets nobody mount a file system');
      const folder = join(disk.folder, 'journal');
      const journal = await openStepJournal(folder);
      await journal.remember({ installId: 'i', gatewayId: 'g', accepted: 0 });
      const acknowledged: number[] = [];
      let next = 1;
      for (let round = 0; round < 8; round += 1) {
        // Room for some of what comes, and a place in the middle of a step where it ends.
        disk.fill(4096 * (round + 1));
        for (let group = 0; group < 4; group += 1, next += 5) acknowledged.push(...(await append(journal, next, 5)));
        // What is tried is a line of its own, which would hide that a step comes behind half of another.
        const isChecked = round % 2 === 0;
        if (isChecked) await expect(journal.check()).rejects.toThrow();
        disk.empty();
        if (isChecked) await journal.check();
        for (let group = 0; group < 2; group += 1, next += 5) acknowledged.push(...(await append(journal, next, 5)));
      }
      expect(acknowledged.length).toBeGreaterThan(80);
      expect(acknowledged.length).toBeLessThan(next - 1);
      expect(await stepsIn(journal)).toEqual(expect.arrayContaining(acknowledged));
      await journal.close();
      const again = await openStepJournal(folder);
      expect(await stepsIn(again)).toEqual(expect.arrayContaining(acknowledged));
      expect(again.heads().get('w')?.step).toBe(acknowledged.at(-1));
      await again.close();
    } finally {
      await disk.remove();
    }
  },
);

it('keeps about 32 MB, the newest', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'svc-journal-'));
  try {
    const journal = await openStepJournal(folder);
    const redo = 'x'.repeat(1024 * 1024);
    for (let step = 1; step <= 60; step += 1)
      await journal.appended({ workspace: 'w', step, at: step, redo, batch: Buffer.alloc(0), epoch: 1 });
    const kept = await stepsIn(journal);
    expect(kept.at(-1)).toBe(60);
    expect(kept).toEqual(kept.map((_, n) => 60 - kept.length + 1 + n));
    expect(kept.length).toBeGreaterThanOrEqual(24);
    expect(kept.length).toBeLessThan(40);
    await journal.close();
  } finally {
    rmSync(folder, { recursive: true });
  }
});

it('the newest step of a workspace stays known when the file that it was in is dropped, also over a kill', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'svc-journal-'));
  try {
    const journal = await openStepJournal(folder);
    await journal.remember({ installId: 'i', gatewayId: 'g', accepted: 0 });
    await journal.appended({ workspace: 'quiet', step: 7, at: 7, redo: 'x', batch: Buffer.alloc(0), epoch: 1 });
    const redo = 'x'.repeat(1024 * 1024);
    for (let step = 1; step <= 60; step += 1)
      await journal.appended({ workspace: 'w', step, at: step, redo, batch: Buffer.alloc(0), epoch: 1 });
    expect(await journal.after('quiet', 0)).toEqual([]);
    // It was not closed: this is what a killed gateway left.
    const again = await openStepJournal(folder);
    expect(again.heads().get('quiet')).toEqual({ step: 7, at: 7, epoch: 1 });
    // That it has the step no more is known too, until somebody gives up what the workspace had.
    expect(again.dropped('quiet')).toEqual({ step: 7, at: 7, epoch: 1 });
    await again.forget('quiet');
    expect([again.heads().has('quiet'), again.dropped('quiet')]).toEqual([false, null]);
    await again.close();
    await journal.close();
  } finally {
    rmSync(folder, { recursive: true });
  }
});

it('a step that is written down after a newer one does not set back what is known', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'svc-journal-'));
  try {
    const journal = await openStepJournal(folder);
    for (const step of [2, 1]) await append(journal, step, 1);
    expect(journal.heads().get('w')?.step).toBe(2);
    await journal.close();
    const again = await openStepJournal(folder);
    expect(again.heads().get('w')?.step).toBe(2);
    await again.close();
  } finally {
    rmSync(folder, { recursive: true });
  }
});

it('a line that is cut, or is not as it was written, is no step: the others are read', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'svc-journal-'));
  try {
    const journal = await openStepJournal(folder);
    for (let step = 1; step <= 4; step += 1)
      await journal.appended({
        workspace: 'w',
        step,
        at: step,
        redo: `redo-${step}`,
        batch: Buffer.from(`batch-${step}`),
        epoch: 1,
      });
    await journal.close();
    const [name = ''] = readdirSync(folder).filter((file) => file.startsWith('steps-'));
    const text = readFileSync(join(folder, name), 'utf8');
    for (const damaged of [text.slice(0, -3), text.replace('redo-4', 'redo-5'), text.replace('batch-4', 'batch-5')]) {
      writeFileSync(join(folder, name), damaged);
      const again = await openStepJournal(folder);
      expect(await stepsIn(again)).toEqual([1, 2, 3]);
      expect(again.heads().get('w')?.step).toBe(3);
      await again.close();
    }
    writeFileSync(join(folder, name), text.replace('redo-2', 'redo-0'));
    const again = await openStepJournal(folder);
    expect(await again.after('w', 0)).toMatchObject([
      { step: 1 },
      { step: 3, redo: 'redo-3', batch: Buffer.from('batch-3') },
      {},
    ]);
    await again.close();
  } finally {
    rmSync(folder, { recursive: true });
  }
});

it('a step within the batch of another is none, also where that one is damaged or cut', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'svc-journal-'));
  try {
    const step = (number: number, batch: Buffer) => ({
      workspace: 'w',
      step: number,
      at: 1,
      redo: '',
      batch,
      epoch: 1,
    });
    const journal = await openStepJournal(folder);
    await journal.appended(step(9, Buffer.from('forged')));
    await journal.close();
    const [first = ''] = readdirSync(folder).filter((file) => file.startsWith('steps-'));
    const forged = readFileSync(join(folder, first));
    rmSync(join(folder, first));
    const other = await openStepJournal(folder);
    await other.appended(step(1, Buffer.concat([Buffer.from('x\n'), forged, Buffer.from('y')])));
    await other.appended(step(2, Buffer.from('z')));
    await other.close();
    const [name = ''] = readdirSync(folder).filter((file) => file.startsWith('steps-'));
    const text = readFileSync(join(folder, name), 'latin1');
    for (const [made, found] of [
      [text, [1, 2]],
      [text.replace('y', 'Y'), [2]],
      [text.slice(0, text.indexOf('y')), []],
    ] as const) {
      writeFileSync(join(folder, name), made, 'latin1');
      const again = await openStepJournal(folder);
      expect(await stepsIn(again)).toEqual(found);
      await again.close();
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});

it('batches of any bytes come back as they were', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'svc-journal-'));
  try {
    const made = {
      workspace: 'w',
      step: 1,
      at: 1,
      redo: 'a\nb\t',
      batch: Buffer.from('c\n\xff\0\r\n', 'latin1'),
      epoch: 1,
    };
    const journal = await openStepJournal(folder);
    await journal.appended(made);
    await journal.close();
    const again = await openStepJournal(folder);
    expect(await again.after('w', 0)).toEqual([made]);
    await again.close();
  } finally {
    rmSync(folder, { recursive: true });
  }
});

it('steps that an operator gave up do not come back, also over a restart; those after them are there', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'svc-journal-'));
  try {
    const journal = await openStepJournal(folder);
    await append(journal, 1, 3);
    await journal.forget('w');
    expect(await stepsIn(journal)).toEqual([]);
    expect(journal.heads().has('w')).toBe(false);
    await append(journal, 2, 1);
    await journal.close();
    const again = await openStepJournal(folder);
    expect(await stepsIn(again)).toEqual([2]);
    await again.close();
  } finally {
    rmSync(folder, { recursive: true });
  }
});

const MEMORY = { installId: 'i', gatewayId: 'g', accepted: 0, heads: {}, neighbours: {} };

it.each([
  ['of before formats had numbers', JSON.stringify(MEMORY), 'another version'],
  ['of the format before', JSON.stringify({ format: 2, ...MEMORY }), 'another version'],
  ['of the format after', JSON.stringify({ format: 4, ...MEMORY }), 'another version'],
  ['that is empty', '', 'is damaged'],
  ['of nothing', 'null\n', 'is damaged'],
  ['that breaks off', JSON.stringify({ format: 3, ...MEMORY }).slice(0, 30), 'is damaged'],
  ['without its installation', JSON.stringify({ format: 3, ...MEMORY, installId: undefined }), 'is damaged'],
  ['without its gateway', JSON.stringify({ format: 3, ...MEMORY, gatewayId: 1 }), 'is damaged'],
])('a journal with a memory %s is refused, and says what to do; nothing is written to it', async (_, text, why) => {
  const folder = mkdtempSync(join(tmpdir(), 'svc-journal-'));
  const remedy = why === 'is damaged' ? 'Restore it from a backup' : 'another store.journal: svc migrate --check';
  try {
    writeFileSync(join(folder, 'install.json'), text);
    const opening = openStepJournal(folder);
    await expect(opening).rejects.toThrow(why);
    await expect(opening).rejects.toThrow(remedy);
    expect(readdirSync(folder)).toEqual(['install.json']);
    expect(readFileSync(join(folder, 'install.json'), 'utf8')).toBe(text);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

it('what it remembers of the installation and cannot read is not taken for nothing', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'svc-steps-'));
  try {
    const journal = await openStepJournal(folder);
    expect(journal.memory).toBeNull();
    await journal.close();
    // A folder in its place: it is there, and its text is not to be had.
    mkdirSync(join(folder, 'install.json'));
    await expect(openStepJournal(folder)).rejects.toThrow('EISDIR');
  } finally {
    rmSync(folder, { recursive: true });
  }
});

it('a journal of another format is left as it is, and it is said which one it has', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'svc-steps-'));
  try {
    const journal = await openStepJournal(folder);
    await journal.remember({ installId: 'i', gatewayId: 'g', accepted: 0 });
    await journal.close();
    const file = join(folder, 'install.json');
    const later = readFileSync(file, 'utf8').replace(/"format":\d+/, '"format":4711');
    writeFileSync(file, later);
    await expect(openStepJournal(folder)).rejects.toThrow('it has the format 4711, this one works with ');
    expect(readFileSync(file, 'utf8')).toBe(later);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

it('writes nothing once it is closed: the folder may be another’s', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'svc-journal-'));
  const memory = { installId: 'i', gatewayId: 'g', accepted: 0 };
  const journal = await openStepJournal(folder);
  await journal.remember(memory);
  await journal.close();
  rmSync(folder, { recursive: true });
  mkdirSync(folder);
  try {
    const step = { workspace: 'w', step: 1, at: 1, redo: '', batch: Buffer.alloc(0), epoch: 1 };
    for (const write of [
      () => journal.remember(memory),
      () => journal.appended(step),
      () => journal.check(),
      () => journal.forget('w'),
      () => journal.noteNeighbours('w', { step: 1, version: 1, gateways: [], gone: [] }),
    ])
      await expect(write()).rejects.toThrow('the journal is closed');
    expect(readdirSync(folder)).toEqual([]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
