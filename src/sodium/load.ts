import type { Sodium } from 'sodium-native';

/**
 * @returns the native library, which is optional; `null` where it is not installed or has no build for this platform
 */
export async function loadSodium(): Promise<Sodium | null> {
  try {
    return (await import('sodium-native')).default;
  } catch {
    return null;
  }
}
