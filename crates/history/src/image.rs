//! A frame as bytes, and as the base of other frames.
//!
//! The bytes have two parts: the structure (the texts and rows that the base lacks), which is tiny
//! unless a process started or ended, compressed with zstd and the structure of the key frame as
//! dictionary; and the numbers. See `docs/history-format.md`.

use crate::codec;
use crate::damage::DamageKind;
use crate::numbers::{self, Numbers};
use crate::range::{Decoder, Encoder};
use crate::rows;
use crate::shape::{Flat, MAX_SHAPE};
use crate::texts::{MAX_TEXTS, Texts};
use crate::varint;
use std::io;
use std::sync::Arc;

/// The most bytes of the structure of a frame.
const MAX_STRUCTURE: usize = MAX_SHAPE + (16 << 20);
/// The most bytes of a frame.
pub(crate) const MAX_FRAME: usize = 32 << 20;

#[cfg(test)]
thread_local! {
    /// The number of bytes in the frames that this thread has read.
    pub(crate) static EXPANDED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A frame as the base of others; the default is the base of key frames.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    pub(crate) flat: Flat,
    pub(crate) texts: Vec<Arc<str>>,
    numbers: Numbers,
    /// The structure of the key frame.
    dictionary: Arc<[u8]>,
}

/// Returns the bytes of a frame, and the frame as a base of others.
///
/// `texts` are those of the frame and start with those of the base. `steps` is the number of frames
/// since the base.
///
/// # Errors
/// If the frame is larger than a reader accepts.
pub(crate) fn encode(
    mut flat: Flat,
    texts: &Texts,
    base: &Image,
    steps: u32,
) -> io::Result<(Vec<u8>, Image)> {
    let too_large = || io::Error::new(io::ErrorKind::InvalidInput, "the frame is too large");
    let mut structure = Vec::new();
    let added = texts.since(base.texts.len());
    varint::put(&mut structure, added.len() as u64);
    for text in added {
        varint::put(&mut structure, text.len() as u64);
        structure.extend_from_slice(text.as_bytes());
    }
    let sources = rows::describe(&flat, &base.flat, &mut structure);
    if flat.is_too_large() || texts.len() > MAX_TEXTS || structure.len() > MAX_STRUCTURE {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    varint::put(&mut bytes, steps.into());
    put_structure(&mut bytes, &structure, &base.dictionary)?;
    let mut encoder = Encoder::new(bytes);
    let numbers = numbers::code(&mut encoder, &mut flat, &sources, &base.numbers, steps);
    let numbers = numbers.ok_or_else(too_large)?;
    let bytes = encoder.finish();
    if bytes.len() > MAX_FRAME {
        return Err(too_large());
    }
    let texts = [&base.texts, added].concat();
    Ok((bytes, Image { flat, texts, numbers, dictionary: dictionary(base, structure) }))
}

/// Returns the frame that these bytes encode.
///
/// # Errors
/// `Expansion` if it has more than `most` bytes, `Malformed` if it is not a frame. Both are
/// detected after at most about this many bytes of work.
pub(crate) fn decode(bytes: &[u8], base: &Image, most: usize) -> Result<Image, DamageKind> {
    let mut is_too_large = false;
    let image = expand(bytes, base, |length| {
        is_too_large |= length > most;
        !is_too_large
    });
    let image = image.filter(|_| !is_too_large);
    image.ok_or(if is_too_large { DamageKind::Expansion } else { DamageKind::Malformed })
}

fn expand(
    mut bytes: &[u8],
    base: &Image,
    mut may_have: impl FnMut(usize) -> bool,
) -> Option<Image> {
    let steps = u32::try_from(varint::take(&mut bytes)?).ok()?;
    let structure = take_structure(&mut bytes, &base.dictionary, &mut may_have)?;
    #[cfg(test)]
    EXPANDED.set(EXPANDED.get() + structure.len() as u64);
    let mut left = &structure[..];
    let mut texts = base.texts.clone();
    for _ in 0..varint::take(&mut left)? {
        let text = std::str::from_utf8(varint::take_bytes(&mut left)?).ok()?;
        texts.push(text.into());
        if texts.len() > MAX_TEXTS {
            return None;
        }
    }
    let may_have = |flat: &Flat| may_have(structure.len() + flat.bytes());
    let (mut flat, sources) = rows::described(&mut left, &base.flat, texts.len(), may_have)?;
    #[cfg(test)]
    EXPANDED.set(EXPANDED.get() + flat.bytes() as u64);
    if !left.is_empty() {
        return None;
    }
    let mut decoder = Decoder::new(bytes);
    let numbers = numbers::code(&mut decoder, &mut flat, &sources, &base.numbers, steps)?;
    Some(Image { flat, texts, numbers, dictionary: dictionary(base, structure) })
}

/// Returns the dictionary for frames with this base.
fn dictionary(base: &Image, structure: Vec<u8>) -> Arc<[u8]> {
    if base.dictionary.is_empty() { structure.into() } else { Arc::clone(&base.dictionary) }
}

/// Appends a structure: a varint, twice its length and plus one if it is compressed; if so, the
/// compressed length; then the bytes.
fn put_structure(output: &mut Vec<u8>, structure: &[u8], dictionary: &[u8]) -> io::Result<()> {
    // zstd needs more bytes for its own header than it saves.
    let compressed = match structure.len() {
        0..32 => None,
        _ => Some(codec::compress(structure, dictionary)?),
    };
    let length = (structure.len() as u64) << 1;
    match compressed.filter(|compressed| compressed.len() < structure.len()) {
        Some(compressed) => {
            varint::put(output, length | 1);
            varint::put(output, compressed.len() as u64);
            output.extend_from_slice(&compressed);
        }
        None => {
            varint::put(output, length);
            output.extend_from_slice(structure);
        }
    }
    Ok(())
}

fn take_structure(
    input: &mut &[u8],
    dictionary: &[u8],
    may_have: &mut impl FnMut(usize) -> bool,
) -> Option<Vec<u8>> {
    let length = varint::take(input)?;
    let is_compressed = length & 1 == 1;
    let length = usize::try_from(length >> 1).ok().filter(|length| *length <= MAX_STRUCTURE)?;
    if !may_have(length) {
        return None;
    }
    if !is_compressed {
        let (structure, rest) = input.split_at_checked(length)?;
        *input = rest;
        return Some(structure.to_vec());
    }
    let compressed = varint::take_bytes(input)?;
    let structure = codec::decompress(compressed, dictionary, length).ok()?;
    (structure.len() == length).then_some(structure)
}
