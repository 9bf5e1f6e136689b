import { expect, it } from 'vitest';
import { waitaofFault } from '../../src/stores/redis/durability.ts';

it.each([
  ['redis_version:7.0.15', 'no WAITAOF'],
  ['redis_version:7.2.0', null],
  ['redis_version:7.2.6', null],
  ['redis_version:7.4.0', 'not on the disk'],
  ['redis_version:7.4.2', 'not on the disk'],
  ['redis_version:7.4.3', null],
  ['redis_version:8.0.0', null],
  ['redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:7.2.5', null],
  ['redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1', 'not on the disk'],
])('what %s says of WAITAOF is relied on only where it is true', (lines, fault) => {
  const info = `# Server\r\n${lines}\r\n# Clients\r\n`;
  if (fault === null) expect(waitaofFault(info)).toBeNull();
  else expect(waitaofFault(info)).toContain(fault);
});
