/** A person with a browser: what it keeps and sends where pages of the gateway are concerned. */
export interface Approver {
  look(path: string, base?: string): Promise<Page>;
  /** Sends a form as a page has it, and does not follow the answer. */
  send(path: string, fields: Record<string, string>, base?: string): Promise<Page>;
}

export interface Page {
  readonly status: number;
  readonly text: string;
  /** The path that the answer sends the browser to, if it does. */
  readonly location: string | null;
  /** What its form proves; empty where it has none. */
  readonly form: string;
}

/** Shows a key on the page of a request for approval. */
export async function approverAt(base: string, url: string, key: string): Promise<Approver> {
  const { origin, pathname } = new URL(url);
  let cookie = '';
  const ask = async (path: string, at: string, body: string | null): Promise<Page> => {
    const headers = {
      cookie,
      ...(body === null ? {} : { 'content-type': 'application/x-www-form-urlencoded', origin: at }),
    };
    const answer = await fetch(`${at}${path}`, {
      method: body === null ? 'GET' : 'POST',
      headers,
      ...(body === null ? {} : { body }),
      redirect: 'manual',
    });
    const [set = ''] = (answer.headers.get('set-cookie') ?? '').split(';');
    if (set !== '') cookie = set;
    const text = await answer.text();
    const form = /name="form" value="([^"]+)"/.exec(text)?.[1] ?? '';
    return { status: answer.status, text, location: answer.headers.get('location'), form };
  };
  const entered = await ask(`${pathname}/key`, base, new URLSearchParams({ key }).toString());
  if (entered.status !== 303) throw new Error(`${origin}: ${entered.status} ${entered.text}`);
  return {
    look: (path, at = base) => ask(path, at, null),
    send: (path, fields, at = base) => ask(path, at, new URLSearchParams(fields).toString()),
  };
}
