//! Arguments from C callers: pointers to write to and to read from, and device handles.
//!
//! None of these types can be constructed in Rust: they are arguments of exported functions, and
//! the caller guarantees what NVML's documentation requires of pointers. All access to the caller's
//! memory is in this file.

use crate::code::{Answer, Code};
use std::ffi::{c_char, c_uint};

/// The maximum length of a text from a caller.
const MAX_TEXT: usize = 256;

/// A struct whose first field contains its size and version (`NVML_STRUCT_VERSION`).
pub(crate) trait Versioned: Copy {
    /// The value that callers store in that field.
    const VERSION: c_uint;
}

/// A pointer to a value to write, or to the first of several; may be null.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

/// A pointer to a value to read; may be null.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T: Copy> Out<T> {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Writes a value.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` when the pointer is null.
    pub(crate) fn put(self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: a caller's pointer that is not null points to a writable `T`.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Reads the caller's value.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` when the pointer is null.
    pub(crate) fn get(self) -> Answer<T> {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: as above, and every `T` here is a plain number or a struct of plain numbers that
        // the caller has filled in.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Returns the pointer as one to another version of the struct.
    pub(crate) fn version<U: Versioned>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// Writes one of several values; the caller guarantees room for more than `index`.
    pub(crate) fn put_at(self, index: usize, value: T) -> Answer {
        Out(self.0.wrapping_add(if self.0.is_null() { 0 } else { index })).put(value)
    }

    /// Reads one of several values; the caller guarantees more than `index` values.
    pub(crate) fn get_at(self, index: usize) -> Answer<T> {
        Out(self.0.wrapping_add(if self.0.is_null() { 0 } else { index })).get()
    }

    /// Writes a list by NVML's protocol: the caller passes its capacity in `count`, which receives
    /// the number of items.
    ///
    /// # Errors
    /// `INSUFFICIENT_SIZE` if the items exceed the capacity, with their number in `count`;
    /// `INVALID_ARGUMENT` if a required pointer is null.
    pub(crate) fn put_list(self, count: Out<c_uint>, items: &[T]) -> Answer {
        let room = count.get()?;
        let number = c_uint::try_from(items.len()).map_err(|_| Code::UNKNOWN)?;
        if room > 0 && self.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        count.put(number)?;
        if room < number {
            return Err(Code::INSUFFICIENT_SIZE);
        }
        items.iter().enumerate().try_for_each(|(index, item)| self.put_at(index, *item))
    }
}

/// Writes all of the values, or none.
///
/// # Errors
/// `INVALID_ARGUMENT` when a pointer is null.
pub(crate) fn put_all<T: Copy, const N: usize>(values: [(Out<T>, T); N]) -> Answer {
    if values.iter().any(|(out, _)| out.is_null()) {
        return Err(Code::INVALID_ARGUMENT);
    }
    values.into_iter().try_for_each(|(out, value)| out.put(value))
}

impl<T: Versioned> Out<T> {
    /// Checks the version of the caller's struct.
    ///
    /// # Errors
    /// `ARGUMENT_VERSION_MISMATCH` for another version; `INVALID_ARGUMENT` when the pointer is
    /// null.
    pub(crate) fn check_version(self) -> Answer {
        match Out(self.0.cast::<c_uint>()).get()? {
            version if version == T::VERSION => Ok(()),
            _ => Err(Code::ARGUMENT_VERSION_MISMATCH),
        }
    }
}

impl Out<c_char> {
    /// Writes a NUL-terminated text into a buffer of this length.
    ///
    /// # Errors
    /// `INSUFFICIENT_SIZE` when it does not fit; `INVALID_ARGUMENT` when the pointer is null.
    pub(crate) fn put_text(self, length: c_uint, text: &str) -> Answer {
        if self.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // The caller would read a text with an inner NUL as a shorter one.
        let text = text.split('\0').next().unwrap_or_default();
        if text.len() >= length as usize {
            return Err(Code::INSUFFICIENT_SIZE);
        }
        let bytes = text.bytes().chain([0]).enumerate();
        bytes.into_iter().try_for_each(|(index, byte)| self.put_at(index, byte as c_char))
    }
}

impl In<c_char> {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Reads a text.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` when the pointer is null or the text exceeds [`MAX_TEXT`].
    pub(crate) fn text(self) -> Answer<String> {
        Ok(String::from_utf8_lossy(&self.bytes(MAX_TEXT)?).into_owned())
    }

    /// Reads a text of fewer bytes than `limit`.
    ///
    /// # Errors
    /// As [`text`](In::text).
    pub(crate) fn bytes(self, limit: usize) -> Answer<Vec<u8>> {
        let mut bytes = Vec::new();
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        for index in 0..limit {
            // SAFETY: the caller's text ends with a zero, and no byte so far was one.
            match unsafe { self.0.add(index).read() } as u8 {
                0 => return Ok(bytes),
                byte => bytes.push(byte),
            }
        }
        Err(Code::INVALID_ARGUMENT)
    }
}

