//! TensorFlow's allocator: published cases, a naive model, a device that fails.

mod adoption;
mod cases;
mod faults;
mod properties;
mod report;
mod retired;
