// The command line as the compiler made it, a module a file: what counts or profiles functions finds them by their files.
import { main } from '../dist/src/main.js';

process.exitCode = await main(process.argv.slice(2));
