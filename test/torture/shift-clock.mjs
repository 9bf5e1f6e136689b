// Loaded into a gateway before anything else (NODE_OPTIONS, its store's thread included): its wall clock is off by as
// many ms as stand in the file that SVC_TORTURE_CLOCK names, and jumps when that changes.
import { readFileSync } from 'node:fs';

const file = process.env.SVC_TORTURE_CLOCK;
const now = Date.now;
let off = 0;

function read() {
  const shift = Number(readFileSync(file, 'utf8'));
  if (Number.isFinite(shift)) off = shift;
}

if (file !== undefined) {
  read();
  setInterval(read, 20).unref();
  Date.now = () => now() + off;
  globalThis.Date = new Proxy(Date, {
    construct: (target, args, made) =>
      args.length === 0 ? Reflect.construct(target, [now() + off], made) : Reflect.construct(target, args, made),
  });
}
