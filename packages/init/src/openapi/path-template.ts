import { word } from './words.ts';

/** A path of the document in the form that tools and routes need: each param fills a whole segment. */
export interface PathTemplate {
  /** Each segment: the literal text, or a param. */
  readonly segments: readonly (string | PathParam)[];
}

export interface PathParam {
  readonly name: string;
  /** The params of the document that this one replaces: one, or all params of a segment that has several. */
  readonly of: readonly string[];
  /** The form of a value if the segment has a literal part: `{id}.json`. */
  readonly pattern: string | null;
  /** It is written as one that holds slashes: `{path+}`, `{+path}`, `{path*}`, `{path=**}`, `{path:.*}`. */
  readonly hasSlashes: boolean;
}

/** Reads a path of the document. @returns a text with the reason if it cannot be declared */
export function readTemplate(path: string): PathTemplate | string {
  if (!path.startsWith('/')) return "the path does not begin with '/'";
  if (/[?#]/.test(path)) return 'the path has a query or a fragment';
  const parts = path.slice(1).split('/');
  if (parts.some((part, index) => part === '' && index < parts.length - 1)) return 'an empty segment';
  const segments: (string | PathParam)[] = [];
  for (const part of parts) {
    const read = readSegment(part);
    if (read === null) return 'a segment that is neither literal nor made of params';
    segments.push(read);
  }
  const names = segments.filter((one) => typeof one !== 'string').map(({ name }) => name);
  const twice = names.find((name, index) => names.indexOf(name) < index);
  return twice === undefined ? { segments } : `the param ${twice} stands in two places`;
}

const LITERAL = /^[A-Za-z0-9._~!$&'()+,=@:-]*$/;

function readSegment(part: string): string | PathParam | null {
  if (!part.includes('{')) {
    const isPlain = LITERAL.test(part) && !/^\.{1,2}$/.test(part) && !part.startsWith(':');
    return isPlain ? part : null;
  }
  const whole = /^\{([^{}]+)\}$/.exec(part)?.[1];
  if (whole !== undefined) {
    const [, name = whole] = /^[+*]?([\w-]+)(?:[+*]|=\*\*|:\.[*+])?$/.exec(whole) ?? [];
    return { name: word(name), of: [whole, name], pattern: null, hasSlashes: name !== whole };
  }
  const pieces = part.split(/(\{[^{}]+\})/).filter((piece) => piece !== '');
  const isParam = (piece: string): boolean => piece.startsWith('{') && piece.endsWith('}');
  if (pieces.some((piece) => !isParam(piece) && !LITERAL.test(piece))) return null;
  const pattern = pieces.map((piece) => (isParam(piece) ? '.+' : piece.replace(/[^A-Za-z0-9_-]/g, '\\$&'))).join('');
  return {
    name: word(part),
    of: pieces.filter(isParam).map((piece) => piece.slice(1, -1)),
    pattern: `^${pattern}$`,
    hasSlashes: false,
  };
}
