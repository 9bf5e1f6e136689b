/** The part of the package that is used here. The package has no types. */
declare module 'sodium-native' {
  export interface Sodium {
    readonly crypto_sign_PUBLICKEYBYTES: number;
    readonly crypto_sign_SECRETKEYBYTES: number;
    readonly crypto_sign_BYTES: number;
    /** Locked memory between guard pages, left out of core dumps, and wiped when it is freed. */
    sodium_malloc(bytes: number): Buffer;
    sodium_mprotect_readonly(memory: Buffer): void;
    crypto_sign_seed_keypair(publicKey: Buffer, secretKey: Buffer, seed: Buffer): void;
    /** In place where `cipher` is `message`. */
    crypto_aead_chacha20poly1305_ietf_encrypt_detached(
      cipher: Buffer,
      tag: Buffer,
      message: Buffer,
      associated: Buffer,
      secretNonce: null,
      nonce: Buffer,
      key: Buffer,
    ): void;
    crypto_sign_detached(signature: Buffer, message: Buffer, secretKey: Buffer): void;
  }
  const sodium: Sodium;
  export default sodium;
}
