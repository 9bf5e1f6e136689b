import { describe, expect, test } from 'vitest';
import { refusedAddress } from '../../src/upstreams/http/connect.ts';

/** Spellings that a URL parser turns into an address: what a configuration or a name could bring in. */
function host(text: string): string {
  return new URL(`http://${text}/`).hostname;
}

describe('never, whatever the network', () => {
  test.each([
    '169.254.169.254',
    '169.254.0.1',
    '2852039166',
    '0xa9fea9fe',
    '0xa9.0xfe.0xa9.0xfe',
    '0251.0376.0251.0376',
    '169.254.43518',
    '169.16689662',
    '[::ffff:169.254.169.254]',
    '[::ffff:a9fe:a9fe]',
    '[::169.254.169.254]',
    '[64:ff9b::169.254.169.254]',
    '[64:ff9b::a9fe:a9fe]',
    '[64:ff9b:1::a9fe:a9fe]',
    // RFC 8215 leaves the length of the prefix open: /48, /56, /64 and /96 (RFC 6052, section 2.2). What follows the
    // address is a public one, so that nothing else refuses these.
    '[64:ff9b:1:a9fe:0009:0901:101:101]',
    '[64:ff9b:1:12a9:00fe:a9fe:101:101]',
    '[64:ff9b:1:1234:00a9:fea9:fe01:101]',
    '[64:ff9b:1:1234:5678:9abc:a9fe:a9fe]',
    '[::ffff:0:169.254.169.254]',
    '[2002:a9fe:a9fe::1]',
    '[2001:0:a9fe:a9fe::1]',
    '[2001:0:102:304::5601:5601]',
    '[2001:db8::5efe:169.254.169.254]',
    '[2001:db8::200:5efe:169.254.169.254]',
    '[fe80::1]',
    '[febf::1]',
    '[fd00:ec2::254]',
    '[fd20:ce::254]',
    '100.100.100.200',
    '[::ffff:100.100.100.200]',
    '192.0.0.192',
    '0.0.0.0',
    '0',
    '0.1.2.3',
    '[::]',
    '[::ffff:0.0.0.0]',
    '224.0.0.1',
    '239.255.255.250',
    '[ff02::1]',
    '[::ffff:224.0.0.1]',
    '[64:ff9b::e000:1]',
    '255.255.255.255',
    '[::ffff:255.255.255.255]',
  ])('%s', (text) => {
    expect(refusedAddress(host(text), 'any')).not.toBeNull();
    expect(refusedAddress(host(text), 'public')).not.toBeNull();
  });

  test('what is no address', () => {
    expect(refusedAddress('', 'any')).not.toBeNull();
    expect(refusedAddress('localhost', 'any')).not.toBeNull();
  });
});

describe('only where the network is any', () => {
  test.each([
    '127.0.0.1',
    '127.1',
    '2130706433',
    '[::1]',
    '[::ffff:127.0.0.1]',
    '[::127.0.0.1]',
    '[64:ff9b::7f00:1]',
    '[64:ff9b:1:7f09:0009:0901:101:101]',
    '[64:ff9b:1:127f:0009:0909:101:101]',
    '[64:ff9b:1:1234:007f:0909:0901:101]',
    '[2002:7f00:1::]',
    '10.0.0.1',
    '172.16.5.4',
    '192.168.1.1',
    '[::ffff:10.0.0.1]',
    '[2002:c0a8:101::]',
    '100.64.0.1',
    '198.18.0.1',
    '[fd12:3456::1]',
    '[fec0::1]',
    '[2001:db8::1]',
    '240.0.0.1',
  ])('%s', (text) => {
    expect(refusedAddress(host(text), 'any')).toBeNull();
    expect(refusedAddress(host(text), 'public')).not.toBeNull();
  });
});

describe('public', () => {
  test.each([
    '1.1.1.1',
    '93.184.216.34',
    '[2606:4700::1111]',
    '[::ffff:1.1.1.1]',
    '[64:ff9b::101:101]',
    '[2002:101:101::1]',
  ])('%s', (text) => {
    expect(refusedAddress(host(text), 'any')).toBeNull();
    expect(refusedAddress(host(text), 'public')).toBeNull();
  });
  test('a zone does not hide a link-local peer', () => {
    expect(refusedAddress('fe80::1%eth0', 'any')).not.toBeNull();
  });
});
