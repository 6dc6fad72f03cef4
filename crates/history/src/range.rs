//! A binary arithmetic coder with adaptive probabilities.
//!
//! It is the range coder of Martin (1979) in the form with carries that LZMA made common: 32 bits
//! of range, a byte at a time.

/// The smallest range before another byte is written.
const LEAST: u32 = 1 << 24;

/// The probability that a bit is 0: the mean of two estimates, one of which adapts faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bit {
    fast: u16,
    slow: u16,
}

impl Default for Bit {
    fn default() -> Self {
        Bit { fast: 1 << 15, slow: 1 << 15 }
    }
}

impl Bit {
    /// Returns the part of the range that means 0: never empty and never all of it.
    fn bound(self, range: u32) -> u32 {
        let zero = (u32::from(self.fast) + u32::from(self.slow)) >> 1;
        (range >> 16) * zero.clamp(32, 65_535 - 32)
    }

    fn learn(&mut self, bit: bool) {
        let moved = |estimate: u16, by: u32| match bit {
            true => estimate - (estimate >> by),
            false => estimate + ((65_535 - estimate) >> by),
        };
        (self.fast, self.slow) = (moved(self.fast, 4), moved(self.slow, 7));
    }
}

/// Codes bits: an [`Encoder`] writes the bits passed to it, a [`Decoder`] returns the bits that it
/// reads.
pub(crate) trait Coder {
    /// Whether it is an encoder: a decoder ignores the values passed to it.
    const WRITES: bool;

    /// Codes a bit.
    fn bit(&mut self, bit: bool, model: &mut Bit) -> bool;
    /// Codes the lowest `count` bits of a number, whose values are equally likely.
    fn bits(&mut self, value: u64, count: u32) -> u64;
}

/// Writes bits.
#[derive(Debug)]
pub(crate) struct Encoder {
    output: Vec<u8>,
    low: u64,
    range: u32,
    /// The last byte, which a carry may still change, and how many bytes 0xff follow it.
    last: Option<u8>,
    pending: usize,
}

impl Encoder {
    /// Creates an encoder that appends to these bytes.
    pub(crate) fn new(output: Vec<u8>) -> Self {
        Encoder { output, low: 0, range: u32::MAX, last: None, pending: 0 }
    }

    fn shift(&mut self) {
        let carry = (self.low >> 32) as u8;
        let byte = (self.low >> 24) as u8;
        if carry == 0 && byte == 0xff {
            self.pending += 1;
        } else {
            // The first byte is always 0 and omitted: it never receives a carry.
            self.output.extend(self.last.map(|last| last.wrapping_add(carry)));
            let pending = 0xff_u8.wrapping_add(carry);
            self.output.resize(self.output.len() + self.pending, pending);
            self.pending = 0;
            self.last = Some(byte);
        }
        self.low = (self.low & 0x00ff_ffff) << 8;
    }

    /// Ends the code and returns all bytes.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let start = self.output.len();
        for _ in 0..5 {
            self.shift();
        }
        // A decoder reads zeros after the end.
        let used = self.output.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        self.output.truncate(used.max(start));
        self.output
    }
}

impl Coder for Encoder {
    const WRITES: bool = true;

    fn bit(&mut self, bit: bool, model: &mut Bit) -> bool {
        let bound = model.bound(self.range);
        if bit {
            self.low += u64::from(bound);
            self.range -= bound;
        } else {
            self.range = bound;
        }
        model.learn(bit);
        while self.range < LEAST {
            self.range <<= 8;
            self.shift();
        }
        bit
    }

    fn bits(&mut self, value: u64, count: u32) -> u64 {
        for at in (0..count).rev() {
            self.range >>= 1;
            if value >> at & 1 == 1 {
                self.low += u64::from(self.range);
            }
            while self.range < LEAST {
                self.range <<= 8;
                self.shift();
            }
        }
        value
    }
}

