import { randomBytes } from 'node:crypto';
import type { EffectRecord } from '../effects/model/effect.ts';
import type { StepView } from '../effects/steps/plan.ts';
import { type ReplyOf, type RequestOf, type StepName, stepOf } from '../effects/steps/table.ts';
import type { Ended } from '../stores/open-rows.ts';
import type { Answer, Change, ListQuery, LocalRows } from '../stores/port.ts';
import { countedRows, countedToward, giveBack } from './counted.ts';
import { createDraft, type ReadRow } from './draft.ts';
import { effectRows, LEASES } from './effect-rows.ts';
import type { Entry } from './lists.ts';
import { placed, writeLost } from './steps.ts';
import { createThrottle } from './throttle.ts';
import { appendEvents, viewOn } from './view.ts';
import { writePlan } from './write-plan.ts';

/** The most decoded rows that are kept, and the most characters of their texts. */
const KEPT_ROWS = 8192;
const KEPT_CHARACTERS = 16 * 1024 * 1024;

/** No process of another gateway sends calls: the folder is locked. A frozen one finds its lease over when it wakes. */
const SETTINGS: Pick<StepView, 'maxFreezeMs' | 'leaseOwner'> = { maxFreezeMs: 0, leaseOwner: null };

/** Rows with their decoded records, so that a settlement need not read again what its admission wrote. */
class DecodedRows {
  private readonly rows = new Map<string, ReadRow>();
  private characters = 0;

  /** The row with this version. Versions are never used twice, so what is kept is never out of date. */
  get(name: string, version: string): ReadRow | null {
    const row = this.rows.get(name);
    return row?.version === version ? row : null;
  }

  keep(name: string, row: ReadRow | null): void {
    const before = this.rows.get(name);
    if (before !== undefined) {
      this.rows.delete(name);
      this.characters -= before.text.length;
    }
    if (row === null || row.isOver === true) return;
    this.rows.set(name, row);
    this.characters += row.text.length;
    for (const [oldest, { text }] of this.rows) {
      if (this.rows.size <= KEPT_ROWS && this.characters <= KEPT_CHARACTERS) return;
      this.rows.delete(oldest);
      this.characters -= text.length;
    }
  }
}

type Done = Extract<Answer, { kind: 'done' }> & { readonly change: Change };

/**
 * Runs steps in the thread that has the store's file, where nobody else writes between what a step sees and what it
 * writes: what it sees is what is there, and a step runs once.
 */
export class LocalSteps {
  private readonly ended: Ended;
  private readonly throttle = createThrottle();
  private readonly decoded = new DecodedRows();
  private readonly boot = randomBytes(9).toString('base64url');
  private changes = 0;

  constructor(ended: Ended) {
    this.ended = ended;
  }

  run<Name extends StepName>(rows: LocalRows, name: Name, workspace: string, request: RequestOf<Name>): ReplyOf<Name> {
    this.flushCounted(rows);
    const { plan, draft, found } = this.draw(rows, name, workspace, request, true);
    const { throttle: word } = plan;
    const isWritten = word === undefined || this.throttle.admits(word, workspace, plan.events ?? [], rows.now);
    if (!isWritten) return plan.reply;
    writePlan(draft, plan, (id) => found.get(id) ?? null);
    return placed(plan.reply, this.commit(rows, draft));
  }

  preview<Name extends StepName>(
    rows: LocalRows,
    name: Name,
    workspace: string,
    request: RequestOf<Name>,
  ): ReplyOf<Name> {
    return this.draw(rows, name, workspace, request, false).plan.reply;
  }

  /** @returns whether there was anything to declare */
  declareLost(rows: LocalRows, workspace: string, id: string): boolean {
    const draft = this.draft(rows, workspace);
    if (!writeLost(draft, id, this.ended, SETTINGS)) return false;
    this.commit(rows, draft);
    return true;
  }

  /** Declares effects lost whose lease is over or whose owner has ended, at most `limit`. */
  declareLostLeases(rows: LocalRows, workspace: string, limit: number): { lost: number; allDeclared: boolean } {
    const isAny = this.ended.any(workspace);
    const asked = { workspace, list: LEASES, kind: effectRows.kind };
    // An effect whose owner has ended is declared before its lease is over, wherever it is in the list.
    const due: string[] = [];
    for (const { at, id, row } of entriesIn(rows, isAny ? asked : { ...asked, to: rows.now })) {
      const stored = effectRows.of(row);
      if (stored.kind !== 'effect' || stored.effect.life.state !== 'executing') continue;
      if (at > rows.now && this.ended.quietAt(workspace, stored.effect.life.lease) === null) continue;
      due.push(id);
      if (due.length === limit) break;
    }
    const lost = due.filter((id) => this.declareLost(rows, workspace, id)).length;
    const allDeclared = isAny && due.length < limit;
    if (allDeclared) this.ended.none(workspace);
    return { lost, allDeclared };
  }

