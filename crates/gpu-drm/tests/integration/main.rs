//! Tests of the public interface.

#[expect(unreachable_pub, reason = "the fuzz targets call the same functions")]
#[path = "../../fuzz/src/lib.rs"]
mod fuzz;

mod clients;
mod fdinfo;
mod metrics;
mod truth;
