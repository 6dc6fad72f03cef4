//! The ways to put a question to one device.

use crate::call::{Answer, Caller};
use crate::code::Code;
use crate::functions::{Function, Get, GetTwo, List, Pick, PickText, PickThree, PickTwo, Text};
use nvml_wrapper_sys::bindings::{
    nvmlAccountingStats_t, nvmlBAR1Memory_t, nvmlDevice_t, nvmlDeviceAddressingMode_t,
    nvmlEventData_t, nvmlFieldValue_t, nvmlGpuFabricInfo_t, nvmlMarginTemperature_t, nvmlMemory_t,
    nvmlMemory_v2_t, nvmlPciInfo_t, nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t,
    nvmlProcessUtilizationSample_t, nvmlUtilization_t,
};
use std::ffi::{c_int, c_uint, c_ulonglong};

/// How often a list is asked for that has grown meanwhile.
const TRIES: usize = 6;

/// No list is longer; a driver that says so is not believed.
const LONGEST_LIST: usize = 1 << 16;

/// Numbers and structs of them.
///
/// # Safety
/// Every pattern of bits is a value, zeros among them.
pub(crate) unsafe trait Data: Copy {
    fn zeroed() -> Self {
        // SAFETY: the trait promises it.
        unsafe { std::mem::zeroed() }
    }
}

macro_rules! data {
    ($($name:ty)*) => { $(
        // SAFETY: integers, pointers that are never followed here, and structs and unions of them.
        unsafe impl Data for $name {}
    )* };
}

data! {
    c_int c_uint c_ulonglong nvmlDevice_t nvmlAccountingStats_t nvmlBAR1Memory_t
    nvmlDeviceAddressingMode_t nvmlEventData_t nvmlFieldValue_t nvmlGpuFabricInfo_t
    nvmlMarginTemperature_t nvmlMemory_t nvmlMemory_v2_t nvmlPciInfo_t
    nvmlProcessInfo_v1_t nvmlProcessInfo_v2_t nvmlProcessUtilizationSample_t nvmlUtilization_t
}

/// NVML's name of a device, good until it is shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) nvmlDevice_t);

// SAFETY: it is a token that only NVML looks into, and NVML may be called from any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// A device that can be asked.
#[derive(Clone, Copy)]
pub(crate) struct Device<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) handle: Handle,
    pub(crate) index: u32,
}

impl Device<'_> {
    /// Makes one call about this device.
    pub(crate) fn call<F: Copy>(
        &self,
        function: &Function<F>,
        run: impl FnOnce(F, nvmlDevice_t) -> u32,
    ) -> Answer<()> {
        self.caller.call(function, Some(self.index), |f| run(f, self.handle.0))
    }

    /// Asks for something.
    pub(crate) fn get<T: Data>(&self, function: &Function<Get<T>>) -> Answer<T> {
        self.fill(function, T::zeroed())
    }

    /// Asks for something whose struct tells its own version.
    pub(crate) fn fill<T: Data>(&self, function: &Function<Get<T>>, mut value: T) -> Answer<T> {
        // SAFETY: the handle is of this initialisation, and `value` is as the function expects it.
        self.call(function, |f, device| unsafe { f(device, &mut value) })?;
        Ok(value)
    }

    /// Asks for two things at once.
    pub(crate) fn get_two<T: Data, U: Data>(
        &self,
        function: &Function<GetTwo<T, U>>,
    ) -> Answer<(T, U)> {
        let (mut first, mut second) = (T::zeroed(), U::zeroed());
        // SAFETY: as in `fill`, twice.
        self.call(function, |f, device| unsafe { f(device, &mut first, &mut second) })?;
        Ok((first, second))
    }

    /// Asks for one of several things.
    pub(crate) fn pick<T: Data>(&self, function: &Function<Pick<T>>, which: u32) -> Answer<T> {
        let mut value = T::zeroed();
        // SAFETY: as in `fill`; a number that the function does not know is an error of its own.
        self.call(function, |f, device| unsafe { f(device, which, &mut value) })?;
        Ok(value)
    }

    /// Asks for one of several things that two numbers name.
    pub(crate) fn pick_two<T: Data>(
        &self,
        function: &Function<PickTwo<T>>,
        which: (u32, u32),
    ) -> Answer<T> {
        let mut value = T::zeroed();
        // SAFETY: as in `pick`.
        self.call(function, |f, device| unsafe { f(device, which.0, which.1, &mut value) })?;
        Ok(value)
    }

    /// Asks for one of several things that three numbers name.
    pub(crate) fn pick_three<T: Data>(
        &self,
        function: &Function<PickThree<T>>,
        (first, second, third): (u32, u32, u32),
    ) -> Answer<T> {
        let mut value = T::zeroed();
        // SAFETY: as in `pick`.
        self.call(function, |f, device| unsafe { f(device, first, second, third, &mut value) })?;
        Ok(value)
    }

    /// Asks for a text of at most `N` bytes, its end included.
    pub(crate) fn text<const N: usize>(&self, function: &Function<Text>) -> Answer<String> {
        let mut buffer = [0u8; N];
        // SAFETY: the buffer has the length that is told.
        self.call(function, |f, device| unsafe {
            f(device, buffer.as_mut_ptr().cast(), N as c_uint)
        })?;
        Ok(text_in(&buffer))
    }

    /// Asks for one of several texts of at most `N` bytes, the end included.
    pub(crate) fn pick_text<const N: usize>(
        &self,
        function: &Function<PickText>,
        which: u32,
    ) -> Answer<String> {
        let mut buffer = [0u8; N];
        // SAFETY: as in `text`; a number that the function does not know is an error of its own.
        self.call(function, |f, device| unsafe {
            f(device, which, buffer.as_mut_ptr().cast(), N as c_uint)
        })?;
        Ok(text_in(&buffer))
    }

    /// Asks for a list, with room for `room` entries at first.
    pub(crate) fn list<T: Data>(
        &self,
        function: &Function<List<T>>,
        room: usize,
    ) -> Answer<Vec<T>> {
        grow(room, |buffer: &mut [T], length| {
            // SAFETY: the buffer has room for as many entries as `length` says.
            self.call(function, |f, device| unsafe { f(device, length, buffer.as_mut_ptr()) })
        })
    }
}

