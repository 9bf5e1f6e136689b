import type { Step } from './value.ts';

const STEP = /\.([A-Za-z_][A-Za-z0-9_-]*)|\[(0|[1-9][0-9]{0,4})\]|\[("(?:[^"\\]|\\.)*")\]/y;
const REFUSED_STEPS = ['__proto__', 'constructor', 'prototype'];
const MAX_STEPS = 32;

/**
 * Reads the steps of a path, `(.ident | [n] | ["any key"])*`, as policies and targets of tools write them.
 * @param from where in the text they begin
 */
export function readSteps(
  text: string,
  from: number,
): readonly Step[] | { readonly message: string; readonly hint: string | null } {
  const steps: Step[] = [];
  let at = from;
  while (at < text.length) {
    STEP.lastIndex = at;
    const found = STEP.exec(text);
    if (found === null)
      return {
        message: `'${text}' is not a path (at character ${at + 1})`,
        hint: 'a path is a root and then .name, [0] or ["any key"]; filters, wildcards and .. do not exist',
      };
    const step = found[1] ?? (found[2] === undefined ? unquote(found[3] ?? '') : Number(found[2]));
    if (step === null) return { message: `'${text}' has a key that is not a string`, hint: null };
    if (typeof step === 'string' && REFUSED_STEPS.includes(step))
      return { message: `'${step}' cannot be part of a path`, hint: null };
    steps.push(step);
    at = STEP.lastIndex;
  }
  return steps.length > MAX_STEPS ? { message: `A path has at most ${MAX_STEPS} steps`, hint: null } : steps;
}

function unquote(quoted: string): string | null {
  try {
    const text: unknown = JSON.parse(quoted);
    return typeof text === 'string' ? text : null;
  } catch {
    return null;
  }
}

/** A path as {@link readSteps} reads it. */
export function writeSteps(steps: readonly Step[]): string {
  return steps
    .map((step) => {
      if (typeof step === 'number') return `[${step}]`;
      return /^[A-Za-z_][A-Za-z0-9_-]*$/.test(step) ? `.${step}` : `[${JSON.stringify(step)}]`;
    })
    .join('');
}
