import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';

/*
 * Answers of the control plane, held to schemas/openapi.json: by method, path and status. In the document objects are
 * open, so that later versions may say more; here nothing may stand in an answer that is not documented.
 */

type Node = { readonly [name: string]: unknown };

/** An answer of a gateway, and what it answers. */
export interface Shown {
  readonly method: string;
  /** May have a query. */
  readonly path: string;
  readonly status: number;
  readonly contentType: string | null;
  readonly text: string;
}

/** Tests run from the root of the repository. */
const DOCUMENT = join(process.cwd(), 'schemas', 'openapi.json');

const BASE = 'https://gateway.invalid/openapi.json';

/** The document as the tests hold answers to it. */
export class Documented {
  readonly #ajv = new Ajv2020({
    strict: false,
    discriminator: true,
    // Each is compiled for a few answers: what makes that faster counts, not how fast they are.
    inlineRefs: false,
    validateSchema: false,
    code: { optimize: false },
  });
  readonly #paths: readonly {
    readonly path: string;
    readonly segments: readonly string[];
    readonly operations: Node;
  }[];
  readonly #validators = new Map<string, ValidateFunction>();

  constructor(text = readFileSync(DOCUMENT, 'utf8')) {
    const document: Node = JSON.parse(text);
    addFormats.default(this.#ajv);
    this.#ajv.addSchema({ ...closed(document), $id: BASE });
    this.#paths = Object.entries(memberOf(document, 'paths')).map(([path, operations]) => ({
      path,
      segments: path.split('/'),
      operations: isNode(operations) ? operations : {},
    }));
  }

  /** What of an answer is not as documented; `null` where all is, or the path is not of the control plane. */
  faultOf({ method, path, status, contentType, text }: Shown): string | null {
    const found = this.#find(path.split('?', 1)[0] ?? '');
    if (found === null) return null;
    const operation = found.operations[method.toLowerCase()];
    // Methods that a path does not have are refused as paths are that there are not.
    if (!isNode(operation)) return status >= 400 ? null : `${method} ${found.path} is not documented`;
    const at = `${method} ${found.path} ${status}`;
    const responses = memberOf(operation, 'responses');
    const key = [String(status), `${Math.floor(status / 100)}XX`].find((one) => Object.hasOwn(responses, one));
    if (key === undefined) return `${at}: this status is not documented`;
    const content = memberOf(memberOf(responses, key), 'content');
    const type = (contentType ?? '').split(';', 1)[0]?.trim() ?? '';
    if (text === '') return Object.keys(content).length === 0 || status === 304 ? null : `${at}: there is no body`;
    if (!Object.hasOwn(content, type))
      return Object.keys(content).length === 0 && key !== '4XX' ? null : `${at}: ${type} is not documented`;
    if (!type.endsWith('json')) return null;
    const names = ['paths', found.path, method.toLowerCase(), 'responses', key, 'content', type, 'schema'];
    const validate = this.#validator(names);
    const body: unknown = JSON.parse(text);
    if (validate(body)) return null;
    const [error] = validate.errors ?? [];
    return `${at}: ${error?.instancePath === '' ? 'the body' : error?.instancePath} ${error?.message} ${JSON.stringify(error?.params)}`;
  }

  /** @throws Error that names what is not as documented */
  check(shown: Shown): void {
    const fault = this.faultOf(shown);
    if (fault !== null) throw new Error(`Not as schemas/openapi.json says: ${fault}\n${shown.text.slice(0, 2_000)}`);
  }

  #find(path: string): { readonly path: string; readonly operations: Node } | null {
    const segments = path.split('/');
    const fits = this.#paths.filter(
      (one) =>
        one.segments.length === segments.length &&
        one.segments.every((segment, index) => segment.startsWith('{') || segment === segments[index]),
    );
    // `/effects/stream` is no effect: the one with fewer placeholders.
    fits.sort((left, right) => left.path.split('{').length - right.path.split('{').length);
    return fits[0] ?? null;
  }

  #validator(names: readonly string[]): ValidateFunction {
    const pointer = names.map((name) => encodeURIComponent(name.replaceAll('~', '~0').replaceAll('/', '~1'))).join('/');
    const known = this.#validators.get(pointer) ?? this.#ajv.compile({ $ref: `${BASE}#/${pointer}` });
    this.#validators.set(pointer, known);
    return known;
  }
}

/** For all tests of a process. */
export const documented = new Documented();

/** The same schemas, in which objects with members have no others. */
function closed(node: Node): Node {
  const members = Object.entries(node).map(([name, value]) => [name, closedValue(value)] as const);
  const isOpen = isNode(node['properties']) && node['additionalProperties'] === undefined;
  return { ...Object.fromEntries(members), ...(isOpen ? { additionalProperties: false } : {}) };
}

function closedValue(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(closedValue);
  return isNode(value) ? closed(value) : value;
}

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function memberOf(node: Node, name: string): Node {
  const value = node[name];
  return isNode(value) ? value : {};
}
