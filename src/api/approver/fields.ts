import { type Bounds, boundsFault } from '../../effects/model/editable.ts';
import { currencyOfParam, moneyField, moneyOfField, moneyShape, moneyText } from '../../effects/model/money.ts';
import type { RequestFault } from '../../effects/model/run-request.ts';
import { isJsonObject, type Json, type JsonObject } from '../../json/value.ts';
import { printable } from '../../diagnostics/render.ts';
import { type Refused, refuse } from '../problem.ts';
import { type Html, html, lines } from './html.ts';
import type { ShownApproval } from './shown.ts';

/** The longest text that has a field, characters: a form with longer ones is too long to be sent. */
const MOST_IN_FIELD = 2_000;

/** What a person wrote in the fields of a form, by their names. */
export type Entered = Readonly<Partial<Record<string, string>>>;

/** A param that this person may change, as it stands, and as the agent asked it. */
interface Field {
  readonly name: string;
  readonly bounds: Bounds;
  readonly stands: Exclude<Json, object> | undefined;
  readonly asked: Json | undefined;
  /** The amount stands in the field as people write it in this currency; `null`: the value stands as it is. */
  readonly currency: string | null;
}

/** The name in the form. Its beginning keeps it apart from all other fields, and says how the value is written. */
function formName({ name, currency }: Field): string {
  return `${currency === null ? 'param' : `money.${currency}`}.${name}`;
}

/** What is wrong with a field, below it: the words, and what makes the field name them, and be where the page begins. */
export function faultAt(id: string, fault: string | undefined): { readonly attributes: Html; readonly text: Html } {
  if (fault === undefined) return { attributes: html``, text: html`` };
  const attributes = html` aria-invalid="true" aria-describedby="${id}-fault" autofocus`;
  return { attributes, text: html`<p class="fault" id="${id}-fault">${fault}</p>` };
}

/** The refusal of a form that cannot be read as a vote. @param errors what is wrong with single params */
export function undecided(why: string, errors: readonly RequestFault[] = []): Refused {
  return refuse('invalid_request', `${why} Nothing was decided.`, { errors });
}

export function isFieldName(name: string): boolean {
  return /^(?:param|money\.[A-Z]{3})\./.test(name);
}

/** The params that this person may change on the page: those whose value is seen. */
function fieldsOf({ mayChange, params, approval }: ShownApproval): readonly Field[] {
  const { params: own, asked_params: before } = params;
  if (!isJsonObject(own)) return [];
  const asked = isJsonObject(before) ? before : own;
  const fields = Object.entries(mayChange).flatMap(([name, bounds]): readonly Field[] => {
    const stands = Object.hasOwn(own, name) ? own[name] : undefined;
    if (typeof stands === 'object' && stands !== null) return [];
    // What cannot be shown as it is would come back as what was shown.
    if (typeof stands === 'string' && bounds.kind === 'text' && !isShownAsItIs(stands)) return [];
    // A number that stands as a text would come back as another value of a form in which nothing was changed.
    const suits = bounds.kind === 'choice' ? typeof stands : bounds.kind === 'range' ? 'number' : 'string';
    return stands != null && typeof stands !== suits
      ? []
      : [
          {
            name,
            bounds,
            stands,
            asked: Object.hasOwn(asked, name) ? asked[name] : undefined,
            currency: bounds.kind === 'range' ? currencyOfParam(name, own, approval.costs) : null,
          },
        ];
  });
  // An amount that stands in a currency would be another once the currency is changed.
  const isMoney = fields.some(({ currency }) => currency !== null);
  return fields.filter(({ name }) => !isMoney || name !== 'currency');
}

/**
 * The fields of a form: what stands in them is what an approval is for.
 * @param entered what a person wrote in them before, which was refused
 * @param faults what is wrong with that, by the names of the params
 */
export function fieldsHtml(shown: ShownApproval, entered: Entered, faults: Entered = {}): Html {
  const fields = fieldsOf(shown);
  if (fields.length === 0) return html``;
  return html`<div class="fields">${fields.map((field, index) => {
    const id = `f${index}`;
    const name = formName(field);
    const { attributes, text } = faultAt(id, faults[field.name]);
    const input = inputOf(field, html`id="${id}" name="${name}"${attributes}`, entered[name]);
    return html`<div><label for="${id}">${field.name}${field.currency === null ? '' : ` in ${field.currency}`}: ${boundsText(field)}</label>${input}${text}</div>`;
  })}</div>`;
}

