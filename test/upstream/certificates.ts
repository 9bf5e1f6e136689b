import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject, randomBytes, sign } from 'node:crypto';

/** A certificate and its key, as PEM. */
export interface Issued {
  readonly cert: string;
  readonly key: string;
}

/** A CA of a test, which signs what the test asks for. */
export interface TestCa extends Issued {
  /** A certificate for a name, valid from now on for a day unless said otherwise. @param options.key of an earlier one */
  issue(
    name: string,
    options?: { readonly from?: Date; readonly to?: Date; readonly ip?: string; readonly key?: string },
  ): Issued;
}

const DAY_MS = 86_400_000;

/** Makes a CA. Nothing trusts it but the test. */
export function makeCa(name: string): TestCa {
  const own = issue({ name, issuer: name, signer: null, isCa: true, from: null, to: null, ip: null, key: null });
  const signer = createPrivateKey(own.key);
  return {
    ...own,
    issue: (subject, { from = null, to = null, ip = null, key = null } = {}) =>
      issue({ name: subject, issuer: name, signer, isCa: false, from, to, ip, key }),
  };
}

/** X.509 in DER: only as much of it as TLS needs. */
function issue(of: {
  readonly name: string;
  readonly issuer: string;
  /** `null`: it signs itself. */
  readonly signer: KeyObject | null;
  readonly isCa: boolean;
  readonly from: Date | null;
  readonly to: Date | null;
  readonly ip: string | null;
  readonly key: string | null;
}): Issued {
  const privateKey =
    of.key === null ? generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey : createPrivateKey(of.key);
  const publicKey = createPublicKey(privateKey);
  const from = of.from ?? new Date(Date.now() - DAY_MS);
  const to = of.to ?? new Date(Date.now() + DAY_MS);
  const names = [tagged(0x82, Buffer.from(of.name))];
  if (of.ip !== null) names.push(tagged(0x87, Buffer.from(of.ip.split('.').map(Number))));
  const extension = of.isCa
    ? sequence(
        oid('551d13'),
        tagged(0x01, Buffer.from([0xff])),
        tagged(0x04, sequence(tagged(0x01, Buffer.from([0xff])))),
      )
    : sequence(oid('551d11'), tagged(0x04, sequence(...names)));
  const ecdsaWithSha256 = sequence(oid('2a8648ce3d040302'));
  const content = sequence(
    tagged(0xa0, tagged(0x02, Buffer.from([2]))),
    tagged(0x02, Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    ecdsaWithSha256,
    nameOf(of.issuer),
    sequence(time(from), time(to)),
    nameOf(of.name),
    publicKey.export({ type: 'spki', format: 'der' }),
    tagged(0xa3, sequence(extension)),
  );
  const signature = sign('sha256', content, of.signer ?? privateKey);
  const der = sequence(content, ecdsaWithSha256, tagged(0x03, Buffer.concat([Buffer.from([0]), signature])));
  const lines = der.toString('base64').match(/.{1,64}/g) ?? [];
  return {
    cert: ['-----BEGIN CERTIFICATE-----', ...lines, '-----END CERTIFICATE-----', ''].join('\n'),
    key: String(privateKey.export({ type: 'pkcs8', format: 'pem' })),
  };
}

function tagged(tag: number, content: Buffer): Buffer {
  const { length } = content;
  const size = length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
}

function sequence(...parts: readonly Buffer[]): Buffer {
  return tagged(0x30, Buffer.concat(parts));
}

function oid(hex: string): Buffer {
  return tagged(0x06, Buffer.from(hex, 'hex'));
}

function nameOf(commonName: string): Buffer {
  return sequence(tagged(0x31, sequence(oid('550403'), tagged(0x0c, Buffer.from(commonName)))));
}

/** UTCTime, which holds until 2049. */
function time(at: Date): Buffer {
  const digits = at.toISOString().replace(/\D/g, '').slice(2, 14);
  return tagged(0x17, Buffer.from(`${digits}Z`));
}
