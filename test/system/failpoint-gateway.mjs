// A gateway for tests that stops at named points: `failpoint:<name>` in any param of the call, for its upstream port, or
// in the comment of a vote.
// Built from the same parts as the product; the product itself has no failpoints.
import { parseArgs } from 'node:util';
import { startGateway } from '../../dist/bundle/gateway.js';

const { values } = parseArgs({
  args: process.argv.slice(3),
  options: { config: { type: 'string' }, port: { type: 'string' } },
});

/** Effects that the store, and the journal beside it, fail to take. */
const unsettled = new Set();
const unspilled = new Set();

const FAILPOINTS = {
  // Frozen between admission and dispatch; goes on when somebody continues the process.
  freeze_before_send: async (send) => {
    process.kill(process.pid, 'SIGSTOP');
    return send();
  },
  die_before_send: async () => process.kill(process.pid, 'SIGKILL'),
  die_after_send: async (send) => {
    await send();
    process.kill(process.pid, 'SIGKILL');
  },
  throw_after_send: async (send) => {
    await send();
    throw new Error('a fault of the gateway in the middle of an attempt ?api_key=canary-4711&');
  },
  settle_throws: (send, { effectId }) => {
    unsettled.add(effectId);
    return send();
  },
  settle_and_spill_throw: (send, { effectId }) => {
    unsettled.add(effectId);
    unspilled.add(effectId);
    return send();
  },
};

const gateway = await startGateway(
  { configFile: values.config, environment: {}, port: Number(values.port), log: 'stderr', firstKey: 'file' },
  {
    decorate: (ports) => ({
      ...ports,
      store: {
        ...ports.store,
        async settle(request) {
          if (unsettled.delete(request.effectId)) throw new Error('a fault of the store');
          return ports.store.settle(request);
        },
        async vote(request) {
          const voted = await ports.store.vote(request);
          if (request.comment === 'failpoint:die_after_vote') process.kill(process.pid, 'SIGKILL');
          return voted;
        },
      },
      async spill(request) {
        if (unspilled.delete(request.effectId)) throw new Error('a fault of the journal');
        return ports.spill(request);
      },
      upstream: {
        readState(tool, params) {
          if (JSON.stringify(params).includes('failpoint:state_throws')) throw new Error('a fault before the call');
          return ports.upstream.readState(tool, params);
        },
        send(dispatch) {
          const send = () => ports.upstream.send(dispatch);
          const name = /failpoint:(\w+)/.exec(JSON.stringify(dispatch.params))?.[1];
          return name === undefined ? send() : FAILPOINTS[name](send, dispatch);
        },
      },
    }),
  },
);
process.stdout.write(`${JSON.stringify({ event: 'ready', url: gateway.url })}\n`);
process.on('SIGTERM', () => {
  void gateway.close().then(() => process.exit(0));
});