function inputOf(field: Field, named: Html, entered: string | undefined): Html {
  const { bounds, stands, currency } = field;
  const value = entered ?? textOf(field);
  switch (bounds.kind) {
    case 'range': {
      if (currency !== null) return html`<input ${named} inputmode="decimal" value="${value}" autocomplete="off">`;
      const step = Number.isInteger(Number(value)) ? html` step="1"` : html` step="any"`;
      return html`<input ${named} type="number" inputmode="decimal" value="${value}"${step}>`;
    }
    case 'choice': {
      const known = bounds.of.some((one) => one === stands);
      return html`<select ${named}>${known ? '' : html`<option value="">${textOf(field) === '' ? '(absent)' : textOf(field)}, as it stands</option>`}${bounds.of.map(
        (one, index) =>
          (entered === undefined ? one === stands : entered === String(index))
            ? html`<option value="${index}" selected>${String(one)}</option>`
            : html`<option value="${index}">${String(one)}</option>`,
      )}</select>`;
    }
    case 'text':
      // The first line break after the tag is none of the text.
      return html`<textarea ${named} rows="2" maxlength="${bounds.maxLength}">
${lines(value.replaceAll('\r\n', '\n'))}</textarea>`;
  }
}

/** Whether the page shows each character of a text, so that it comes back as it stands. */
function isShownAsItIs(text: string): boolean {
  return text.length <= MOST_IN_FIELD && text.split('\n').every((line) => printable(line) === line);
}

/** The value as it stands, as the field has it. */
function textOf({ stands, currency }: Field): string {
  if (stands === undefined || stands === null) return '';
  return currency !== null && typeof stands === 'number' ? moneyField(stands, currency) : String(stands);
}

/** What a param may be made, in words. */
export function boundsText({ bounds, asked, currency }: Pick<Field, 'bounds' | 'asked' | 'currency'>): string {
  switch (bounds.kind) {
    case 'range': {
      const word = (of: number | 'asked' | null): string => {
        const bound = of === 'asked' ? (asked ?? null) : of;
        return moneyText(bound, currency) ?? JSON.stringify(bound);
      };
      if (bounds.min === null) return `at most ${word(bounds.max)}`;
      return bounds.max === null ? `at least ${word(bounds.min)}` : `${word(bounds.min)} to ${word(bounds.max)}`;
    }
    case 'choice':
      return 'one of these';
    case 'text':
      return `at most ${bounds.maxLength} characters`;
  }
}

/**
 * The changes that a form makes to what stood in it; `null` where it makes none.
 * @throws Refused where a field has no value of its kind, or is none that the page has
 */
export function changesIn(shown: ShownApproval, form: Entered): JsonObject | null {
  const fields = fieldsOf(shown);
  const known = new Set(fields.map(formName));
  if (Object.keys(form).some((name) => isFieldName(name) && !known.has(name)))
    throw undecided('The form has another shape than this page gives it.');
  const changes = fields.flatMap((field) => {
    const { name, bounds, stands } = field;
    const entered = form[formName(field)];
    // A browser sends line breaks of its own.
    const text = bounds.kind === 'text' ? entered?.replaceAll('\r\n', '\n') : entered;
    // A field that the page did not have, or that stands as it stood, changes nothing.
    if (text === undefined || (bounds.kind !== 'choice' && text === textOf(field))) return [];
    const value = valueOf(field, text);
    return value === stands || value === undefined ? [] : [[name, value] as const];
  });
  return changes.length === 0 ? null : Object.fromEntries(changes);
}

function valueOf(field: Field, text: string): Json | undefined {
  const { name, bounds, stands, asked, currency } = field;
  const unfit = (why: string): Refused => undecided(`${name} ${why}.`, [{ path: `/changes/${name}`, message: why }]);
  switch (bounds.kind) {
    case 'range': {
      if (currency !== null) {
        const amount = moneyOfField(text, currency);
        if (amount === null) throw unfit(moneyShape(currency));
        if (amount !== stands && boundsFault(bounds, asked, amount) !== null)
          throw unfit(`may be ${boundsText(field)}; ${moneyText(amount, currency) ?? text} is not`);
        return amount;
      }
      const value = Number(text);
      if (text.trim() === '' || !Number.isFinite(value)) throw unfit('has to be a number such as 1234.5');
      return value;
    }
    case 'choice': {
      if (text === '') return stands;
      const chosen = /^\d{1,3}$/.test(text) ? bounds.of[Number(text)] : undefined;
      if (chosen === undefined) throw unfit(`may be one of ${bounds.of.map(String).join(', ')}`);
      return chosen;
    }
    case 'text':
      return text;
  }
}
