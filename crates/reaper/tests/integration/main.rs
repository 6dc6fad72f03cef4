//! One test program for the whole crate, so that it is linked once.

mod act;
mod codes;
mod detectors;
mod driver_log;
mod drm;
mod evidence;
mod fixture;
mod health;
mod hours;
mod memory_kinds;
mod other_driver;
mod plan;
mod reported;
mod reset;
mod signs;
mod sweep;
mod tree;