/// Fetches a list whose length is not known before: `fetch` gets a buffer and how many entries it
/// has room for, and makes that number the length of the list.
///
/// One call is enough where the list fits, with no question for its length before.
///
/// # Errors
/// What `fetch` returned; `INSUFFICIENT_SIZE` when the list outgrew the buffer every time.
pub(crate) fn grow<T: Data>(
    mut room: usize,
    mut fetch: impl FnMut(&mut [T], &mut c_uint) -> Answer<()>,
) -> Answer<Vec<T>> {
    let mut tries = 0;
    loop {
        tries += 1;
        // Half as much again stands behind, for an entry that is larger than this crate believes.
        let mut buffer = vec![T::zeroed(); room + room / 2];
        let mut length = room as c_uint;
        let answer = fetch(&mut buffer, &mut length);
        let told = length as usize;
        match answer {
            Ok(()) => {
                buffer.truncate(told.min(room));
                return Ok(buffer);
            }
            Err(failure) if failure.code == Code::INSUFFICIENT_SIZE && tries < TRIES => {
                // It may grow again before the next call.
                room = told.saturating_add(told / 4).max(room * 2).min(LONGEST_LIST);
            }
            Err(failure) => return Err(failure),
        }
    }
}

/// Returns the text in a buffer that a C function filled: up to its end, or all of it where it has
/// none.
pub(crate) fn text_in(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Failure;

    /// A list that is one longer at every call, `growing` times.
    fn fetched(room: usize, length: usize, growing: usize) -> (Answer<Vec<u32>>, usize) {
        let mut calls = 0;
        let list = grow(room, |buffer: &mut [u32], told| {
            let now = length + growing.min(calls) * buffer.len();
            calls += 1;
            let fits = now <= *told as usize;
            *told = now as u32;
            if fits {
                buffer[..now].fill(7);
                return Ok(());
            }
            Err(Failure::of(Code::INSUFFICIENT_SIZE))
        });
        (list, calls)
    }

    #[test]
    fn fitting_list_needs_one_call() {
        for length in [0, 1, 8] {
            let (list, calls) = fetched(8, length, 0);
            assert_eq!(list.unwrap(), vec![7; length]);
            assert_eq!(calls, 1);
        }
    }

    #[test]
    fn longer_list_is_retried_with_larger_buffer() {
        let (list, calls) = fetched(8, 100, 0);
        assert_eq!(list.unwrap().len(), 100);
        assert_eq!(calls, 2);
    }

    #[test]
    fn endlessly_growing_list_fails() {
        let (list, calls) = fetched(8, 9, usize::MAX);
        assert_eq!(list.unwrap_err().code, Code::INSUFFICIENT_SIZE);
        assert_eq!(calls, TRIES);
    }

    #[test]
    fn length_beyond_buffer_is_clamped() {
        let list = grow(4, |_: &mut [u32], told| {
            *told = u32::MAX;
            Ok(())
        });
        assert_eq!(list.unwrap(), [0; 4]);
    }

    #[test]
    fn unterminated_text_is_read() {
        assert_eq!(text_in(b"NVIDIA L4\0rest"), "NVIDIA L4");
        assert_eq!(text_in(b"NVIDIA L4"), "NVIDIA L4");
        assert_eq!(text_in(b"\0"), "");
        assert_eq!(text_in(b"\xff4"), "\u{fffd}4");
    }
}
