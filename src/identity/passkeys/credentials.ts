import { type Static, Type } from 'typebox';

/** Ways by which browsers reach an authenticator. Others are not kept. */
const TRANSPORTS = ['ble', 'cable', 'hybrid', 'internal', 'nfc', 'smart-card', 'usb'] as const;

const Base64Url = (maxLength: number) => Type.String({ minLength: 1, maxLength, pattern: '^[A-Za-z0-9_-]+$' });
/** A credential's own id, which may have 1023 bytes. */
const CredentialId = Base64Url(1364);

/** A new credential as browsers write it down (`PublicKeyCredential.toJSON()`). What is not named here is not looked at. */
export const NewCredential = Type.Object({
  id: CredentialId,
  response: Type.Object({
    clientDataJSON: Base64Url(4000),
    attestationObject: Base64Url(8000),
    transports: Type.Optional(Type.Array(Type.String({ maxLength: 20 }), { maxItems: 10 })),
  }),
});
export type NewCredential = Static<typeof NewCredential>;

/** What a passkey signs, as browsers write it down. */
export const Assertion = Type.Object({
  id: CredentialId,
  response: Type.Object({
    clientDataJSON: Base64Url(4000),
    authenticatorData: Base64Url(2000),
    signature: Base64Url(2000),
  }),
});
export type Assertion = Static<typeof Assertion>;

export function transportsOf({ response: { transports = [] } }: NewCredential): readonly string[] {
  return TRANSPORTS.filter((one) => transports.includes(one));
}
