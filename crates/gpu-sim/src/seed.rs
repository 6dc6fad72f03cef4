//! One seed for all randomness.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// The seed of a simulation.
///
/// Each consumer has its own generator, derived from the seed and the consumer's name, so a new
/// consumer never changes the numbers of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// Returns the generator of one consumer, in its initial state.
    pub fn child(self, consumer: &str) -> ChaCha8Rng {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&fnv1a(consumer.as_bytes()).to_le_bytes());
        ChaCha8Rng::from_seed(bytes)
    }
}

/// Hashes with the 64-bit FNV-1a function, which gives the same result on every machine and in
/// every version.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::rand_core::Rng;

    #[test]
    fn child_seeds_are_independent_and_repeatable() {
        let seed = Seed(7);
        assert_eq!(seed.child("pids").next_u64(), seed.child("pids").next_u64());
        assert_ne!(seed.child("pids").next_u64(), seed.child("faults").next_u64());
        assert_ne!(seed.child("pids").next_u64(), Seed(8).child("pids").next_u64());
    }
}
