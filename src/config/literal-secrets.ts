import type { DataPath, PlainValue } from '../diagnostics/yaml-source.ts';

/** Secrets that can be recognised by their form. The first group is the part that may be shown. */
const KNOWN: readonly { readonly what: string; readonly form: RegExp }[] = [
  { what: 'a key of this gateway', form: /\b(svc_(?:acct|agent|admin|mcp)_)[A-Za-z0-9]{16,}/g },
  { what: 'a Stripe key', form: /\b([sr]k_(?:live|test)_)[A-Za-z0-9]{8,}/g },
  { what: 'an AWS access key', form: /\b(A(?:KIA|SIA))[A-Z0-9]{12,}/g },
  { what: 'a GitHub token', form: /\b(gh[pousr]_|github_pat_)[A-Za-z0-9_]{20,}/g },
  { what: 'a secret of a webhook', form: /\b(whsec_)[A-Za-z0-9+/=]{16,}/g },
  { what: 'the address of a Slack webhook', form: /(https:\/\/hooks\.slack\.com\/services\/)[A-Za-z0-9/]{16,}/g },
  { what: 'a Slack token', form: /\b(xox[abposr]-)[A-Za-z0-9-]{10,}/g },
  {
    what: 'a private key',
    form: /(-----BEGIN [A-Z ]*PRIVATE KEY-----)[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)/g,
  },
  { what: 'a JSON Web Token', form: /\b(eyJ)[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?/g },
];

/** Every value with a secret of a known form, before `${…}` is replaced. */
export function findLiteralSecrets(value: PlainValue): { readonly path: DataPath; readonly what: string }[] {
  const found: { path: DataPath; what: string }[] = [];
  const visit = (node: PlainValue, path: DataPath): void => {
    if (typeof node === 'string') {
      for (const { what, form } of KNOWN) if (node.search(form) >= 0) found.push({ path, what });
      return;
    }
    if (typeof node !== 'object' || node === null) return;
    for (const [name, item] of Object.entries(node)) visit(item, [...path, Array.isArray(node) ? Number(name) : name]);
  };
  visit(value, []);
  return found;
}

/**
 * The text of a file with its secrets hidden: those of a known form, and the given literals. Each is replaced by a text
 * of the same length, so that carets stay in the right place.
 */
export function withoutSecrets(text: string, literals: readonly string[]): string {
  let shown = text;
  for (const literal of literals) if (literal.length > 0) shown = shown.replaceAll(literal, blot);
  for (const { form } of KNOWN)
    shown = shown.replace(form, (found, known: string) => known + blot(found.slice(known.length)));
  return shown;
}

function blot(text: string): string {
  return text.replace(/[^\r\n]/g, '•');
}