  /** Gives back what counts toward caps and is over, at most `limit`. */
  giveBackOver(rows: LocalRows, workspace: string, list: string, limit: number): void {
    const over: string[] = [];
    for (const { id } of entriesIn(rows, { workspace, list, kind: countedRows.kind, to: rows.now })) {
      if (over.length === limit) break;
      over.push(id);
    }
    for (const id of over) {
      const draft = this.draft(rows, workspace);
      giveBack(draft, id);
      this.commit(rows, draft);
    }
  }

  /** Writes the counted refusals of seconds that are over. */
  flushCounted(rows: LocalRows): void {
    if (!this.throttle.pending()) return;
    for (const { workspace, event } of this.throttle.due(rows.now)) {
      const draft = this.draft(rows, workspace);
      appendEvents(draft, [event]);
      this.commit(rows, draft);
    }
  }

  /**
   * The plan of a step. Effects that it sees and whose owner has ended are declared lost first, and what is over is given
   * back before a cap refuses; the step then sees what that left.
   */
  private draw<Name extends StepName>(
    rows: LocalRows,
    name: Name,
    workspace: string,
    request: RequestOf<Name>,
    mayWrite: boolean,
  ) {
    const isAny = this.ended.any(workspace);
    const capsDone = new Set<string>();
    for (;;) {
      let first: (() => void) | null = null;
      const before = (work: () => void): never => {
        first = work;
        throw new Before();
      };
      const found = new Map<string, EffectRecord>();
      const seen = (effect: EffectRecord): void => {
        found.set(effect.id, effect);
        if (!isAny || effect.life.state !== 'executing' || this.ended.quietAt(workspace, effect.life.lease) === null)
          return;
        before(() => this.declareLost(rows, workspace, effect.id));
      };
      const reached = (cap: string): void => {
        if (capsDone.has(cap) || !mayWrite) return;
        capsDone.add(cap);
        before(() => this.giveBackOver(rows, workspace, countedToward(cap), Infinity));
      };
      const draft = this.draft(rows, workspace);
      try {
        const plan = stepOf(name)(viewOn(draft, SETTINGS, isAny, seen, reached), request);
        return { plan, draft, found };
      } catch (error) {
        if (!(error instanceof Before) || first === null) throw error;
        const work: () => void = first;
        work();
      }
    }
  }

  private draft(rows: LocalRows, workspace: string) {
    const { decoded } = this;
    return createDraft({
      workspace,
      epoch: rows.epoch,
      now: rows.now,
      row(kind, id) {
        const version = rows.version(workspace, kind, id);
        if (version === '') return null;
        const name = `${kind}\n${workspace}\n${id}`;
        const known = decoded.get(name, version);
        if (known !== null) return known;
        const row = rows.row(workspace, kind, id);
        decoded.keep(name, row);
        return row;
      },
      figure: (name) => rows.figure(workspace, name),
    });
  }

  private commit(rows: LocalRows, draft: ReturnType<typeof createDraft>): Done | null {
    this.changes += 1;
    const drafted = draft.change(`${this.boot}.${this.changes.toString(36)}`);
    if (drafted === null) return null;
    const { change, written } = drafted;
    const answer = rows.commit(change);
    // Nobody else writes within the transaction: a refusal is a fault of the step, which passed a limit that it saw.
    if (answer.kind === 'moved') throw new TypeError('a step of the store’s own thread went beyond what it saw');
    for (const { kind, id, row } of written) this.decoded.keep(`${kind}\n${change.workspace}\n${id}`, row);
    return { ...answer, change };
  }
}

/** Something has to be written before the step can run. */
class Before extends Error {}

function* entriesIn(
  rows: LocalRows,
  asked: Pick<ListQuery, 'workspace' | 'list' | 'kind'> & Partial<ListQuery>,
): Generator<Entry> {
  let after: ListQuery['after'] = null;
  for (;;) {
    const slice = rows.list({
      order: 'up',
      from: null,
      to: null,
      limit: 200,
      characters: 1024 * 1024,
      ...asked,
      after,
    });
    yield* slice.entries;
    const last = slice.entries.at(-1);
    if (!slice.more || last === undefined) return;
    after = { at: last.at, id: last.id };
  }
}
