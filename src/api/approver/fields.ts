import type { Bounds } from '../../effects/model/editable.ts';
import { isJsonObject, type Json, type JsonObject } from '../../json/value.ts';
import { type Html, html } from './html.ts';
import type { ShownApproval } from './shown.ts';

/** Fields of the form begin with this, so that a param can be called as any other field. */
const PREFIX = 'param.';

/** A param that this person may change, as it stands, and as the agent asked it. */
interface Field {
  readonly name: string;
  readonly bounds: Bounds;
  readonly stands: Exclude<Json, object> | undefined;
  readonly asked: Json | undefined;
}

/** Why a form's fields are no changes. */
export class NoChanges extends Error {}

/** The params that this person may change on the page: those whose value is seen. */
function fieldsOf({ mayChange, params }: Pick<ShownApproval, 'mayChange' | 'params'>): readonly Field[] {
  const { params: own, asked_params: before } = params;
  if (!isJsonObject(own)) return [];
  const asked = isJsonObject(before) ? before : own;
  return Object.entries(mayChange).flatMap(([name, bounds]) => {
    const stands = Object.hasOwn(own, name) ? own[name] : undefined;
    if (typeof stands === 'object' && stands !== null) return [];
    // A number that stands as a text would come back as another value of a form in which nothing was changed.
    const suits = bounds.kind === 'choice' ? typeof stands : bounds.kind === 'range' ? 'number' : 'string';
    return stands != null && typeof stands !== suits
      ? []
      : [{ name, bounds, stands, asked: Object.hasOwn(asked, name) ? asked[name] : undefined }];
  });
}

/** The fields of a form: what stands in them is what an approval is for. */
export function fieldsHtml(shown: ShownApproval): Html {
  const fields = fieldsOf(shown);
  if (fields.length === 0) return html``;
  return html`<div class="fields">${fields.map(
    (field, index) =>
      html`<div><label for="f${index}">${field.name}: ${boundsText(field)}</label>${inputOf(field, `f${index}`)}</div>`,
  )}</div>`;
}

function inputOf({ bounds, name, stands }: Field, id: string): Html {
  const value = stands === undefined || stands === null ? '' : String(stands);
  switch (bounds.kind) {
    case 'range': {
      const step = Number.isInteger(Number(value)) ? html` step="1"` : html` step="any"`;
      return html`<input id="${id}" name="${PREFIX}${name}" type="number" inputmode="decimal" value="${value}"${step}>`;
    }
    case 'choice': {
      const known = bounds.of.some((one) => one === stands);
      return html`<select id="${id}" name="${PREFIX}${name}">${known ? '' : html`<option value="" selected>${value === '' ? '(absent)' : value}, as it stands</option>`}${bounds.of.map(
        (one, index) =>
          one === stands
            ? html`<option value="${index}" selected>${String(one)}</option>`
            : html`<option value="${index}">${String(one)}</option>`,
      )}</select>`;
    }
    case 'text':
      return html`<input id="${id}" name="${PREFIX}${name}" value="${value}" maxlength="${bounds.maxLength}" autocomplete="off">`;
  }
}

/** What a param may be made, in words. */
export function boundsText({ bounds, asked }: Pick<Field, 'bounds' | 'asked'>): string {
  switch (bounds.kind) {
    case 'range': {
      const word = (of: number | 'asked' | null): string => JSON.stringify(of === 'asked' ? (asked ?? null) : of);
      if (bounds.min === null) return `at most ${word(bounds.max)}`;
      return bounds.max === null ? `at least ${word(bounds.min)}` : `${word(bounds.min)} to ${word(bounds.max)}`;
    }
    case 'choice':
      return 'one of these';
    case 'text':
      return `at most ${bounds.maxLength} characters`;
  }
}

/** The names that the form of a request for approval has for these params. */
export function fieldNames(shown: ShownApproval): readonly string[] {
  return fieldsOf(shown).map(({ name }) => PREFIX + name);
}

/**
 * The changes that a form makes to what stood in it; `null` where it makes none.
 * @throws NoChanges where a field has no value of its kind
 */
export function changesIn(shown: ShownApproval, form: Readonly<Record<string, string | undefined>>): JsonObject | null {
  const changes = fieldsOf(shown).flatMap(({ name, bounds, stands }) => {
    const text = form[PREFIX + name];
    // A field that the page did not have, or that stands as it stood, changes nothing.
    if (text === undefined || (text === '' && (stands === undefined || stands === null))) return [];
    const value = valueOf(name, bounds, text, stands);
    return value === stands || value === undefined ? [] : [[name, value] as const];
  });
  return changes.length === 0 ? null : Object.fromEntries(changes);
}

function valueOf(name: string, bounds: Bounds, text: string, stands: Json | undefined): Json | undefined {
  switch (bounds.kind) {
    case 'range': {
      const value = Number(text);
      if (text.trim() === '' || !Number.isFinite(value)) throw new NoChanges(`${name} has to be a number.`);
      return value;
    }
    case 'choice': {
      if (text === '') return stands;
      const chosen = /^\d{1,3}$/.test(text) ? bounds.of[Number(text)] : undefined;
      if (chosen === undefined) throw new NoChanges(`${name} may be one of ${bounds.of.map(String).join(', ')}.`);
      return chosen;
    }
    case 'text':
      // A browser shows a text of more lines in one, and sends it so: that is no change of anybody's.
      return typeof stands === 'string' && oneLine(stands) === text ? stands : text;
  }
}

function oneLine(text: string): string {
  return text.replaceAll(/[\r\n]/g, '');
}
