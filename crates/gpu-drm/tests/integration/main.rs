//! Tests of the public interface, one program for the whole crate, so that it is linked once.

#[expect(unreachable_pub, reason = "the fuzz targets call the same functions")]
#[path = "../../fuzz/src/lib.rs"]
mod fuzz;

mod clients;
mod fdinfo;
mod kfd;
mod metrics;
mod truth;
