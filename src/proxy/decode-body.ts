import { promisify } from 'node:util';
import { brotliDecompress, gunzip, inflate } from 'node:zlib';
import type { Problem } from '../effects/model/run-request.ts';
import { problemOf } from './arrival.ts';

type Decoder = (bytes: Buffer, options: { readonly maxOutputLength: number }) => Promise<Buffer>;

/** The content codings that a body may have. */
const DECODERS: ReadonlyMap<string, Decoder> = new Map<string, Decoder>([
  ['gzip', promisify(gunzip)],
  ['x-gzip', promisify(gunzip)],
  ['deflate', promisify(inflate)],
  ['br', promisify(brotliDecompress)],
]);

/** Why a body with this `Content-Encoding` cannot be decoded; `null` if it can. */
export function codingFault(coding: string | undefined, isUpload: boolean): Problem | null {
  if (isPlain(coding) || (!isUpload && DECODERS.has(coding.trim().toLowerCase()))) return null;
  const plain = 'This route inspects bodies: send them without Content-Encoding';
  return problemOf('unsupported_media_type', isUpload ? `${plain}.` : `${plain}, or with gzip, deflate or br.`);
}

/**
 * A body as it was before it was compressed, for evaluation and for sending. Decoding runs outside the event loop and
 * stops when the result would be larger than `limit`.
 */
export async function decodeBody(
  bytes: Buffer,
  coding: string | undefined,
  limit: number,
): Promise<{ readonly bytes: Buffer } | { readonly problem: Problem }> {
  const decoder = isPlain(coding) ? undefined : DECODERS.get(coding.trim().toLowerCase());
  if (decoder === undefined) return { bytes };
  try {
    return { bytes: await decoder(bytes, { maxOutputLength: limit }) };
  } catch (error) {
    const isTooLarge = error instanceof Error && 'code' in error && error.code === 'ERR_BUFFER_TOO_LARGE';
    return {
      problem: isTooLarge
        ? problemOf('too_large', `The body is larger than the ${limit} bytes that are inspected once it is decoded.`)
        : problemOf('invalid_request', `The body is not ${coding ?? ''}.`, [
            { path: '/body', message: 'is not in the coding that Content-Encoding names' },
          ]),
    };
  }
}

function isPlain(coding: string | undefined): coding is undefined {
  return coding === undefined || coding.trim() === '' || coding.trim().toLowerCase() === 'identity';
}
