import type { UploadLimits } from '../../src/proxy/ports.ts';
import type { Spool } from '../../src/upstreams/http/spool.ts';

/** Room enough for every test. */
export const UPLOADS: UploadLimits = { file: 1e9, request: 1e9, all: 1e9, fields: 1_000_000 };

/** For tests without files. */
export const NO_SPOOL: Spool = {
  begin: () => {
    throw new Error('no files here');
  },
  used: () => 0,
};
