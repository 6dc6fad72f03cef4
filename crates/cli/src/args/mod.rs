//! Arguments that several commands share.

mod global;
mod history;
mod hosts;
mod keep;
mod time;
mod values;
mod views;

pub(crate) use self::time::{time, time_or_zero};
pub(crate) use global::Global;
pub(crate) use history::{HAS_NO_HISTORY, HistoryArgs};
pub(crate) use hosts::HostArgs;
pub(crate) use keep::KeepArgs;
pub(crate) use values::{named, pid};
pub(crate) use views::{Asked, Fields, Only, Repeat};
