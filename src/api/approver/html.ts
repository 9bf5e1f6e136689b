import { printable } from '../../diagnostics/render.ts';

const MADE = Symbol('html');

/** Text that is HTML. Only {@link html} and {@link lines} make it, so nothing gets into a page without being escaped. */
export interface Html {
  readonly [MADE]: string;
}

type Part = string | number | Html | readonly Html[];

/** HTML with its values escaped: all but what is HTML already. Characters that nobody can see are shown by their code. */
export function html(texts: TemplateStringsArray, ...values: readonly Part[]): Html {
  let made = '';
  for (const [index, text] of texts.entries()) {
    const value = values[index];
    made += value === undefined ? text : text + textOf(value);
  }
  return { [MADE]: made };
}

/** Text of several lines, for `pre`. All else that would control how it is shown is escaped. */
export function lines(text: string): Html {
  return { [MADE]: text.split('\n').map(escaped).join('\n') };
}

export function htmlText(of: Html): string {
  return of[MADE];
}

function textOf(value: Part): string {
  if (typeof value === 'string' || typeof value === 'number') return escaped(String(value));
  return MADE in value ? value[MADE] : value.map(htmlText).join('');
}

function escaped(text: string): string {
  return escapeHtml(printable(text)).replaceAll("'", '&#39;');
}

/** Text that stands in HTML, or in a value between double quotes. */
export function escapeHtml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}
