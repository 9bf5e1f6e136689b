// The gateway as it is, with a fault that nobody catches: thrown in a timer on SIGUSR2, a rejection on SIGHUP.
import { main } from '../../dist/bundle/main.js';

const fault = () => new Error('planted, with ?api_key=canary-4711&');
process.on('SIGUSR2', () => {
  setTimeout(() => {
    throw fault();
  });
});
process.on('SIGHUP', () => {
  void Promise.reject(fault());
});
process.exitCode = await main(process.argv.slice(2));
setTimeout(() => process.exit(), 1000).unref();
