//! One test program for the whole crate, so that it is linked once.

mod kfd;
//! Tests of the public interface.

#[expect(unreachable_pub, reason = "the fuzz targets call the same functions")]
#[path = "../../fuzz/src/lib.rs"]
mod fuzz;

mod clients;
mod fdinfo;
mod metrics;
mod truth;