/// A device handle (`nvmlDevice_t`): a number that is never dereferenced, so invalid handles are
/// detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Handle(usize);

impl Handle {
    /// The bits that all device handles share.
    const MARK: usize = 0x6770_7573_0000;
    const INDEX_SHIFT: u32 = 6;
    const MIG_MASK: usize = (1 << Self::INDEX_SHIFT) - 1;

    /// Returns the handle of a device.
    pub(crate) fn of_gpu(index: u32) -> Self {
        Handle(Self::MARK | (index as usize & 0x3ff) << Self::INDEX_SHIFT)
    }

    /// Returns the handle of a MIG instance, by its number in the device.
    pub(crate) fn of_mig(index: u32, mig: u32) -> Self {
        Handle(Self::of_gpu(index).0 | (mig as usize + 1) & Self::MIG_MASK)
    }

    /// Returns the index of the device, and the number of the MIG instance, if any.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an invalid handle.
    pub(crate) fn parts(self) -> Answer<(u32, Option<u32>)> {
        if self.0 & !0xffff != Self::MARK {
            return Err(Code::INVALID_ARGUMENT);
        }
        let low = self.0 & 0xffff;
        let mig = (low & Self::MIG_MASK).checked_sub(1).map(|mig| mig as u32);
        Ok(((low >> Self::INDEX_SHIFT) as u32, mig))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{null, null_mut};

    #[test]
    fn null_is_refused_everywhere() {
        let refused = Err(Code::INVALID_ARGUMENT);
        let null = Out::<u32>(null_mut());
        assert_eq!((null.put(1), null.put_at(1, 1)), (refused, refused));
        assert_eq!((null.get(), null.get_at(1)), (Err(Code(2)), Err(Code(2))));
        let mut number = 7;
        assert_eq!(put_all([(Out(&mut number), 8), (null, 9)]), refused);
        assert_eq!(number, 7, "nothing is written");
        assert_eq!(put_all([(Out(&mut number), 8)]), Ok(()));
        assert_eq!((number, Out(&mut number).get()), (8, Ok(8)));
        assert_eq!(Out::<c_char>(null_mut()).put_text(9, "x"), refused);
        assert_eq!(In::<c_char>(self::null()).text(), Err(Code(2)));
    }

    #[test]
    fn list_is_written_only_if_it_fits() {
        for (room, code, count) in [(0, 7, 2), (1, 7, 2), (2, 0, 2), (3, 0, 2)] {
            let (mut length, mut items) = (room, [0_u32; 3]);
            let written = Out(items.as_mut_ptr()).put_list(Out(&mut length), &[5, 6]);
            assert_eq!(written.map_or_else(|code| code.0, |()| 0), code, "{room}");
            assert_eq!(length, count);
            assert_eq!(items, if code == 0 { [5, 6, 0] } else { [0; 3] });
        }
        let mut room = 1;
        let none = Out::<u32>(null_mut()).put_list(Out(&mut room), &[]);
        assert_eq!((none, room), (Err(Code::INVALID_ARGUMENT), 1));
        room = 0;
        assert_eq!(Out::<u32>(null_mut()).put_list(Out(&mut room), &[]), Ok(()));
    }

    #[test]
    fn text_is_written_up_to_an_inner_zero() {
        for (text, length, written) in [
            ("four", 5, Some("four\0xx")),
            ("four", 4, None),
            ("a\0b", 2, Some("a\0xxxxx")),
            ("", 1, Some("\0xxxxxx")),
            ("", 0, None),
        ] {
            let mut buffer = [b'x'; 7];
            let answer = Out(buffer.as_mut_ptr().cast::<c_char>()).put_text(length, text);
            let expected = written.map_or(Err(Code::INSUFFICIENT_SIZE), |_| Ok(()));
            assert_eq!(answer, expected, "{text:?} {length}");
            assert_eq!(buffer, *written.unwrap_or("xxxxxxx").as_bytes());
        }
    }

    #[test]
    fn overlong_text_is_refused() {
        let read = |text: &[u8], limit| In(text.as_ptr().cast::<c_char>()).bytes(limit);
        assert_eq!(read(b"abc\0", 4), Ok(b"abc".to_vec()));
        assert_eq!(read(b"abc\0", 3), Err(Code::INVALID_ARGUMENT));
    }

    #[test]
    fn handle_identifies_device_and_instance() {
        for index in [0, 1, 63, 1023] {
            assert_eq!(Handle::of_gpu(index).parts(), Ok((index, None)));
            for mig in [0, 6, 62] {
                assert_eq!(Handle::of_mig(index, mig).parts(), Ok((index, Some(mig))));
            }
        }
        for garbage in [0, 0x6770_7574_0000, 0xffff] {
            assert_eq!(Handle(garbage).parts(), Err(Code::INVALID_ARGUMENT));
        }
    }
}
