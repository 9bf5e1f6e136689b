/**
 * What faults of TLS mean, in words that an answer may show: without names, addresses, or texts of the other side. The
 * codes are those of Node: `ERR_TLS_…`, OpenSSL's verdicts on a certificate, and alerts that the upstream sent.
 */
const VERDICTS: Readonly<Record<string, string>> = {
  UNABLE_TO_GET_ISSUER_CERT: 'no CA that is trusted for it has signed its certificate',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'no CA that is trusted for it has signed its certificate',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'no CA that is trusted for it has signed its certificate',
  SELF_SIGNED_CERT_IN_CHAIN: 'no CA that is trusted for it has signed its certificate',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'no CA that is trusted for it has signed its certificate',
  CERT_HAS_EXPIRED: 'its certificate has expired',
  CERT_NOT_YET_VALID: 'its certificate is not valid yet',
  ERR_TLS_CERT_ALTNAME_INVALID: 'its certificate is for another name',
  ERR_SSL_UNSUPPORTED_PROTOCOL: 'it speaks no version of TLS that is allowed',
  ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION: 'it speaks no version of TLS that is allowed',
  ERR_SSL_WRONG_VERSION_NUMBER: 'it does not speak TLS',
  ERR_SSL_PACKET_LENGTH_TOO_LONG: 'it does not speak TLS',
  ERR_SSL_TLSV1_UNRECOGNIZED_NAME: 'it does not know the name that it was asked for',
  ERR_SSL_SSLV3_ALERT_HANDSHAKE_FAILURE: 'it agreed to no handshake: it may want a certificate of the gateway',
  UND_ERR_CONNECT_TIMEOUT: 'it did not finish the handshake in time',
  ECONNRESET: 'it closed the connection in mid-handshake',
};

/** Alerts by which an upstream refuses the gateway's certificate. */
const REFUSALS: Readonly<Record<string, string>> = {
  ERR_SSL_TLSV1_ALERT_UNKNOWN_CA: 'it does not know the CA',
  ERR_SSL_SSLV3_ALERT_CERTIFICATE_EXPIRED: 'it has expired',
  ERR_SSL_SSLV3_ALERT_CERTIFICATE_REVOKED: 'it was revoked',
  ERR_SSL_SSLV3_ALERT_BAD_CERTIFICATE: 'bad certificate',
  ERR_SSL_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE: 'unsupported certificate',
  ERR_SSL_SSLV3_ALERT_CERTIFICATE_UNKNOWN: 'certificate unknown',
  ERR_SSL_TLSV1_ALERT_ACCESS_DENIED: 'access denied',
  ERR_SSL_TLSV1_ALERT_DECRYPT_ERROR: 'decrypt error',
};

export function handshakeFault(error: Error): string {
  const code = codeOf(error);
  if (code === null) return 'TLS with the upstream failed';
  const refusal = REFUSALS[code];
  const why = refusal === undefined ? VERDICTS[code] : `it refused the gateway's certificate (${refusal})`;
  return why === undefined ? `TLS with the upstream failed (${code})` : `TLS with the upstream failed: ${why}`;
}

/**
 * What a connection over TLS that breaks before its first answer may mean. With TLS 1.3, and with some servers always,
 * a certificate is refused when the handshake is over for the gateway and the request is written. Some say nothing and
 * close; of an alert, undici does not tell.
 */
export const MAY_BE_REFUSED =
  "it was new: the upstream may refuse the gateway's certificate, or want one (tls: { cert, key })";

/** The code of an error if it is a plain word; whatever else stands there is not shown. */
function codeOf(error: Error): string | null {
  if (!('code' in error) || typeof error.code !== 'string') return null;
  // OpenSSL 3.2 and later (Node 24) gave alerts of every version another name, and records that are too long.
  const code = error.code.replace('SSL/TLS_ALERT_', 'SSLV3_ALERT_').replace('DATA_LENGTH_TOO', 'PACKET_LENGTH_TOO');
  return /^[A-Z][A-Z0-9_]{1,80}$/.test(code) ? code : null;
}
