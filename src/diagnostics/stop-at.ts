/** Most faults that a validator reports for one value. */
export const MOST_FAULTS = 100;

/** A text in quotes, or one of the two ways in which a validator of Ajv counts what it found. */
const COUNTS = /"(?:[^"\\]|\\.)*"|errors\+\+;|errors = vErrors\.length;/g;

/**
 * For Ajv's option `code.process`: makes validators that collect all errors stop at the `most`th. A body can hold ten
 * thousand faults, and each of them costs more than the value it is about. That a value has a fault stays certain; but
 * a branch of `anyOf`, `oneOf`, `not`, `if` or `contains` that is given up early counts as one that does not hold, so
 * where a schema has these, another validator has to say first that there are faults at all.
 */
export function stopAt(most: number): (code: string) => string {
  return (code) => {
    const name = /function (validate\d+)\(/.exec(code)?.[1];
    if (name === undefined) return code;
    const stop = `if(errors >= ${most}){${name}.errors = vErrors;return false;}`;
    return code.replace(COUNTS, (found) => (found.startsWith('"') ? found : `${found}${stop}`));
  };
}
