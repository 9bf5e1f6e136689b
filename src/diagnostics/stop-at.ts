/** Most faults that a validator reports for one value. */
export const MOST_FAULTS = 100;

/** A text in quotes, or one of the two ways in which the code of an Ajv validator counts faults. */
const COUNTS = /"(?:[^"\\]|\\.)*"|errors\+\+;|errors = vErrors\.length;/g;

/**
 * For Ajv's option `code.process`: makes a validator that collects all errors stop at number `most`. A body can hold
 * ten thousand faults, and each fault costs more than the value it is about.
 *
 * A value with a fault still fails. But a branch of `anyOf`, `oneOf`, `not`, `if` or `contains` that stops early counts
 * as one that does not match. So for a schema with these keywords, another validator must first find out whether there
 * are faults at all.
 */
export function stopAt(most: number): (code: string) => string {
  return (code) => {
    const name = /function (validate\d+)\(/.exec(code)?.[1];
    if (name === undefined) return code;
    const stop = `if(errors >= ${most}){${name}.errors = vErrors;return false;}`;
    return code.replace(COUNTS, (found) => (found.startsWith('"') ? found : `${found}${stop}`));
  };
}