/// Reads bits.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    input: &'a [u8],
    code: u32,
    range: u32,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        let mut decoder = Decoder { input, code: 0, range: u32::MAX };
        for _ in 0..4 {
            decoder.shift();
        }
        decoder
    }

    fn shift(&mut self) {
        let byte = match self.input.split_first() {
            Some((byte, rest)) => {
                self.input = rest;
                *byte
            }
            None => 0,
        };
        self.code = self.code << 8 | u32::from(byte);
    }
}

impl Coder for Decoder<'_> {
    const WRITES: bool = false;

    fn bit(&mut self, _: bool, model: &mut Bit) -> bool {
        let bound = model.bound(self.range);
        let bit = self.code >= bound;
        if bit {
            self.code -= bound;
            self.range -= bound;
        } else {
            self.range = bound;
        }
        model.learn(bit);
        while self.range < LEAST {
            self.range <<= 8;
            self.shift();
        }
        bit
    }

    fn bits(&mut self, _: u64, count: u32) -> u64 {
        let mut value = 0;
        for _ in 0..count {
            self.range >>= 1;
            let bit = self.code >= self.range;
            if bit {
                self.code -= self.range;
            }
            value = value << 1 | u64::from(bit);
            while self.range < LEAST {
                self.range <<= 8;
                self.shift();
            }
        }
        value
    }
}

/// The model of numbers that are mostly small or of similar size.
///
/// A number is coded in three parts: its length in bits, with a probability for each bit; the two
/// bits below its highest, with probabilities for each length; and the other bits as they are.
#[derive(Clone, Debug)]
pub(crate) struct Number {
    length: [Bit; 128],
    upper: [[Bit; 4]; 65],
}

impl Default for Number {
    fn default() -> Self {
        Number { length: [Bit::default(); 128], upper: [[Bit::default(); 4]; 65] }
    }
}

impl Number {
    /// Codes a number.
    pub(crate) fn code(&mut self, coder: &mut impl Coder, value: u64) -> u64 {
        let length = 64 - value.leading_zeros();
        // Binary decisions from the highest bit of the length down: a tree of 127 nodes.
        let mut node = 1_usize;
        for at in (0..7).rev() {
            let bit = coder.bit(length >> at & 1 == 1, &mut self.length[node]);
            node = node << 1 | usize::from(bit);
        }
        let length = (node as u32 & 0x7f).min(64);
        if length < 2 {
            return length.into();
        }
        let mut coded = 1_u64;
        let mut left = length - 1;
        let upper = &mut self.upper[length as usize];
        let mut node = 1_usize;
        while left > 0 && node < 4 {
            left -= 1;
            let bit = coder.bit(value >> left & 1 == 1, &mut upper[node]);
            node = node << 1 | usize::from(bit);
            coded = coded << 1 | u64::from(bit);
        }
        let lower = if left == 0 { 0 } else { value & (u64::MAX >> (64 - left)) };
        coded << left | coder.bits(lower, left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sized() -> impl Strategy<Value = u64> {
        (0..=64_u32, any::<u64>())
            .prop_map(|(bits, value)| if bits == 0 { 0 } else { value >> (64 - bits) })
    }

    proptest! {
        #[test]
        fn coded_numbers_return(values in prop::collection::vec(sized(), 0..400)) {
            let mut encoder = Encoder::new(vec![7]);
            let mut model = Number::default();
            for value in &values {
                model.code(&mut encoder, *value);
            }
            let bytes = encoder.finish();
            let mut decoder = Decoder::new(&bytes[1..]);
            let mut model = Number::default();
            for value in &values {
                prop_assert_eq!(model.code(&mut decoder, 0), *value);
            }
        }

        #[test]
        fn any_bytes_decode_to_something(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut decoder = Decoder::new(&bytes);
            let mut model = Number::default();
            for _ in 0..100 {
                model.code(&mut decoder, 0);
            }
            prop_assert!(decoder.range >= LEAST);
        }
    }

    #[test]
    fn equal_numbers_take_a_hundredth_of_a_byte() {
        let mut encoder = Encoder::new(Vec::new());
        let mut model = Number::default();
        for _ in 0..10_000 {
            model.code(&mut encoder, 0);
        }
        let length = encoder.finish().len();
        assert!(length < 100, "{length}");
    }
}
