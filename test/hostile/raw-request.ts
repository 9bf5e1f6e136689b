import { once } from 'node:events';
import { connect } from 'node:net';

/** The answer to a request that was sent byte for byte. */
export interface RawAnswer {
  /** 0 if none came. */
  readonly status: number;
  readonly text: string;
  /** A header of it; `null` if it is not there. */
  header(name: string): string | null;
}

/** Sends a request byte for byte; no HTTP library mends it. The head has to ask for the connection to be closed. */
export async function sendRaw(url: string, head: readonly string[], body: Buffer): Promise<RawAnswer> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  const chunks: Buffer[] = [];
  socket.on('data', (chunk) => void chunks.push(chunk));
  socket.on('error', () => undefined);
  socket.write(Buffer.from([...head, '', ''].join('\r\n'), 'utf8'));
  socket.write(body);
  // Most answers end the connection; of what waits for more, there is none.
  const timer = setTimeout(() => socket.destroy(), 5000);
  socket.on('data', () => {
    const text = Buffer.concat(chunks).toString('utf8');
    const length = /\r\ncontent-length: (\d+)/i.exec(text)?.[1];
    const at = text.indexOf('\r\n\r\n');
    if (
      length !== undefined &&
      at !== -1 &&
      Buffer.concat(chunks).byteLength >= Buffer.byteLength(text.slice(0, at)) + 4 + Number(length)
    )
      socket.destroy();
  });
  await once(socket, 'close');
  clearTimeout(timer);
  const text = Buffer.concat(chunks)
    .toString('utf8')
    .replace(/^HTTP\/1\.1 100 [^]*?\r\n\r\n/, '');
  return {
    status: Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1] ?? 0),
    text: text.slice(text.indexOf('\r\n\r\n') + 4),
    header: (name) => new RegExp(`\r\n${name}: ([^\r]*)`, 'i').exec(text)?.[1] ?? null,
  };
}
