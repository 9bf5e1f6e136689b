// A server of S3 (s3rver) as a process: `server.mjs FOLDER`. Prints its port.
import S3rver from 's3rver';

const [folder = ''] = process.argv.slice(2);
const server = new S3rver({
  address: '127.0.0.1',
  port: 0,
  directory: folder,
  silent: true,
  configureBuckets: [{ name: 'archive' }],
});
const { port } = await server.run();
process.stdout.write(`${port}\n`);
