import { Type } from 'typebox';
import { filePath, oneOf, path, record, text } from './schema-fields.ts';

export const serverTls = (description: string) =>
  record('tls', description, {
    cert: path('File with the certificate and those that lead to its root, PEM.'),
    key: path('File with its private key, PEM.'),
  });

/** TLS towards an upstream. There is no field that turns verification off, and there is to be none. */
export const upstreamTls = record(
  'tls of an upstream',
  'TLS towards the upstream, whose certificate is always verified; see [TLS](../upstreams/tls.md).',
  {
    ca: Type.Optional(
      Type.Union(
        [Type.String({ pattern: filePath }), Type.Array(Type.String({ pattern: filePath }), { minItems: 1 })],
        {
          'x-expected': 'a path, or a list of paths',
          description:
            'Files with the CAs that may have signed its certificate, PEM, in place of those that Node trusts. The roots have to be among them.',
        },
      ),
    ),
    cert: Type.Optional(path("File with the gateway's own certificate, and those that lead to its root, PEM.")),
    key: Type.Optional(path('File with its private key, PEM.')),
    server_name: Type.Optional(
      text(
        '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}$',
        'a host name',
        'The name that it is asked for (SNI), and that its certificate must be for. Default: the host of the url.',
      ),
    ),
    min_version: oneOf(['TLSv1.2', 'TLSv1.3'], 'The oldest version of TLS that is spoken.', 'TLSv1.2'),
  },
);
