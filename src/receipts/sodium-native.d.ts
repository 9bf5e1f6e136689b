/** What is used of the package, which has no types of its own. */
declare module 'sodium-native' {
  export interface Sodium {
    readonly crypto_sign_PUBLICKEYBYTES: number;
    readonly crypto_sign_SECRETKEYBYTES: number;
    readonly crypto_sign_BYTES: number;
    /** Memory that is locked, between guard pages, in no core dump, and wiped when it is given back. */
    sodium_malloc(bytes: number): Buffer;
    sodium_mprotect_readonly(memory: Buffer): void;
    crypto_sign_seed_keypair(publicKey: Buffer, secretKey: Buffer, seed: Buffer): void;
    crypto_sign_detached(signature: Buffer, message: Buffer, secretKey: Buffer): void;
  }
  const sodium: Sodium;
  export default sodium;
}
