//! The entry of every exported function: counts the call, applies the session's delays and faults,
//! and answers from plain data.

use crate::code::{Answer, Code, SUCCESS};
use crate::library;
use crate::pointer::Handle;
use crate::view::{Subject, View};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns a call's code; a panic must not unwind into the caller's C code.
pub(crate) fn guard(call: impl FnOnce() -> Answer) -> u32 {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(code)) => code.0,
        Err(_) => Code::UNKNOWN.0,
    }
}

/// Answers a call about the whole machine.
pub(crate) fn machine(function: &'static str, body: impl FnOnce(&View) -> Answer) -> u32 {
    guard(|| body(&*library::enter(function, None)?))
}

/// Answers a call that identifies a device by index.
pub(crate) fn indexed(
    function: &'static str,
    index: u32,
    body: impl FnOnce(&View) -> Answer,
) -> u32 {
    guard(|| body(&*library::enter(function, Some(index))?))
}

/// Answers a call about a device or a MIG instance, even if it does not respond.
pub(crate) fn named(
    function: &'static str,
    handle: Handle,
    body: impl FnOnce(Subject<'_>) -> Answer,
) -> u32 {
    guard(|| {
        let gpu = handle.parts().ok().map(|(index, _)| index);
        body(library::enter(function, gpu)?.subject(handle)?)
    })
}

/// Answers a call about a device or a MIG instance.
pub(crate) fn device(
    function: &'static str,
    handle: Handle,
    body: impl FnOnce(Subject<'_>) -> Answer,
) -> u32 {
    named(function, handle, |subject| {
        subject.check()?;
        body(subject)
    })
}

/// Answers a call about a device as a whole.
pub(crate) fn gpu(
    function: &'static str,
    handle: Handle,
    body: impl FnOnce(Subject<'_>) -> Answer,
) -> u32 {
    device(function, handle, |subject| match subject.mig {
        Some(_) => Err(Code::NOT_SUPPORTED),
        None => body(subject),
    })
}

/// Defines exported functions, each under one or several names.
///
/// The first word selects the subject of a function, and so its first argument and the arguments of
/// the body: `machine` has none and gets the [`View`]; `indexed` gets the index of a device and the
/// view; `named`, `device` and `gpu` get a handle and its [`Subject`].
macro_rules! exports {
    ($( $kind:ident [$($name:ident),+ $(,)?] $arguments:tt |$subject:pat_param| $body:block )*) => {
        $( exports!(@each $kind [$($name),+] $arguments |$subject| $body); )*
    };
    (@each $kind:ident [$($name:ident),+] $arguments:tt |$subject:pat_param| $body:block) => {
        $( exports!(@one $kind $name $arguments |$subject| $body); )+
    };
    (@one machine $name:ident ($($argument:ident: $type:ty),* $(,)?)
        |$subject:pat_param| $body:block) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $type),*) -> u32 {
            $crate::entry::machine(stringify!($name), |$subject| $body)
        }
    };
    (@one indexed $name:ident ($index:ident: $index_type:ty $(, $argument:ident: $type:ty)* $(,)?)
        |$subject:pat_param| $body:block) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name($index: $index_type $(, $argument: $type)*) -> u32 {
            $crate::entry::indexed(stringify!($name), $index, |$subject| $body)
        }
    };
    (@one $kind:ident $name:ident ($($argument:ident: $type:ty),* $(,)?)
        |$subject:pat_param| $body:block) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name(handle: $crate::pointer::Handle $(, $argument: $type)*) -> u32 {
            $crate::entry::$kind(stringify!($name), handle, |$subject| $body)
        }
    };
}
pub(crate) use exports;
