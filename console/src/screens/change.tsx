import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { Approval, Bounds, Json, JsonObject } from '../api.ts';
import { valueText, visible } from '../format.tsx';
import { boundsText, currencyOfParam, moneyField, moneyOfField, moneyShape } from '../money.ts';

/** What a person made of a param: another value, or something that is none. */
export type Edit =
  | { readonly kind: 'value'; readonly value: Json }
  | { readonly kind: 'invalid'; readonly why: string };

/** What a person made of params, by name. What stands as it stood is not in it. */
export type Edits = Readonly<Record<string, Edit>>;

/** The edits with one more. @param edit `undefined`: the param stands as it stood */
export function withEdit(edits: Edits, name: string, edit: Edit | undefined): Edits {
  const { [name]: _before, ...others } = edits;
  return edit === undefined ? others : { ...others, [name]: edit };
}

/** The values that were changed; `null` where one of them is none. */
export function changesIn(edits: Edits): JsonObject | null {
  const changes: Record<string, Json> = {};
  for (const [name, edit] of Object.entries(edits)) {
    if (edit.kind === 'invalid') return null;
    changes[name] = edit.value;
  }
  return changes;
}

function numberIn(text: string, currency: string | null): number | null {
  if (currency !== null) return moneyOfField(text, currency);
  return text.trim() !== '' && Number.isFinite(Number(text)) ? Number(text) : null;
}

function isWithin({ min, max }: Bounds, asked: Json, value: number): boolean {
  const [least, most] = [min, max].map((bound) => (bound === 'asked' ? asked : (bound ?? value)));
  return typeof least === 'number' && typeof most === 'number' && least <= value && value <= most;
}

/** A param that the person may change, with its bounds. An amount of money is written as money. */
export function Change({
  name,
  bounds,
  approval,
  set,
}: {
  readonly name: string;
  readonly bounds: Bounds;
  readonly approval: Approval;
  readonly set: (edit: Edit | undefined) => void;
}): JSX.Element {
  const [fault, setFault] = useState<string | null>(null);
  const stands = approval.params?.[name] ?? null;
  const asked = (approval.asked_params ?? approval.params)?.[name] ?? null;
  const { one_of: words, max_length: longest } = bounds;
  const currency =
    words === undefined && longest === undefined ? currencyOfParam(name, approval.params ?? {}, approval.costs) : null;
  const editOf = (text: string): Edit => {
    if (longest !== undefined) return { kind: 'value', value: text };
    if (text.trim() === '' && stands === null) return { kind: 'value', value: null };
    const value = numberIn(text, currency);
    const shape = currency === null ? 'has to be a number' : moneyShape(currency);
    const why = value === null ? shape : `may be ${boundsText(bounds, asked, currency)}`;
    return value !== null && (value === stands || isWithin(bounds, asked, value))
      ? { kind: 'value', value }
      : { kind: 'invalid', why: `${visible(name)} ${why}.` };
  };
  const given = (edit: Edit): void => {
    setFault(edit.kind === 'invalid' ? edit.why : null);
    set(edit.kind === 'value' && edit.value === stands ? undefined : edit);
  };
  const shown = currency !== null && typeof stands === 'number' ? moneyField(stands, currency) : valueText(stands);
  return (
    <label>
      <span>
        {visible(name)}
        {currency === null ? '' : ` in ${currency}`}: {boundsText(bounds, asked, currency)}
      </span>
      {words === undefined ? (
        <input
          type="text"
          inputMode={longest === undefined ? 'decimal' : 'text'}
          maxLength={longest ?? 30}
          defaultValue={stands === null ? '' : shown}
          aria-invalid={fault !== null}
          onInput={({ currentTarget }) => given(editOf(currentTarget.value))}
        />
      ) : (
        <select
          onChange={({ currentTarget }) => {
            const chosen = currentTarget.value === '' ? undefined : words[Number(currentTarget.value)];
            given({ kind: 'value', value: chosen ?? stands });
          }}
        >
          <option value="">{valueText(stands)}, as it stands</option>
          {words.map((word, index) => (
            <option key={String(word)} value={index}>
              {String(word)}
            </option>
          ))}
        </select>
      )}
      {fault !== null && (
        <span class="fault" role="alert">
          {fault}
        </span>
      )}
    </label>
  );
}
