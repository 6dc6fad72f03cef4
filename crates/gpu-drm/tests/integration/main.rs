//! The crate on files: those of real machines, with the values that a correct reader finds, and
//! made ones. One test program, so that it is linked once.

#[expect(unreachable_pub, reason = "the fuzz targets call the same functions")]
#[path = "../../fuzz/src/lib.rs"]
mod fuzz;

mod clients;
mod devices;
mod fdinfo;
mod health;
mod kfd;
mod machines;
mod made;
mod metrics;
mod oracle;
mod ports;
mod truth;
