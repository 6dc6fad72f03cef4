//! Detection of the simulated NVML.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The name of the marker function.
const MARKER: &str = "gpuwsSimulatedMachine";

/// The magic number of an ELF file.
const ELF: &[u8] = b"\x7fELF";

/// The number of bytes to read at once.
const PIECE: u64 = 1 << 16;

/// Returns whether a library has the marker function of the simulated NVML. The file is only read,
/// because loading it would execute its code.
///
/// # Errors
/// If the file cannot be read to its end.
pub(super) fn is_simulated(path: &Path) -> io::Result<bool> {
    // Opening a FIFO without a writer would block.
    if !path.metadata()?.is_file() {
        return Ok(false);
    }
    has(path, MARKER)
}

/// Returns whether a library has a function. The file is only read.
///
/// # Errors
/// If the file cannot be read to its end.
pub(super) fn has(path: &Path, function: &str) -> io::Result<bool> {
    names(File::open(path)?, function)
}

/// Returns whether a string table of an ELF file has this name.
fn names(mut file: impl Read, name: &str) -> io::Result<bool> {
    let name = format!("\0{name}\0").into_bytes();
    let mut head = Vec::new();
    file.by_ref().take(ELF.len() as u64).read_to_end(&mut head)?;
    if head != ELF {
        return Ok(false);
    }
    let mut piece = Vec::new();
    loop {
        // Keeps the end of the last piece, because the name may continue in the next one.
        piece.drain(..piece.len().saturating_sub(name.len() - 1));
        if file.by_ref().take(PIECE).read_to_end(&mut piece)? == 0 {
            return Ok(false);
        }
        if piece.windows(name.len()).any(|window| window == name) {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(parts: &[&[u8]]) -> bool {
        names(parts.concat().as_slice(), "nvmlInit_v2").unwrap()
    }

    #[test]
    fn name_is_found_at_any_offset() {
        const NAME: &[u8] = b"\0nvmlInit_v2\0";
        let piece = PIECE as usize;
        for before in [0, 1, piece - 30, piece - 20, piece - 10, piece - 1, piece, 3 * piece + 7] {
            let filled = vec![b'x'; before];
            assert!(reported(&[ELF, &filled, NAME]), "{before}");
            assert!(reported(&[ELF, &filled, NAME, &filled]), "{before}");
            assert!(!reported(&[ELF, &filled, &NAME[..NAME.len() - 1]]), "{before}");
            assert!(!reported(&[&filled, NAME]), "{before}");
        }
        assert!(!reported(&[]));
        assert!(!reported(&[ELF]));
    }
}
