// A step of the build: the compiler leaves out the Lua scripts that `scripts.ts` reads beside itself.
import { cpSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const path = (relative) => fileURLToPath(new URL(relative, import.meta.url));
cpSync(path('./scripts'), path('../../../dist/stores/redis/scripts'), { recursive: true });
