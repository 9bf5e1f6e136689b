// A step of the build, for what the compiler leaves out: the Lua scripts that `scripts.ts` reads beside itself, and the
// script of the API reference, which a page of the gateway loads. Its package is needed for nothing else.
import { cpSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const source = (relative) => fileURLToPath(new URL(relative, import.meta.url));
const built = (relative) => fileURLToPath(new URL(`../dist/src/${relative}`, import.meta.url));
cpSync(source('./stores/redis/scripts'), built('stores/redis/scripts'), { recursive: true });
cpSync(new URL('js/standalone.js', import.meta.resolve('@scalar/fastify-api-reference')), built('api/reference.js'));
