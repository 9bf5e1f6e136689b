// The gateway of the harness: the product's own parts, with named points at which it dies or freezes. The product has none.
//   SVC_FAILPOINT=die@after_admit:3     ends itself (SIGKILL) when it passes that point for the third time
//   SVC_FAILPOINT=freeze@before_write:1 stops itself (SIGSTOP); somebody continues it
import { parseArgs } from 'node:util';
import { startGateway } from '../../dist/bundle/gateway.js';

const { values } = parseArgs({
  args: process.argv.slice(3),
  options: { config: { type: 'string' }, port: { type: 'string' } },
});

const armed = /^(die|freeze)@(\w+):(\d+)$/.exec(process.env.SVC_FAILPOINT ?? '');
let passages = Number(armed?.[3] ?? 0);
let isReady = false;

function pass(point) {
  // Whoever started it has to hear that it is ready first.
  if (point !== armed?.[2] || passages === 0 || !isReady) return;
  passages -= 1;
  if (passages === 0) process.kill(process.pid, armed[1] === 'die' ? 'SIGKILL' : 'SIGSTOP');
}

/** The same call with a point before and one after it. */
function between(name, call) {
  return async (...args) => {
    pass(`before_${name}`);
    const result = await call(...args);
    pass(`after_${name}`);
    return result;
  };
}

const gateway = await startGateway(
  { configFile: values.config, environment: {}, port: Number(values.port), log: 'stderr', firstKey: 'file' },
  {
    decorate: (ports) => ({
      ...ports,
      spill: between('spill', ports.spill),
      store: {
        ...ports.store,
        async admit(request) {
          pass('before_admit');
          const admission = await ports.store.admit(request);
          // Only what will be sent: refusals and repetitions are many.
          if (admission.kind === 'dispatch') pass('after_admit');
          return admission;
        },
        settle: between('settle', (request) => ports.store.settle(request)),
        resolve: between('resolve', (request) => ports.store.resolve(request)),
      },
      upstream: {
        readState: (...args) => ports.upstream.readState(...args),
        async send(dispatch) {
          const gate = () => {
            const word = dispatch.gate();
            // Between the last look at the time and the first byte.
            if (word === 'go') pass('before_write');
            return word;
          };
          const sending = ports.upstream.send({ ...dispatch, gate });
          setTimeout(() => pass('during_send'), 2);
          const result = await sending;
          pass('after_send');
          return result;
        },
      },
    }),
  },
);
process.stdout.write(`${JSON.stringify({ event: 'ready', url: gateway.url })}\n`);
isReady = true;
process.on('SIGTERM', () => {
  void gateway.close().then(() => process.exit(0));
});
