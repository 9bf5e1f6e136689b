/** Path of a Node 24 binary; see `node-24.mjs`. */
export function node24(): string;
