// Loaded into a gateway's process before its own code (NODE_OPTIONS): its wall clock is off by
// SVC_TEST_CLOCK_OFFSET_MS. The product knows nothing of it.
const offset = Number(process.env.SVC_TEST_CLOCK_OFFSET_MS);
const Real = Date;
const now = () => Real.now() + offset;

globalThis.Date = new Proxy(Real, {
  construct: (target, words) => (words.length === 0 ? new target(now()) : new target(...words)),
  apply: () => new Real(now()).toString(),
  get: (target, name) => (name === 'now' ? now : Reflect.get(target, name)),
});
